"""Fit, forecast and judge from Python: the steps of `forecaster train`, on frames.

from forecaster import Forecaster

model = Forecaster(attention="prob", horizon=24, target="load").fit(frame)
ahead = model.predict(level=[80, 95])
"""

import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from functools import wraps
from html import escape
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
import pandas as pd
from typing_extensions import TypeVar

from forecaster.base.errors import UsageError
from forecaster.base.extras import told
from forecaster.base.names import did_you_mean
from forecaster.base.spelling import SPELLING
from forecaster.config.flags import FLAGS, Blend, Device, Features, Policy, Split
from forecaster.config.run_config import Loaded, load
from forecaster.datasets import reader
from forecaster.forecast.history import Frame, Given, as_pandas, numbers, steps_of, unchanged
from forecaster.forecast.notices import NoticeCode, Period, ShortHistory
from forecaster.forecast.predictor import Predictor, keep
from forecaster.forecast.totals import ALL

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from forecaster.forecast.bundle import Bundle
    from forecaster.plan.schema import Schema

Method = TypeVar("Method", bound=Callable[..., Any])
Names = str | Sequence[str]


def _in_python(method: Method) -> Method:
    """Wrap a method so that its messages name parameters instead of command-line options."""

    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        before = SPELLING.set(_as_parameter)
        try:
            return method(*args, **kwargs)
        except ModuleNotFoundError as error:
            raise told(error, f"Forecaster.{method.__name__}") or error from None
        finally:
            SPELLING.reset(before)

    return cast(Method, call)


@dataclass(eq=False, repr=False)
class Forecaster:
    """A forecaster of long sequences whose attention is one choice among many.

    Every parameter is the option of `forecaster train` with the same name, and None leaves the
    choice to the configuration `config`, a name in configs/ or a YAML file; by default, it is the
    one for your own data. `options` are any other values by their dotted names, as `--set` takes
    them: {"train.lr": 0.0003}. `target`, `past_covariates`, `future_covariates`, `static`, `time`
    and `id` give the columns of a frame their roles; roles that are not given are detected
    (docs/data.md). `fit` writes no file and starts no tracker unless it is asked to. It shows its
    progress on stderr and, with `verbose`, the messages of `forecaster train`.

    `fit` checks the parameters and raises UsageError for an invalid one.
    """

    attention: str | None = None
    horizon: int | None = None
    _: KW_ONLY
    target: Names | None = None
    past_covariates: Names | None = None
    future_covariates: Names | None = None
    static: Names | None = None
    features: Features | None = None
    time: str | None = None
    id: Names | None = None
    freq: str | None = None
    season: int | Sequence[int] | None = None
    policy: Policy | None = None
    missing: Sequence[str] | None = None
    split: Split | None = None
    holidays: str | None = None
    lookback: int | str | None = None
    epochs: int | None = None
    time_limit: float | str | None = None
    blend: Blend | None = None
    part: str | None = None
    refit: bool | None = None
    seed: int | None = None
    device: Device | None = None
    config: str | Path | None = None
    options: Mapping[str, Any] | None = None
    verbose: bool = False
    _ready: Predictor | None = field(default=None, init=False)
    _history: pd.DataFrame | None = field(default=None, init=False)
    _back: Callable[[pd.DataFrame], Frame] = field(default_factory=lambda: unchanged, init=False)
    _loaded: bool = field(default=False, init=False)

    # The interface that scikit-learn's tools expect of an estimator.

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters as given to the constructor or to `set_params`."""
        return {name: getattr(self, name) for name in _PARAMETERS}

    def set_params(self, **changes: Any) -> Self:
        """Set parameters for the next `fit`. Raises UsageError for an unknown name."""
        for name, value in changes.items():
            if name not in _PARAMETERS:
                raise UsageError(
                    f"unknown parameter '{name}'. Known here: {', '.join(_PARAMETERS)}."
                )
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn asks of an estimator: a regressor that needs no y."""
        from sklearn.utils import InputTags, RegressorTags, Tags, TargetTags

        return Tags(
            estimator_type="regressor",
            target_tags=TargetTags(required=False),
            regressor_tags=RegressorTags(),
            input_tags=InputTags(allow_nan=True, string=True, categorical=True),
        )

    def __sklearn_is_fitted__(self) -> bool:
        return self._ready is not None

    # The fitted model.

    @property
    def fitted(self) -> Predictor:
        """The trained model. Raises UsageError before `fit` or `load`."""
        if self._ready is None:
            raise UsageError("not fitted yet: call fit(frame) first, or Forecaster.load(path)")
        return self._ready

    @property
    def bundle(self) -> "Bundle":
        """The whole trained model: configuration, schema, weights, figures.

        Raises UsageError before `fit` or `load`.
        """
        return self.fitted.bundle

    @_in_python
    def fit(
        self, frame: Frame, y: Any = None, *, cutoffs: int | None = None, track: bool = False
    ) -> Self:
        """Train on a frame, judge on its last part, and calibrate the intervals.

        frame: wide, with a time column (or an index of stamps) and columns of values; or long, with
        a column of ids, such as unique_id, ds, y. With `cutoffs`, models trained at that many
        cut-offs are judged, too. With `track`, the run is kept in runs/ and tracked in MLflow, as
        by `forecaster train`. scikit-learn gives `y`; the values are in the frame, so it is refused
        unless it is a column of it.

        Raises DataError for a frame that cannot be read or is too short, naming row and column;
        UsageError for invalid parameters; DivergedError.
        """
        from forecaster.datasets.oddities import sentences
        from forecaster.plan.data import take_frame
        from forecaster.plan.plan import make_plan
        from forecaster.plan.splits import make_splits
        from forecaster.run import train

        if cutoffs is not None:
            cutoffs = _whole("cutoffs", cutoffs)
        table, back = as_pandas(frame, file=False)
        if y is not None and getattr(y, "name", None) not in table:
            raise UsageError("y: expected None, or a column of the frame: `target` names it there")
        loaded = self._load()
        data = take_frame(loaded, table, self._say)
        if track:
            bundle = train.run(loaded, self._say, lambda metrics: None, cutoffs, data=data).bundle
        else:
            splits = make_splits(make_plan(*data, self._say))
            for sentence in sentences(splits.plan.oddities):
                self._say(sentence)
            for oddity in splits.plan.oddities:
                if oddity.kind == "unfinished" and not self.verbose:
                    warnings.warn(oddity.text, stacklevel=3)
            ready = train.prepare(splits, self._say)
            bundle = train.make(ready, self._say, lambda metrics: None, cutoffs)
        self._ready = Predictor(bundle, self.device or "auto")
        self._history, self._back = table.copy(deep=False), back  # copied when the caller writes
        return self

    @_in_python
    def predict(
        self,
        history: Given | str | Path | None = None,
        levels: float | Sequence[float] = (),
        *,
        level: float | Sequence[float] = (),
        horizon: int | None = None,
        future: Frame | str | Path | None = None,
        policy: Policy | None = None,
        short_history: ShortHistory | None = None,
        say: Callable[[str], None] | None = None,
        samples: int | None = None,
        total: Period | None = None,
        by: str | None = None,
    ) -> Given:
        """Forecast the steps after a history, or after the fitted frame.

        history: a frame in the form of the fitted one, or a file; the newest rows of each series
        are read, as many as `repr` shows. levels: quantiles between 0 and 1, in columns such as
        "load 0.1". level: central intervals in percent, in columns such as "load-lo-80" and
        "load-hi-80". future: the covariates known ahead for the steps of the horizon, if the model
        reads any; without it, they are taken from rows after the history that have no other values.
        `say` gets sentences about irregular and unusual values of the history. samples: that many
        paths instead, numbered in the column "sample". total: instead of steps, totals over each
        "day", "week" or "month", or over the "horizon", with the 80 % band by default; by: of
        series with the same value of a static attribute or id column, or of "all".

        Returns a frame of the same kind as the history: the time (and ids), and a column for each
        target. Raises UsageError for levels that the model does not have, DataError naming what is
        missing.
        """
        table, back = self._asked(history)
        levels = numbers("levels", levels)
        ends = {share: self._ends(share) for share in numbers("level", level)}
        quantiles = sorted({*levels, *(end for pair in ends.values() for end in pair)})
        ahead = self.fitted.predict(
            table, horizon, quantiles,
            future=future, policy=policy, short_history=short_history, say=say or self._say,
            samples=samples, total=total, by=by,
        )  # fmt: skip
        if samples or not (levels or ends):
            plain: Given = back(_with_ids(ahead, self.fitted.schema.id, table))
            return plain
        named = _named(ahead, self.fitted.schema, levels, ends)
        answer: Given = back(_with_ids(named, self.fitted.schema.id, table))
        return answer

    @_in_python
    def make_future(self, history: Given | str | Path | None = None) -> Given:
        """The rows of covariates known ahead that `predict` takes as `future`, to be filled in.

        There is a row for each step of the horizon after a history, or after the fitted frame, for
        each series. Values that rows after the history hold, or that the calendar determines, are
        filled in. Raises UsageError for a model without covariates known ahead.
        """
        from forecaster.forecast.future import future_rows

        table, back = self._asked(history)
        rows: Given = back(future_rows(self.fitted.form, table, say=self._say))
        return rows

    @_in_python
    def effects(self) -> pd.DataFrame:
        """What one more unit of each input known ahead does to each target, in units.

        There is a row for each input and target: `effect` is by how much the forecast moves, on
        average over its horizon and over `forecasts` from the newest rows that training had;
        80 % of those moved by `low` to `high`. Missing where the training rows do not determine it.
        Empty for a model without such inputs.
        """
        from forecaster.record import InputEffect

        names = [name for name in InputEffect.model_fields if name != "curve"]
        rows = [effect.to_dict() for effect in self.fitted.bundle.record.effects]
        return pd.DataFrame(rows, columns=names)

    @_in_python
    def historical_forecasts(
        self,
        frame: Frame | str | Path | None = None,
        *,
        horizon: int | None = None,
        stride: int | None = None,
        start: int = 0,
        levels: float | Sequence[float] = (),
    ) -> pd.DataFrame:
        """What the model would have forecast at past origins of a frame, beside what came.

        Origins are `stride` rows apart, by default a `horizon`, and have at least `start` rows
        before them. There is a row for each step of each origin, with the columns of `predict`,
        the time of the last row before it in `origin`, and "load actual" for a target "load". The
        fitted frame, which is the default, holds the rows that trained the model, all of them after
        a refit: its forecasts of those are too good. Raises DataError for a frame too short for one
        origin.
        """
        from forecaster.forecast import historical

        steps = steps_of(horizon, self.bundle.horizon)
        quantiles = sorted({*numbers("levels", levels)})
        self.fitted.check_levels(quantiles)
        stride = steps if stride is None else _whole("stride", stride)
        table, _ = self._asked(frame)
        return historical.table(
            *historical.replay(self.fitted, table, steps, stride, start, quantiles, self._say)
        )

    @_in_python
    def residuals(self, frame: Frame | str | Path | None = None, *, step: int = 1) -> pd.DataFrame:
        """What came minus what was forecast `step` steps before, at every row that allows it.

        The columns are the ids, the time and the targets, in units. See `historical_forecasts`.
        """
        replayed = self.historical_forecasts(frame, horizon=_whole("step", step), stride=1)
        schema = self.fitted.schema
        last = replayed.groupby([*schema.id, "origin"], sort=False).tail(1).reset_index(drop=True)
        errors = last[[*schema.id, schema.time]].copy()
        for target in schema.items if schema.wide else schema.targets:
            errors[target] = last[f"{target} actual"] - last[target]
        return errors

    @_in_python
    def score(self, frame: Frame, y: Any = None) -> float:
        """Minus the mean absolute error of `historical_forecasts`, in standard deviations of the
        training rows: the higher the better, 0 at best.

        A frame that begins after the fitted one continues it, as the folds of
        `sklearn.model_selection.TimeSeriesSplit` do; only what comes after the fitted rows counts.
        """
        table, _ = as_pandas(frame, file=False)
        schema, start, last = self.fitted.schema, 0, None
        if self._history is not None:
            before, after = _flat(self._history, schema.time), _flat(table, schema.time)
            fitted, new = (
                reader.history(part, schema.reading, where="the history").series
                for part in (before, after)
            )
            if new.times[0] > fitted.times[-1]:
                last, start = fitted.times[-1], len(fitted.times)
                if fitted.items is not None:
                    start = int(fitted.items.lengths.min())
                table = pd.concat([before, after], ignore_index=True)
        replayed = self.historical_forecasts(table, start=start)
        if last is not None:  # the longer series of a panel have origins before it
            times = replayed[schema.time]
            replayed = replayed[times > last.tz_localize(times.dt.tz)]
        targets = [*(schema.items if schema.wide else schema.targets)]
        came = replayed[[f"{target} actual" for target in targets]].to_numpy()
        off = np.nanmean(np.abs(came - replayed[targets].to_numpy()), axis=0)
        std = np.atleast_2d(schema.target_scaler.std)
        std = std[:, 0] if schema.wide else std.mean(axis=0)
        return -float(np.mean(off / std))

    @_in_python
    def evaluate(self, metric: Names | None = None) -> pd.DataFrame:
        """The errors on the last part of the fitted data, which training did not see.

        There is a row for the model, for its network alone and for each forecast that needs no
        training ("floor"). Columns are scaled errors, the model's skill against the row
        (1 - MSE / MSE of the row), and the row's weight in the model; or the metrics that are
        named, missing where a row has none. Raises UsageError before `fit` or `load`, and for an
        unknown metric.
        """
        from forecaster.evaluate.figures import ErrorMetric, shown
        from forecaster.report import tables

        columns = [*(metric.name for metric in shown(ErrorMetric, "terminal")), "skill", "weight"]
        rows = pd.DataFrame(tables.parts(self.bundle.record)).set_index("part").rename_axis(None)
        test = self.bundle.record.test
        if metric is not None and test:
            columns = [metric] if isinstance(metric, str) else [*metric]
            known = list(dict.fromkeys([*rows.select_dtypes("number"), *test.measured]))
            for name in columns:
                if name not in known:
                    hint = did_you_mean(name, known)
                    raise UsageError(f"no metric '{name}'.{hint} Known: {', '.join(known)}.")
                if name not in rows:
                    rows[name] = [test[name], *[None] * (len(rows) - 1)]
        return rows[columns].astype(float)

    @_in_python
    def cross_validate(self, frame: Frame, cutoffs: int = 5) -> pd.DataFrame:
        """Train anew at several cut-offs in the last part of a frame, and judge what follows each.

        Nothing after a cut-off trains, chooses or calibrates. There is a row for each cut-off: its
        first and last step, the windows, the scaled MSE and MAE, the coverage of the 80 % interval,
        and the best floor with its MSE. The fitted model stays unchanged. Raises UsageError for
        more cut-offs than fit, naming how many do.
        """
        from forecaster.base import machine
        from forecaster.evaluate.cutoffs import COVERED, roll
        from forecaster.plan.data import take_frame
        from forecaster.plan.plan import make_plan
        from forecaster.plan.splits import make_splits
        from forecaster.run.train import train_anew

        cutoffs = _whole("cutoffs", cutoffs)
        table, _ = as_pandas(frame, file=False)
        splits = make_splits(make_plan(*take_frame(self._load(), table, self._say), self._say))
        device = machine.device(splits.plan.config.device)
        judged = roll(
            splits, cutoffs, lambda at: train_anew(at, device, self._say), device, self._say
        ).cutoffs
        zone = "UTC" if splits.schema.timezone == "UTC" else None
        rows = [
            {
                "first": pd.Timestamp(cutoff.first, tz=zone),
                "last": pd.Timestamp(cutoff.last, tz=zone),
                "windows": cutoff.windows,
                "mse": cutoff.mse,
                "mae": cutoff.mae,
                f"covered_{COVERED}": cutoff.coverage,
                "best_floor": cutoff.best_floor,
                "best_floor_mse": cutoff.floors[cutoff.best_floor].mse,
            }
            for cutoff in judged.each
        ]  # fmt: skip
        return pd.DataFrame(rows, index=pd.RangeIndex(1, len(rows) + 1, name="cutoff"))

    def save(self, path: str | Path) -> Path:
        """Save the trained model as a bundle, which `load`, the command line and the service take.

        The history is not part of it. Raises StorageError.
        """
        folder = Path(path)
        keep(self.bundle, folder)
        return folder

    @classmethod
    def load(cls, source: str | Path, device: Device = "auto") -> "Forecaster":
        """Load a bundle's folder, an MLflow run id, or a registered name (NAME, NAME@alias,
        NAME/version).

        What is loaded forecasts, but does not train: `bundle.config` has its parameters. Raises
        UnavailableError or UsageError when it cannot be found, BundleError when it is damaged or
        does not reproduce the forecasts that it was saved with.
        """
        ready = Predictor.load(source, device)
        config = ready.bundle.config
        model = cls(config.attn.name, config.window.horizon, device=device)
        model._ready, model._loaded = ready, True
        return model

    @_in_python
    def plot(
        self,
        history: Frame | str | Path | None = None,
        *,
        future: Frame | Mapping[str, Frame] | None = None,
        level: float | None = None,
        series: str | None = None,
        policy: Policy | None = None,
        short_history: ShortHistory | None = None,
        samples: int | None = None,
    ) -> "Figure":
        """Plot the end of a history and the forecast, in units, for up to four targets.

        If `future` is a mapping of names to frames, there is a line for each of these scenarios,
        and the differences from the first one below. `level` is the interval in percent, by default
        80, or the widest that the model has if that is less. `series` is one of a panel, by default
        its first; `samples` is the number of paths to draw. The others are those of `predict`,
        whose errors are raised.
        """
        from forecaster.evaluate.display import future_figure

        table, _ = self._asked(history)
        scenarios = future if isinstance(future, Mapping) else {"forecast": future}
        if not scenarios:
            raise UsageError("future: expected at least one scenario, got none")
        if level is None and self.bundle.intervals is not None:
            widest = self.bundle.intervals.widest(0.8)
            level = widest and round(100 * widest, 6)
        ends = self._ends(level) if level is not None and len(scenarios) == 1 else ()
        how: dict[str, Any] = {"policy": policy, "short_history": short_history, "samples": samples}
        return future_figure(self.fitted, table, scenarios, ends, series, **how)

    def __repr__(self) -> str:
        params, default = self.get_params(), {n: field.default for n, field in _PARAMETERS.items()}
        given = [f"{name}={value!r}" for name, value in params.items() if value != default[name]]
        text = f"{type(self).__name__}({', '.join(given)})"
        if self._ready is None:
            return text
        bundle, test = self.bundle, self.bundle.record.test
        items, columns = len(bundle.schema.items), len(bundle.schema.targets)
        what = f"{items} series" if items else f"{columns} column{'s' * (columns > 1)}"
        lines = [
            text,
            f"fitted to {what} every {bundle.schema.freq}: reads {bundle.past} steps, forecasts "
            f"{bundle.horizon}",
            f"attention {bundle.config.attn.name}: {bundle.about['attn_effective']}",
        ]
        if test:
            lines += [test.headline, test.verdict]
        return "\n  ".join(lines)

    def _repr_html_(self) -> str:
        """For notebooks: what it is, the verdict, and the five best rows of `evaluate`."""
        lines = "<br>".join(escape(line.strip()) for line in repr(self).splitlines())
        if self._ready is None or self.bundle.record.test is None:
            return f"<p>{lines}</p>"
        rows = self.evaluate().dropna(how="all").head(5)
        return f"<p>{lines}</p>{rows.to_html(float_format='{:.4f}'.format)}"

    # The rest.

    def _load(self) -> Loaded:
        from forecaster.plan.data import FRAME

        if self._loaded:
            raise UsageError(
                "a loaded model does not train: make a Forecaster with the parameters that you want"
            )
        if not isinstance(self.options, Mapping | None):
            raise UsageError(f"options: expected values by their names, got {self.options!r}")
        flags = {flag: _plain(getattr(self, name)) for name, flag in _FLAGS.items()}
        config = None if self.config is None else str(self.config)
        return load(config, self.options or {}, {**flags, "data": FRAME})

    def _asked(
        self, history: Frame | str | Path | None
    ) -> tuple[pd.DataFrame | str | Path, Callable[[pd.DataFrame], Frame]]:
        """The history to forecast, and a function that converts an answer to its kind of frame."""
        if history is not None:
            return as_pandas(history)
        if self._history is None:
            self.fitted  # noqa: B018 - raises if nothing was fitted
            raise UsageError("give a history: a loaded model does not hold one")
        return self._history, self._back

    def _ends(self, share: float) -> tuple[float, float]:
        """The quantiles at the ends of a central interval, in percent."""
        if not isinstance(share, Real) or not 1 <= share < 100:
            meant = f"; did you mean {100 * share:g}?" if isinstance(share, float) else ""
            raise UsageError(
                f"level: expected percentages from 1 to below 100, got {share!r}{meant}"
            )
        low, high = round(0.5 - share / 200, 10), round(0.5 + share / 200, 10)
        self.fitted.check_levels((low, high))
        return low, high

    def _say(self, sentence: str) -> None:
        if self.verbose:
            print(sentence, file=sys.stderr)
        elif getattr(sentence, "code", None) is NoticeCode.LEFT_OUT:
            warnings.warn(sentence, stacklevel=2)


_PARAMETERS = {parameter.name: parameter for parameter in fields(Forecaster) if parameter.init}
_FLAGS = {
    name: "attn" if name == "attention" else name
    for name in _PARAMETERS
    if name not in ("config", "options", "verbose")
}
"""The parameters that are command-line options, with the options' names."""


def _plain(value: Any) -> Any:
    """A value in plain Python: numbers of NumPy as numbers, sequences as lists."""
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _whole(name: str, value: Any) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise UsageError(f"{name}: expected a whole number from 1, got {value!r}")
    return int(value)


def _flat(table: pd.DataFrame, time: str) -> pd.DataFrame:
    """A table with its stamps in the column `time`, also if its index holds them."""
    if isinstance(table.index, pd.DatetimeIndex | pd.PeriodIndex) and time not in table:
        return table.rename_axis(time).reset_index()
    return table


def _with_ids(
    ahead: pd.DataFrame, ids: Sequence[str], history: pd.DataFrame | str | Path
) -> pd.DataFrame:
    """An answer with its ids, which are text, in the type of the history's."""
    for name in ids:
        if isinstance(history, pd.DataFrame) and name in history:
            known = history[name].drop_duplicates()
            meant = dict(zip(known.astype(str), known, strict=True))
            if name in ahead and meant.keys() >= {*ahead[name].unique()}:
                ahead[name] = ahead[name].map(meant).astype(known.dtype)
    return ahead


def _named(
    ahead: pd.DataFrame,
    schema: "Schema",
    levels: Sequence[float],
    ends: Mapping[float, tuple[float, float]],
) -> pd.DataFrame:
    """Rename the quantiles of an answer as they were asked for, by level or by interval."""
    ends_of = {f" {level}": f" {level}" for level in sorted(set(levels))}
    for share, (low, high) in ends.items():
        ends_of |= {f"-lo-{share:g}": f" {low}", f"-hi-{share:g}": f" {high}"}
    targets = [name for name in ahead if name in {*schema.targets, *schema.items, ALL}]
    pairs = [(name, name) for name in ahead.columns[: ahead.columns.get_loc(targets[0])]]
    for target in targets:
        pairs += [(target, target), *((target + new, target + old) for new, old in ends_of.items())]
    columns = dict(pairs)
    if len(columns) < len(pairs):
        twice = next(name for place, (name, _) in enumerate(pairs) if name in dict(pairs[:place]))
        raise UsageError(f"a target and the end of an interval would both be called '{twice}'")
    return ahead[[*columns.values()]].set_axis([*columns], axis=1)


def _as_parameter(name: str, value: Any = None) -> str:
    """An option as a parameter of `Forecaster` or its methods, or as an entry of `options`."""
    if name in ("cutoffs", "future") or name in _FLAGS.values():
        name = "attention" if name == "attn" else name
        return name if value is None else f"{name}={value!r}"
    path = FLAGS.get(name, name)
    return f"options[{path!r}]" if value is None else f"options={{{path!r}: {value!r}}}"
