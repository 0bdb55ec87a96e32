"""An encoder-decoder like the Informer's over tokens of several kinds.

Long seasonal series repeat, and few models beat the mean of the last cycles. With its defaults this
skeleton starts exactly there, without training, and learns only what improves on it. Each of its
parts can be left out or replaced:

- `tokens`: `point`: a time step (Informer, Zhou et al., AAAI 2021); `patch`: some steps (PatchTST,
  Nie et al., ICLR 2023, sec. 3.1); `cycle`: a season or an equal part of one; `series`: the whole
  past of a column, so that columns attend to columns (iTransformer, Liu et al., ICLR 2024,
  sec. 3.1). Past and future are cut alike.
- `channels`: `separate`, one sequence per column, all with the same weights (PatchTST, sec. 3.1),
  or `mixed`, all columns in each token.
- `normalise`, `centre`, `shrink`, `prior`: what is removed from a window first (normalise.py).
- `changes`: whether growth from cycle to cycle continues (normalise.py).
- An encoder over the past tokens and a decoder over the future tokens, which answers in one pass
  (Informer, sec. 4.2): the last known tokens, then placeholders with learned positions, go through
  `decoder_layers` layers of masked self-attention and cross-attention. Without layers, a query is
  a learned vector. If a token is a series, the decoder starts with the tokens of the target
  columns, and nothing is masked.
- `queries`: if a token is a series, the queries of the first layer: `own`, or `temporal`, a learned
  vector for each column and place in the season (temporal.py). That layer then uses the
  cross-attention, because its queries are not what it attends to.
- `output`: `written` from the state of the decoder; or the `average` of raw past cycles that the
  queries choose (average.py); or `both`, where the written part starts at zero; or written by the
  `last` tokens of the past, as many as the horizon has, each writing one: they know other tokens
  only through the attention of the encoder.
- `linear`: a map from past to future, starting at zero (DLinear, Zeng et al., AAAI 2023, without
  its decomposition).
- `calendar`: past and future tokens know their place in the calendar.
- `known`: past and future tokens know the covariates of their steps, so that an attention can look
  for past steps that resemble the future ones.

The effect of covariates known ahead is subtracted from the past and added to the forecast
(covariates.py), with or without `known`. A missing value is set to the centre of its window and has
no weight in the average; no query attends to a token without any observed value.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

from forecaster.attention.base import AttentionPlan, Place, Role
from forecaster.attention.common.kernels import at_least_one
from forecaster.base.shapes import Bool, Float, Shaped
from forecaster.model.average import CycleAverage
from forecaster.model.base import ForecastModel, Task
from forecaster.model.blocks import DecoderLayer, EncoderLayer
from forecaster.model.covariates import KnownEffect
from forecaster.model.normalise import Centre, CyclePrior, Normalise, WindowNorm
from forecaster.model.temporal import TemporalQueries

Tokens = Literal["point", "patch", "cycle", "series"]
Channels = Literal["separate", "mixed"]
Output = Literal["average", "written", "both", "last"]
Queries = Literal["own", "temporal"]


class TokenInformer(ForecastModel):
    """Encoder-decoder over tokens; see the module for the options that are not listed here.

    Args:
        patch: steps of a token, if tokens are patches.
        parts: tokens per cycle, if tokens are cycles; must divide the season. The default is the
            largest number up to 4 that does.
        channels: by default separate, but mixed if a token is a series or some column is not a
            target, because only mixing lets the model see such a column.
        centre: the mean of a window's last cycle, its last value, or its mean.
        changes: average the differences of past cycles from the centre of the cycle before each,
            so that growth continues; otherwise average the cycles themselves.
        shrink: learn, per column, how far the level falls back to the training mean. If one of
            these three is None, a run takes the value that starts best on the training rows
            (forecaster/model/start.py); a model without a run centres on the mean of the last
            cycle, without changes and with shrinking.
        prior: subtract the mean cycle of the training rows first.
        alone: use only the linear path: no token is read, and the average or the written output
            stays as it is before training, the mean of the past cycles or zero.
        positions: past tokens learn their position. Without it, an attention that weights only by
            content does not know their order.
        causal: in the encoder, a token sees only itself and the tokens before it.
        width, heads: D and H.
        feed_forward: inner width of the feed-forward layers.
        decoder_layers: with 0, queries are learned vectors.
        dropout: probability outside the attention weights.
    """

    columns: Tensor
    targets_read: Tensor

    def __init__(
        self,
        task: Task,
        attention: AttentionPlan,
        *,
        tokens: Tokens = "cycle",
        patch: int = 16,
        parts: int | None = None,
        channels: Channels | None = None,
        normalise: Normalise = "window",
        centre: Centre | None = "cycle",
        changes: bool | None = False,
        shrink: bool | None = True,
        prior: bool = False,
        output: Output = "average",
        linear: bool = True,
        alone: bool = False,
        calendar: bool = False,
        known: bool = False,
        positions: bool = True,
        causal: bool = False,
        queries: Queries = "own",
        width: int = 16,
        heads: int = 2,
        feed_forward: int = 32,
        encoder_layers: int = 1,
        decoder_layers: int = 0,
        dropout: float = 0.2,
    ) -> None:
        super().__init__(task)
        at_least_one(encoder_layers=encoder_layers)
        if decoder_layers < 0:
            raise ValueError(f"decoder_layers must be at least 0, got {decoder_layers=}")
        averages = output in ("average", "both")
        cut = Cut(task, tokens, patch, parts, channels, average=averages)
        self.cut, self.changes = cut, bool(changes)
        self.register_buffer("columns", torch.tensor(cut.columns), persistent=False)
        self.register_buffer("targets_read", torch.tensor(cut.targets), persistent=False)

        def wrong(option: str, needs: str) -> ValueError:
            """The error for an option that needs other ones."""
            given = f"{tokens=}, {output=}, {decoder_layers=}, {normalise=}, {centre=}, {linear=}"
            given += f", past={task.past}, horizon={task.horizon}"
            return ValueError(f"model.{option} needs {needs}, got {given}")

        if output == "last" and (decoder_layers or cut.series or cut.future > cut.past):
            raise wrong("output=last", "decoder_layers=0, tokens of steps, and past >= horizon")
        if output in ("written", "both") and decoder_layers < 1 and not cut.series:
            raise wrong(f"output={output}", "decoder_layers >= 1, whose state it is read from")
        if changes and (normalise == "none" or centre == "window" or not averages):
            raise wrong("changes=true", "normalise=window, centre=cycle or last, and an average")
        if cut.series and (calendar or known or causal):
            raise wrong("calendar, known or causal", "tokens of steps, not whole series")
        if known and not task.covariates:
            raise wrong("known=true", "covariates known ahead")
        if alone and not linear:
            raise wrong("alone=true", "linear=true, the only path that it leaves")
        if queries == "temporal" and (not cut.series or decoder_layers):
            raise wrong("queries=temporal", "tokens=series and decoder_layers=0")
        self.embed: nn.Module = nn.Linear(cut.values, width)
        # columns, unlike steps, have no order
        placed = positions and not cut.series
        self.positions = None if not placed else nn.Parameter(torch.randn(cut.past, width) * 0.02)
        self.temporal = None
        roles: list[Role] = ["encoder"] * encoder_layers
        if queries == "temporal":
            self.temporal = TemporalQueries(task.season, cut.past, width, task.phase)
            roles[0] = "cross"
        self.encoder = nn.ModuleList()
        for depth, role in enumerate(roles):
            place = Place(width, heads, cut.past, cut.past, depth, role, masked=causal)
            layer = getattr(attention, role).build(place)
            self.encoder.append(EncoderLayer(layer, feed_forward, dropout, norm="pre"))
        # no biases from here to the weights: equal for all cycles, they would cancel in the softmax
        self.norm: nn.Module = nn.LayerNorm(width, bias=output != "average" or decoder_layers > 0)
        self.reads_last = output == "last"
        stateful = calendar or known or decoder_layers > 0
        self.average = None
        if averages:
            ahead = cut.future // cut.parts
            self.average = CycleAverage(cut.cycles, cut.parts, ahead, width, heads, stateful)
        self.linear = nn.Linear(cut.used, task.horizon, bias=False) if linear else None
        if self.linear is not None:
            nn.init.zeros_(self.linear.weight)
        targets = len(task.targets)
        level = (centre or "cycle", task.season, targets, shrink is not False)
        self.window = WindowNorm(normalise, *level)
        self.prior = CyclePrior(task.season, task.columns, task.phase) if prior else None
        self.calendar = nn.Linear(task.calendar, width) if calendar else None
        sizes = (task.calendar, task.covariates, task.season)
        self.effect = KnownEffect(*sizes, targets) if task.covariates else None
        self.all_targets = list(task.targets) == list(range(task.columns))
        covariates = cut.steps * task.covariates
        self.known = nn.Linear(covariates, width, bias=False) if known else None

        decoded = cut.opening + cut.future
        queried = decoder_layers > 0 and not cut.series
        self.queries = nn.Parameter(torch.randn(decoded, width) * 0.02) if queried else None
        self.decoder = nn.ModuleList()
        for depth in range(decoder_layers):
            place = Place(width, heads, decoded, decoded, depth, "decoder", masked=not cut.series)
            across = Place(width, heads, decoded, cut.past, depth, "cross")
            both = attention.decoder.build(place), attention.cross.build(across)
            self.decoder.append(DecoderLayer(*both, feed_forward, dropout, norm="pre"))
        self.norm_decoder = nn.LayerNorm(width) if decoder_layers else None
        self.write = nn.Linear(width, cut.written) if output != "average" else None
        if self.write is not None and output == "both":
            nn.init.zeros_(self.write.weight)
            nn.init.zeros_(self.write.bias)
        if alone:
            self._leave_alone(width)

    def _leave_alone(self, width: int) -> None:
        """Remove all that reads tokens; the average of zeros is the mean and learns nothing."""
        self.embed, self.norm = _Zeros(width), nn.Identity()
        self.encoder, self.decoder = nn.ModuleList(), nn.ModuleList()
        self.positions = self.queries = self.calendar = self.known = self.temporal = None
        self.norm_decoder = self.write = None
        if self.average is not None:
            self.average.requires_grad_(False)

    @classmethod
    def places(cls, options: Mapping[str, Any]) -> tuple[Role, ...]:
        if options.get("queries") == "temporal":
            return ("encoder", "cross")
        return ("encoder", "decoder", "cross") if options.get("decoder_layers") else ("encoder",)

    def effective(self) -> dict[str, str]:
        effects = super().effective()
        if self.average is None or self.write is not None or self.cut.cycles > 1:
            return effects
        return dict.fromkeys(effects, "nothing: the average of the one cycle read is that cycle")

    def prepare(self, rows: Iterable[tuple[Tensor, Tensor]]) -> None:
        if self.prior is not None:
            self.prior.fit(rows)

    def forward(
        self,
        past: Float[Tensor, "b p c"],
        past_known: Float[Tensor, "b p f"],
        future_known: Float[Tensor, "b t f"],
        observed: Bool[Tensor, "b p c"] | None = None,
    ) -> Float[Tensor, "b t targets"]:
        cut = self.cut
        past, past_known = past[:, -cut.used :], past_known[:, -cut.used :]
        calendar, ahead_calendar = (
            known[..., : self.task.calendar] for known in (past_known, future_known)
        )
        if self.prior is not None:
            past = past - self.prior(calendar)
        ahead_effect = None
        if self.effect is not None:
            effect, ahead_effect = self.effect(past_known, future_known)
            if self.all_targets:  # ONNX would write index_add as an overwrite of all columns
                past = past - effect
            else:
                past = past.index_add(2, self.targets, effect, alpha=-1)
        seen = own_seen = real = None
        if observed is not None:
            seen = self._read(observed[:, -cut.used :]).transpose(1, 2)
            own_seen, real = cut.tokens(self._own(seen)), cut.tokens(seen).any(dim=2)
        window, centre, scale = self.window(self._read(past).transpose(1, 2), seen)
        targets = self._own(window)

        tokens = cut.tokens(window)
        x = self.embed(tokens)
        if self.positions is not None:
            x = x + self.positions
        if (features := self._told(past_known, cut.past)) is not None:
            x = x + features
        query = None
        if self.temporal is not None:
            query = self.temporal(future_known[:, 0, : self.task.calendar])
        for layer in self.encoder:
            x, query = layer(x, real, query), None
        encoded = self.norm(x)
        state = self._decode(tokens, encoded, real, past_known, future_known)

        forecast: Tensor | None = None
        if self.average is not None:
            cycles = cut.tokens(targets)
            if self.changes:
                seen = None if seen is None else self._own(seen)
                cycles, own_seen = map(cut.tokens, self.window.changes(targets, seen))
            average = self.average(encoded, cycles, state, own_seen)
            forecast = cut.merge(average)
        if self.write is not None:
            written = cut.merge(self.write(state))
            forecast = written if forecast is None else forecast + written
        if self.linear is not None:
            path = self.linear(targets)
            forecast = path if forecast is None else forecast + path
        assert forecast is not None  # the output is an average, written, both, or the linear path
        ahead = self.window.restore(forecast, self._own(centre), self._own(scale))
        ahead = ahead.transpose(1, 2)
        if self.prior is not None:
            ahead = ahead + self.prior(ahead_calendar)[..., self.targets]
        if ahead_effect is not None:
            ahead = ahead + ahead_effect
        return ahead

    def _read(self, values: Tensor) -> Tensor:
        """The columns (..., C) that are read; not a copy if that is all of them."""
        return values if self.cut.reads_all else values[..., self.columns]

    def _own(self, columns: Tensor) -> Tensor:
        """The targets among the columns (B, C, ...) read; not a copy if that is all of them."""
        return columns if self.cut.forecasts_all else columns[:, self.targets_read]

    def _told(self, known: Float[Tensor, "b l f"], count: int) -> Tensor | None:
        """The known features of `count` tokens, (sequences, count, D); None if there are none."""
        calendar, covariates = known.tensor_split([self.task.calendar], dim=2)
        features = None
        if self.calendar is not None:
            features = self.cut.per_token(self.calendar, calendar, count)
        if self.known is not None:
            covariate = self.cut.per_token(self.known, covariates, count, "each")
            features = covariate if features is None else features + covariate
        return features

    def _decode(
        self,
        tokens: Tensor,
        encoded: Tensor,
        real: Tensor | None,
        past_known: Tensor,
        future_known: Tensor,
    ) -> Tensor | None:
        """The state of each future token, (sequences, future, D); None if queries have no state."""
        cut = self.cut
        if self.norm_decoder is None:
            if self.reads_last:
                return encoded[:, -cut.future :]
            if self.write is not None:  # a series writes from its own encoded token
                return self._own(encoded)
            return self._told(future_known, cut.future)
        if self.queries is None:
            x = self.embed(self._own(tokens))
            own_real = None if real is None else self._own(real)
        else:
            known = self.embed(tokens[:, cut.past - cut.opening :])
            x = nn.functional.pad(known, (0, 0, 0, cut.future)) + self.queries
            opens = None if real is None else real[:, cut.past - cut.opening :]
            own_real = None if opens is None else nn.functional.pad(opens, (0, cut.future), value=1)
        opening = past_known[:, cut.used - cut.opening * cut.steps :]
        around = torch.cat([opening, future_known], dim=1)
        if (features := self._told(around, cut.opening + cut.future)) is not None:
            x = x + features
        for depth, layer in enumerate(self.decoder, 1):
            last = cut.future if depth == len(self.decoder) else 0
            x = layer(x, encoded, own_real, real, last)
        state: Tensor = self.norm_decoder(x)
        return state


class _Zeros(nn.Module):
    """Tokens (..., V) as zeros (..., width)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, x: Tensor) -> Tensor:
        return x.new_zeros(*x.shape[:-1], self.width)


class Cut:
    """How windows become tokens, and future tokens become a forecast.

    `steps` per token; `used`, the number of newest rows of the look-back; the numbers of `past` and
    `future` tokens, and of `opening` known ones before the decoder's queries; the numbers of
    `values` read from a token and `written` to one; `cycles` of `parts` tokens, if past cycles are
    averaged; the `columns` that are read and the `targets` among them; whether `columns` are all
    columns in order (`reads_all`), and `targets` all of these (`forecasts_all`).
    """

    def __init__(
        self,
        task: Task,
        kind: Tokens,
        patch: int,
        parts: int | None,
        channels: Channels | None,
        average: bool,
    ) -> None:
        season, targets = task.season, len(task.targets)
        if parts is None:
            parts = max(part for part in (1, 2, 3, 4) if season % part == 0)
        if channels is None:
            channels = "mixed" if kind == "series" or targets < task.columns else "separate"
        if kind == "series" and (channels == "separate" or average):
            raise ValueError(
                "model.tokens=series needs model.channels=mixed and model.output=written: columns "
                "attend to columns, and a whole series holds no cycles to average"
            )
        at_least_one(parts=parts, patch=patch)
        if kind == "cycle" and season % parts:
            raise ValueError(
                f"model.parts must divide the season, got parts={parts}, season={season}"
            )
        lengths = {"point": 1, "patch": patch, "cycle": season // parts, "series": task.past}
        self.steps = lengths[kind]
        if average and season % self.steps:
            raise ValueError(
                f"model.patch must divide the season, whose cycles are averaged, got "
                f"patch={patch}, season={season}; or set model.output=written"
            )
        whole = season if average or kind == "cycle" else self.steps
        if task.past < whole:
            raise ValueError(
                f"the look-back must hold a whole {'cycle' if whole == season else 'token'}, got "
                f"window.past={task.past}, season={season}, steps of a token={self.steps}"
            )
        self.used = task.past // whole * whole
        self.cycles, self.parts = self.used // season, season // self.steps
        self.horizon = task.horizon
        self.separate = channels == "separate"
        self.series = kind == "series"
        self.columns = list(task.targets if self.separate else range(task.columns))
        self.targets = list(range(targets) if self.separate else task.targets)
        self.reads_all = self.columns == list(range(task.columns))
        self.forecasts_all = self.targets == list(range(len(self.columns)))
        if self.series:
            self.past, self.future, self.opening = task.columns, targets, 0
            self.values, self.written = task.past, task.horizon
            return
        self.past = self.used // self.steps
        ahead = -(-task.horizon // whole) * whole
        self.future = ahead // self.steps
        self.opening = min(self.past, -(-task.start // self.steps))
        self.values = self.steps * (1 if self.separate else task.columns)
        self.written = self.steps * (1 if self.separate else targets)

    def tokens(self, window: Shaped[Tensor, "b c p"]) -> Shaped[Tensor, "sequences n v"]:
        """The tokens of the columns, as one sequence for each column or one for all."""
        if self.series:
            return window
        if self.separate:
            return window.reshape(-1, self.past, self.steps)
        b, c, _ = window.shape
        return window.reshape(b, c, self.past, self.steps).transpose(1, 2).flatten(2)

    def merge(self, tokens: Float[Tensor, "sequences m v"]) -> Float[Tensor, "b k t"]:
        if self.series:
            return tokens
        targets = len(self.targets)
        if self.separate:
            forecast = tokens.reshape(-1, targets, self.future * self.steps)
        else:
            forecast = tokens.unflatten(2, (targets, self.steps)).transpose(1, 2).flatten(2)
        return forecast[..., : self.horizon]

    def per_token(
        self,
        layer: nn.Module,
        known: Float[Tensor, "b l f"],
        count: int,
        steps: Literal["mean", "each"] = "mean",
    ) -> Float[Tensor, "sequences count d"]:
        """Apply a layer to the known features of the steps of each of `count` tokens.

        The layer gets their mean over the steps, or the features of all steps side by side. If the
        last token goes beyond the known steps, the last known step fills it.
        """
        beyond = count * self.steps - known.shape[1]
        known = torch.cat([known, known[:, -1:].expand(-1, beyond, -1)], dim=1)
        known = known.unflatten(1, (count, self.steps))
        seen: Tensor = layer(known.mean(dim=2) if steps == "mean" else known.flatten(2))
        return seen.repeat_interleave(len(self.targets), dim=0) if self.separate else seen
