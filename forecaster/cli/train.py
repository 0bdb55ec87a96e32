"""Train a model, judge one again, show a configuration."""

from typing import Any

from forecaster.cli.options import AsJson, Asked, Device, Model, configured
from forecaster.cli.output import nothing, print_json, say


@configured()
def train(asked: Asked, as_json: AsJson = False) -> None:
    """Train a model, judge it, keep it and track it.

    The model is judged on every test window beside forecasts that need no training, kept as a
    bundle in runs/, and tracked in MLflow.

    Example: forecaster train --attn prob --horizon 336 --data ETTh1
    """
    loaded = asked.load()
    from forecaster import experiment

    result = experiment.run(loaded, say, nothing if as_json else _show)
    if as_json:
        print_json(result.to_dict())
        return
    print(f"\nrun      {result.name}, {result.run_id}")
    print(f"bundle   {result.folder}")
    if result.registered:
        print(f"model    {result.registered}")
    print(f"forecast forecaster predict --model {result.folder}")
    print(f"serve    forecaster serve --model {result.folder}")
    print(f"compare  {result.ui_command}")


def evaluate(model: Model, device: Device = None, as_json: AsJson = False) -> None:
    """Repeat the evaluation of a trained model.

    On every test window, beside forecasts that need no training.

    Example: forecaster evaluate --model forecaster-ETTh1-M-all-336
    """
    from forecaster import machine
    from forecaster.judge import rejudge
    from forecaster.predict import load_bundle

    test = rejudge(load_bundle(model), machine.device(device or "auto")).to_dict()
    if as_json:
        print_json(test)
    else:
        _show(test)


@configured()
def config(asked: Asked, as_json: AsJson = False) -> None:
    """Print the resolved configuration.

    With the place where each value came from. Takes the options of train and trains nothing; what
    it prints can be given to --config.

    Example: forecaster config --attn full --set train.epochs=3
    """
    loaded = asked.load()
    if as_json:
        print_json({"config": loaded.config.to_dict(), "origins": loaded.origins})
        return
    import yaml

    lines = yaml.safe_dump(loaded.config.to_dict(), sort_keys=False).splitlines()
    sections: list[str] = []
    for line in lines:
        depth = (len(line) - len(line.lstrip())) // 2
        sections = [*sections[:depth], line.strip().split(":")[0]]
        origin = loaded.origins.get(".".join(sections))
        print(f"{line:<38}  # {origin}" if origin else line)


def _show(test: dict[str, Any]) -> None:
    from forecaster.evaluate.display import text

    print(f"\n{text(test)}")
