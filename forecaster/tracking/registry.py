"""The registry of MLflow: which version of a name is served, and its files.

The rule by which a version replaces the champion is that of `challenge`.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from forecaster.tracking import store  # before mlflow, which it silences

# isort: split
from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts, list_artifacts
from mlflow.entities import ViewType
from mlflow.entities.model_registry import RegisteredModel
from mlflow.store.entities import PagedList
from mlflow.utils import get_results_from_paginated_fn

from forecaster.base.errors import UsageError
from forecaster.base.installation import without_password
from forecaster.base.names import NEWEST, did_you_mean, model_reference
from forecaster.record import challenge
from forecaster.tracking.notes import NewVersion

KEY = "forecaster.run"
"""The tag of a run with our own id for it."""
PREFIX = "forecaster-"
"""The prefix of forecaster's registered names."""
CHAMPION, CHALLENGER = "champion", "challenger"
DECISION, PROMOTED, CONTEST = "decision", "promoted", "contest"
"""Tags of a version: the outcome of its challenge to the champion, who promoted it when, and the
contest by which it was renewed."""
PAGE = 1000
"""The most registered names of one answer, by MLflow's limit."""
BUNDLE = "artifacts/bundle"
"""The path of the bundle within a logged model."""


def register(
    client: MlflowClient, uri: str, run: str, model: str, new: NewVersion, about: str = ""
) -> str:
    """Make a logged model the next version of a name, or find the version it already is; returns a
    sentence that states whether it is the champion now, and why.

    `about` describes a new version in Markdown.
    """
    name = new.name
    with store.locked(uri):
        with store.accepting("RESOURCE_ALREADY_EXISTS"):
            client.create_registered_model(name, description=new.about)
        versions = client.search_model_versions(f"name='{name}' and run_id='{run}'")
        # not "models:/...", which a local registry would look up in MLflow's global store
        version = versions[0] if versions else client.create_model_version(
            name, client.get_logged_model(model).artifact_location, run, new.tags, model_id=model,
            description=about,
        )  # fmt: skip
        if DECISION not in version.tags:
            sentence = _challenge(client, name, str(version.version))
            client.set_model_version_tag(name, str(version.version), DECISION, sentence)
            return sentence
    return str(version.tags[DECISION])


def _challenge(client: MlflowClient, name: str, version: str) -> str:
    """Let a version challenge the champion; returns a sentence on the outcome."""
    before = _aliases(client, name).get(CHAMPION)
    if before == version:
        return f"{name} version {version} is the champion"
    entries = {
        number: challenge.Entry.of(number, client.get_model_version(name, number).tags)
        for number in (version, before)
        if number is not None
    }
    decision = challenge.decide(entries[version], entries.get(before or ""))
    return _decided(client, name, version, decision)


def _decided(client: MlflowClient, name: str, version: str, decision: challenge.Decision) -> str:
    """Give a version the alias that it has won; returns a sentence on the outcome."""
    if decision.wins:
        client.set_registered_model_alias(name, CHAMPION, version)
        _drop_challenger(client, name, version)
        return f"{name} version {version} is the champion: {decision.reason}"
    if not decision.open:
        return f"{name} version {version} is registered, but not the champion: {decision.reason}"
    client.set_registered_model_alias(name, CHALLENGER, version)
    return (
        f"{name} version {version} is a challenger, not the champion: {decision.reason}. To serve "
        f"it all the same: forecaster promote {name}/{version}"
    )


def renew(
    name: str, champion: str, run: str, new: NewVersion, decision: challenge.Decision
) -> tuple[str, bool]:
    """Make the model of a run a version of `name`, and the champion if it wins against the version
    `champion`, which no other has replaced meanwhile; returns a sentence on the outcome, and
    whether it is the champion.

    Raises UsageError for a run without a model, UnavailableError when the store cannot be used.
    """
    with store.asked() as client, store.locked(client.tracking_uri):
        of_run = find_run(client, run)
        if of_run is None:
            raise UsageError(f"there is no run {run} in {without_password(client.tracking_uri)}")
        source = _location_in_run(client, of_run, None)
        version = client.create_model_version(name, source, of_run, new.tags, description=new.about)
        number, now = str(version.version), _aliases(client, name).get(CHAMPION)
        if decision.wins and now not in (None, champion):
            reason = f"version {now} became the champion meanwhile; {decision.reason}"
            decision = replace(decision, wins=False, reason=reason)
        sentence = _decided(client, name, number, decision)
        client.set_model_version_tag(name, number, DECISION, sentence)
    return sentence, decision.wins


def _aliases(client: MlflowClient, name: str) -> dict[str, str]:
    return {key: str(version) for key, version in client.get_registered_model(name).aliases.items()}


def _drop_challenger(client: MlflowClient, name: str, champion: str) -> None:
    if _aliases(client, name).get(CHALLENGER) == champion:
        client.delete_registered_model_alias(name, CHALLENGER)


def promote(reference: str) -> str:
    """Make a registered version the champion; returns a sentence that names the former one.

    `reference`: NAME/VERSION, NAME@alias, or the id of the run that registered it. Raises
    UsageError if it does not exist or names no version, UnavailableError when the store cannot
    be used.
    """
    parts = model_reference(reference)
    with store.asked() as client, store.locked(client.tracking_uri):
        name, number = _chosen(client, reference, parts)
        before = _aliases(client, name).get(CHAMPION)
        if before == number:
            return f"{name} version {number} is already the champion"
        client.set_registered_model_alias(name, CHAMPION, number)
        _drop_challenger(client, name, number)
        former = "there was none" if before is None else f"version {before} was the champion"
        at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        client.set_model_version_tag(name, number, PROMOTED, f"by hand at {at}; {former} before")
    back = "" if before is None else f". To go back: forecaster promote {name}/{before}"
    return f"{name} version {number} is the champion; {former} before{back}"


def _chosen(
    client: MlflowClient, reference: str, parts: Mapping[str, str | None]
) -> tuple[str, str]:
    if parts["run"] is not None and (run := find_run(client, parts["run"])):
        if versions := client.search_model_versions(f"run_id='{run}'"):
            newest = max(versions, key=lambda entry: int(entry.version))
            return str(newest.name), str(newest.version)
        raise UsageError(f"the run {run} has registered no model")
    origin = _location(client, parts)[1]
    if parts["version"] is None and parts["alias"] is None:
        what = f"{origin['name']}/VERSION" if origin else "NAME/VERSION, or the id of a run"
        raise UsageError(f"'{reference}' names no version: use {what}")
    return origin["name"], origin["version"]


def download(reference: str, folder: Path) -> dict[str, str]:
    """Copy the files of a bundle out of MLflow; returns its origin in the registry.

    The origin has "name", "version" and "source", the location of its files, and "alias" if an
    alias selected the version; it is empty for runs and models. `reference`: a run id; a registered
    NAME (its champion, else its newest version), NAME@alias or NAME/version; `newest` for the NAME
    that was registered last; the same as models:/... or runs:/... Raises UsageError, naming what
    exists, if the reference does not exist, and UnavailableError when the store cannot be used.
    """
    parts = model_reference(reference)
    with store.asked() as client:
        location, origin = _location(client, parts)
        bundle = {"artifact_uri": f"{location}/{BUNDLE}", "tracking_uri": client.tracking_uri}
        if not list_artifacts(**bundle):
            raise UsageError(f"the model '{reference}' was not made by forecaster: no {BUNDLE}")
        folder.mkdir(parents=True, exist_ok=True)
        came = Path(download_artifacts(**bundle, dst_path=str(folder)))
        for path in came.iterdir():
            path.rename(folder / path.name)
        came.rmdir()
    return origin


def resolve(reference: str) -> dict[str, str]:
    """The current origin of a model as `download` returns it, without the files; raises as it."""
    with store.asked() as client:
        return _location(client, model_reference(reference))[1]


def find_run(client: MlflowClient, id: str, deleted: bool = False) -> str | None:
    """MLflow's id of the run with an id, which may be MLflow's or ours; `deleted` allows a run that
    was deleted if there is no other."""
    with store.accepting("RESOURCE_DOES_NOT_EXIST"):
        if client.get_run(id).info.lifecycle_stage == "active" or deleted:
            return id
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    view = ViewType.ALL if deleted else ViewType.ACTIVE_ONLY
    matches = client.search_runs(experiments, f"tags.`{KEY}` = '{id}'", view)
    matches.sort(key=lambda match: match.info.lifecycle_stage)  # "active" before "deleted"
    return str(matches[0].info.run_id) if matches else None


def _registered(client: MlflowClient) -> list[RegisteredModel]:
    def page(most: int, token: str | None) -> PagedList[RegisteredModel]:
        return client.search_registered_models(f"name LIKE '{PREFIX}%'", most, page_token=token)

    return list(get_results_from_paginated_fn(page, PAGE))


def _newest(client: MlflowClient) -> str:
    """The registered name with the newest version."""
    since = {
        version.creation_timestamp: model.name
        for model in _registered(client)
        for version in model.latest_versions
    }
    if not since:
        first = "forecaster train --attn prob --horizon 336"
        raise UsageError(f"no model is registered yet: train one first ({first})")
    return str(since[max(since)])


def _location(client: MlflowClient, parts: Mapping[str, str | None]) -> tuple[str, dict[str, str]]:
    """The location of a model's artifacts, from the parts of its reference, and its origin."""
    run, model, name = parts["run"], parts["model"], parts["name"]
    alias, version = parts["alias"], parts["version"]
    if run is not None:
        if of_run := find_run(client, run):
            return _location_in_run(client, of_run, parts["part"]), {}
        raise UsageError(f"there is no run {run} in {without_password(client.tracking_uri)}")
    if model is not None:
        with store.accepting("RESOURCE_DOES_NOT_EXIST"):
            return str(client.get_logged_model(model).artifact_location), {}
        raise UsageError(f"there is no model {model} in {without_password(client.tracking_uri)}")
    assert name is not None
    if name == NEWEST:
        name = _newest(client)
    versions = [str(entry.version) for entry in client.search_model_versions(f"name='{name}'")]
    if not versions:
        names = sorted(registered.name for registered in _registered(client))
        raise UsageError(
            f"no model is registered as '{name}'.{did_you_mean(name, names)} "
            f"Known: {', '.join(names) or 'none yet'}."
        )
    origin = {}
    if version is None:
        aliases = _aliases(client, name)
        if alias is not None and alias not in aliases:
            raise _missing(f"'{name}'", f"alias '{alias}'", sorted(aliases))
        alias = alias or CHAMPION
        if alias in aliases:
            origin["alias"] = alias
        version = aliases.get(alias, max(versions, key=int))
    if version not in versions:
        raise _missing(f"'{name}'", f"version {version}", sorted(versions, key=int))
    location = str(client.get_model_version_download_uri(name, version))
    return location, {"name": name, "version": version, **origin, "source": location}


def _location_in_run(client: MlflowClient, run: str, part: str | None) -> str:
    """The newest model of a run, or the one called `part`."""
    info = client.get_run(run).info
    models = client.search_logged_models([info.experiment_id], f"source_run_id = '{run}'")
    chosen = [model for model in models if part in (None, model.name)]
    if not chosen:
        what = f"model {part}" if part else "model"
        names = [model.name for model in models]
        raise _missing(f"the run {run} ({info.status.lower()})", what, names)
    return str(max(chosen, key=lambda model: model.creation_timestamp).artifact_location)


def _missing(owner: str, what: str, known: Sequence[str]) -> UsageError:
    return UsageError(f"{owner} has no {what}. It has: {', '.join(known) or 'none'}.")
