"""An encoder-decoder whose tokens are parts of seasonal cycles.

Long seasonal series repeat, and the untrained mean of the last cycles is a forecast that few
models beat. This skeleton starts exactly there and learns only what improves on it:

- every column is a sequence of its own, all share the weights; each window is centred and
  divided by its own standard deviation, and the forecast is scaled back;
- a token is one cycle or an equal part of one (a quarter of a day, say); the encoder lets tokens
  look at each other through any attention;
- the decoder has one learned query per future token. Query q attends, over the encoded past, to
  the tokens of its own phase of the cycle; the *values* are the raw past parts, so a forecast is a
  weighted mean of what was really seen. Zero-started queries and biases make all weights equal
  before training: the forecast then is the mean of the past cycles;
- a linear path from the past to the future, started at zero, adds what an average cannot;
- the level may shrink towards the training mean by a learned share per column.

The average of raw past values as the decoder's output is ours; patches as tokens and shared
weights across columns follow PatchTST (Nie et al., ICLR 2023, sec. 3.1), window normalisation
RevIN (Kim et al., ICLR 2022), the linear path DLinear (Zeng et al., AAAI 2023).
"""

from typing import Literal

import torch
from torch import Tensor, nn

from forecaster.attention.base import AttentionPlan, Place
from forecaster.attention.kernels import at_least_one
from forecaster.model.base import ForecastModel, Task
from forecaster.model.blocks import EncoderLayer
from forecaster.shapes import Float

Centre = Literal["cycle", "last", "window"]


class CycleInformer(ForecastModel):
    """Encoder-decoder over parts of cycles.

    Args:
        parts: tokens per cycle; must divide the season.
        width: D, width of a token.
        heads: H, attention heads.
        feed_forward: inner width of the encoder's feed-forward layers.
        encoder_layers: layers of the encoder.
        dropout: probability in the encoder, outside the attention weights.
        centre: what a window is centred on: the mean of its last cycle, its last value, or its
            mean.
        linear: add the zero-started linear path from past to future.
        shrink: learn, per column, how far the level falls back to the training mean.
    """

    attention_roles = ("encoder",)

    def __init__(
        self,
        task: Task,
        attention: AttentionPlan,
        *,
        parts: int = 4,
        width: int = 16,
        heads: int = 2,
        feed_forward: int = 32,
        encoder_layers: int = 1,
        dropout: float = 0.2,
        centre: Centre = "cycle",
        linear: bool = True,
        shrink: bool = True,
    ) -> None:
        super().__init__(task)
        season = task.season
        if parts < 1 or season % parts:
            raise ValueError(
                f"model.parts must divide the season, got parts={parts}, season={season}"
            )
        at_least_one(encoder_layers=encoder_layers)
        cycles = task.past // season
        if cycles < 1:
            raise ValueError(
                f"the look-back must hold a whole cycle, got window.past={task.past}, "
                f"season={season}"
            )
        self.cycles, self.parts = cycles, parts
        self.steps = season // parts
        self.centre = centre
        tokens = cycles * parts
        future_cycles = -(-task.horizon // season)

        self.embed = nn.Linear(self.steps, width)
        self.positions = nn.Parameter(torch.randn(tokens, width) * 0.02)
        self.encoder = nn.ModuleList(
            EncoderLayer(
                attention.encoder.build(Place(width, heads, tokens, tokens, depth, "encoder")),
                feed_forward,
                dropout,
                norm="pre",
            )
            for depth in range(encoder_layers)
        )
        # no biases from here to the weights: the same for all cycles, they would fall out of them
        self.norm = nn.LayerNorm(width, bias=False)
        self.average = CycleAverage(cycles, parts, future_cycles, width, heads)
        self.linear = nn.Linear(cycles * season, task.horizon, bias=False) if linear else None
        if self.linear is not None:
            nn.init.zeros_(self.linear.weight)
        self.shrink = nn.Parameter(torch.full((len(task.targets),), -4.0)) if shrink else None

    def forward(
        self,
        past: Float[Tensor, "b p c"],
        past_calendar: Float[Tensor, "b p f"],
        future_calendar: Float[Tensor, "b t f"],
    ) -> Float[Tensor, "b t targets"]:
        season = self.task.season
        window = past[:, -self.cycles * season :, list(self.task.targets)].transpose(1, 2)
        centre = self._centre(window)
        scale = window.std(dim=-1, keepdim=True, correction=0) + 0.01
        window = (window - centre) / scale

        tokens = window.reshape(-1, self.cycles * self.parts, self.steps)
        x = self.embed(tokens) + self.positions
        for layer in self.encoder:
            x = layer(x)
        forecast = self.average(self.norm(x), tokens)[:, : self.task.horizon]
        forecast = forecast.reshape(*window.shape[:2], self.task.horizon)
        if self.linear is not None:
            forecast = forecast + self.linear(window)
        level = centre
        if self.shrink is not None:
            level = centre * torch.sigmoid(-self.shrink)[:, None]
        ahead: Tensor = (forecast * scale + level).transpose(1, 2)
        return ahead

    def _centre(self, window: Float[Tensor, "b c p"]) -> Float[Tensor, "b c 1"]:
        match self.centre:
            case "cycle":
                return window[..., -self.task.season :].mean(dim=-1, keepdim=True)
            case "last":
                return window[..., -1:]
            case "window":
                return window.mean(dim=-1, keepdim=True)


class CycleAverage(nn.Module):
    """Cross-attention from future tokens to past tokens of the same phase, averaging raw values.

    weights[h, q, i] = softmax_i(query[h, q] . key[h, i, phase(q)] / sqrt(E) + bias[h, q, i]) over
    the cycles i; heads are mixed by learned scalars that start at 1/H. Queries and biases start
    at zero, so all weights start equal. Queries are kept as (future cycles, parts): G and R below.
    """

    def __init__(self, cycles: int, parts: int, future_cycles: int, width: int, heads: int) -> None:
        super().__init__()
        shape = (heads, future_cycles, parts)
        self.query = nn.Parameter(torch.zeros(*shape, width // heads))
        self.bias = nn.Parameter(torch.zeros(*shape, cycles))
        self.key = nn.Linear(width, width, bias=False)
        self.mixture = nn.Parameter(torch.full((heads,), 1 / heads))

    def forward(
        self, encoded: Float[Tensor, "b tokens d"], values: Float[Tensor, "b tokens steps"]
    ) -> Float[Tensor, "b time"]:
        heads, _, parts, width = self.query.shape
        key = self.key(encoded).reshape(len(encoded), -1, parts, heads, width)
        scores = torch.einsum("hgre,bcrhe->bhgrc", self.query * width**-0.5, key)
        weights = torch.softmax(scores + self.bias, dim=-1)
        mixed = torch.einsum("h,bhgrc->bgrc", self.mixture, weights)
        cycles = values.reshape(len(values), -1, parts, values.shape[-1])
        return torch.einsum("bgrc,bcrs->bgrs", mixed, cycles).flatten(1)
