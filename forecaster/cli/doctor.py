"""Report on the installation."""

import os
import sys
from pathlib import Path
from typing import Any

from forecaster.base.version import __version__
from forecaster.cli.options import AsJson
from forecaster.cli.output import print_json, row


def doctor(as_json: AsJson = False) -> None:
    """Report versions, device, folders and known faults.

    Example: forecaster doctor --json
    """
    from importlib.metadata import PackageNotFoundError, version

    import torch
    from packaging.version import Version

    from forecaster.base import extras, installation, machine

    names = ("torch", "lightning", "mlflow-skinny", "pandas", "numpy", "fastapi", "pydantic")
    report: dict[str, Any] = {"forecaster": __version__}
    for name in names:
        try:
            report[name] = version(name)
        except PackageNotFoundError:
            extra = extras.BRINGS.get(name.partition("-")[0])
            report[name] = f"not installed; {extras.ours(extra)} brings it" if extra else "missing"
    device = machine.device("auto")
    report |= {
        "python": sys.version.split()[0],
        "device": machine.processor(device) if device == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "cache": str(installation.cache()),
        "data": os.environ.get("FORECASTER_DATA", "FORECASTER_DATA is not set"),
        "tracking": installation.without_password(installation.tracking_uri()),
    }
    problems = [f"{name} is not installed" for name in names if report[name] == "missing"]
    lightning = report["lightning"]
    if lightning[0].isdigit() and Version(lightning) < Version("2.6.6"):
        problems.append("lightning below 2.6.6 is vulnerable or malicious: upgrade it")
    if "FORECASTER_DATA" in os.environ and not Path(report["data"]).is_dir():
        problems.append(f"FORECASTER_DATA={report['data']}: no such folder")
    report["problems"] = problems
    if as_json:
        print_json(report)
        return
    for name, value in report.items():
        if name != "problems":
            row(name, str(value))
    print("\n".join(f"problem: {problem}" for problem in problems) or "no problem found")
