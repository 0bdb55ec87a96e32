"""A client of the service: DataFrame in, DataFrame out, without torch and without the model.

from forecaster.client import Client

future = Client("http://127.0.0.1:8000").predict(history, levels=(0.1, 0.9))
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import requests

from forecaster.base.errors import DataError, ForecasterError, UnavailableError, UsageError
from forecaster.base.names import model_names
from forecaster.forecast.answer import Answer
from forecaster.forecast.history import TOGETHER, Frame, Given, as_pandas, numbers, read
from forecaster.forecast.notices import Period, ShortHistory
from forecaster.forecast.question import Form, Question, concatenate
from forecaster.forecast.totals import Totals, check_asked

if TYPE_CHECKING:
    from forecaster.config.flags import Policy

NUMBERS, SERIES = 200_000, 64
"""The limits of one request (unless a single series is longer): some MB, and as many series as a
service runs together by default."""
PATHS = 1_000_000
"""The limit of values of paths in one answer (unless a single series has more): 20 MB."""

_KINDS: dict[int, type[ForecasterError]] = {
    **dict.fromkeys((400, 413, 415, 422), DataError),
    **dict.fromkeys((401, 403), UsageError),
    **dict.fromkeys((404, 405, 429, 502, 503, 504), UnavailableError),
}


class Client:
    """The service at `url`; `timeout` limits each request, and the wait before a second one, in
    seconds."""

    def __init__(self, url: str, api_key: str | None = None, *, timeout: float = 60.0) -> None:
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"expected a URL such as http://127.0.0.1:8000, got {url}")
        self.url = url.rstrip("/")
        self.timeout = timeout
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}

    def models(self) -> list[dict[str, Any]]:
        """What GET /models returns for each model, the default one first.

        Raises UnavailableError when the service does not answer, UsageError when it refuses the
        key.
        """
        models: list[dict[str, Any]] = self._ask("GET", "/models")["models"]
        return models

    def model(self, name: str | None = None) -> dict[str, Any]:
        """The card of one model, by default the first. Raises UnavailableError if there is none."""
        models = self.models()
        if not models:
            self._ask("GET", "/readyz")  # 503 with the reason
        for card in models:
            if name in (None, *model_names(card["name"], card["alias"], card["version"])):
                return card
        known = ", ".join(card["name"] for card in models)
        raise UnavailableError(f"{self.url}: there is no model {name}; there is {known}")

    def predict(
        self,
        frame: Given | str | Path,
        horizon: int | None = None,
        levels: float | Sequence[float] = (),
        *,
        future: Frame | str | Path | None = None,
        model: str | None = None,
        policy: "Policy | None" = None,
        short_history: ShortHistory | None = None,
        where: str = "the history",
        say: Callable[[str], None] = lambda _: None,
        samples: int | None = None,
        total: Period | None = None,
        by: str | None = None,
    ) -> Given:
        """The result of `Forecaster.predict` for arguments of these names, from the service.

        `model` is a name, by default that of the first. A large panel is sent in several requests.
        Raises DataError for data that do not fit, UsageError for a horizon or levels that the model
        does not have, UnavailableError when there is no answer; errors found by the service keep
        its words.
        """
        levels = sorted({*numbers("levels", levels)})
        if not all(0 < level < 1 for level in levels):
            raise UsageError(f"quantile levels lie between 0 and 1, got {list(levels)}")
        check_asked(samples, total, by, levels)
        form = _form(self.model(model))

        def answer(question: Question) -> Answer:
            parameters = {
                "prediction_length": question.steps, "quantile_levels": levels,
                "short_history": histories.short, "samples": samples, "total": total, "by": by,
            }  # fmt: skip
            size = form.past * len(form.columns) + (form.past + form.horizon) * len(form.known)
            paths = (samples or 0) * form.horizon * len(form.targets)
            most = min(SERIES, NUMBERS // size, PATHS // max(paths, 1))
            together = max(1, most) if by is None else len(question)
            answers = []
            for first in range(0, len(question), together):
                part = question[first : first + together]
                body = {"inputs": part.to_json(form), "parameters": parameters, "model": model}
                forecasts = self._ask("POST", "/predict", json=body)
                answers.append(Answer.from_json(forecasts, part, form))
                rows.extend(forecasts.get("totals", ()))
            return concatenate(answers)

        def summed(answer: Answer) -> Answer:
            return replace(answer, totals=Totals.from_json(rows)) if rows else answer

        rows: list[Any] = []
        table, back = as_pandas(frame)
        histories = read(
            form, table, horizon, levels,
            future=future, policy=policy, where=where, say=say, short_history=short_history,
        )  # fmt: skip
        if by is not None and len(histories.chosen) > TOGETHER:
            raise UsageError(
                f"by: a service sums at most {TOGETHER} series, got {len(histories.chosen)}"
            )
        ahead: Given = back(histories.answer(answer, say, summed, by))
        return ahead

    def _ask(self, method: str, path: str, **options: Any) -> Any:
        """The JSON of the answer.

        A request changes nothing, so it is repeated once: after a 429, 500, 502 or 503 that states
        when to retry, or is not JSON, as that of a proxy that has lost the service; and after a
        broken connection, as when one of several processes has ended.
        """
        answer = self._send(method, path, **options)
        wait = "" if "json" in answer.headers.get("Content-Type", "") else "1"
        wait = answer.headers.get("Retry-After", wait)
        wait = wait if answer.status_code in (429, 500, 502, 503) else ""
        if wait.isdecimal() and int(wait) <= self.timeout:
            time.sleep(int(wait))
            answer = self._send(method, path, **options)
        try:
            body = answer.json()
        except requests.JSONDecodeError:
            body = None
        if answer.status_code == 200 and isinstance(body, dict):
            return body
        detail = body.get("detail") if isinstance(body, dict) else None
        if not isinstance(detail, str) or (path, answer.status_code) == ("/models", 404):
            raise UnavailableError(
                f"{self.url}{path} answers {answer.status_code} {answer.reason}, which is not an "
                "answer of `forecaster serve`: is this its URL?"
            )
        kind = _KINDS.get(answer.status_code, ForecasterError)
        if any("parameters" in flaw["loc"] for flaw in body.get("errors", ())):
            kind = UsageError
        match body.get("errors"):
            case [{"loc": ["inputs", int(number), *_]}, *_] if "json" in options:
                name = options["json"]["inputs"][number].get("item_id")
                detail = detail.removeprefix(f"inputs[{number}]").lstrip(".: ")
                detail = (f"series '{name}', " if name else "") + detail
        raise kind(f"{self.url}: {detail}")

    def _send(self, method: str, path: str, attempts: int = 2, **options: Any) -> requests.Response:
        try:
            return requests.request(
                method,
                self.url + path,
                headers=self._headers,
                timeout=self.timeout,
                allow_redirects=False,
                **options,
            )
        except requests.Timeout:
            message = f"did not answer within {self.timeout:g} seconds"
        except requests.RequestException as error:
            if attempts > 1:
                return self._send(method, path, attempts - 1, **options)
            message = (
                f"cannot be reached ({type(error).__name__}): is `forecaster serve` running there?"
            )
        raise UnavailableError(f"{self.url} {message}")


def _form(card: dict[str, Any]) -> Form:
    """The form of a model's histories. Raises UsageError for a panel that is too wide."""
    from forecaster.datasets.reading import Reading

    if card["wide"] and card["items"] > len(card["item_names"]):
        raise UsageError(
            f"the panel of this model has {card['items']:,} columns, of which the service names "
            f"{len(card['item_names']):,}: forecast it with --model instead of --url"
        )
    targets = card["item_names"] if card["wide"] else card["targets"]
    reading = Reading.from_dict({**card["reading"], "targets": targets})
    words = {attribute["name"]: attribute["words"] or () for attribute in card["static_covariates"]}
    past, needs, least, horizon = (
        card[name] for name in ("look_back", "needs", "least", "horizon")
    )
    named = card["new_series"] and card["items"] == len(card["item_names"])
    trained = card["item_names"] if named else None
    return Form(reading, tuple(card["columns"]), past, needs, least, horizon, words, trained)
