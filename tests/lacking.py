"""Python where some packages are not installed."""

import subprocess
import sys

SKINNY_LACKS = (
    *("sqlalchemy", "alembic", "flask", "flask_cors", "gunicorn", "docker", "graphene", "huey"),
    *("skops", "aiohttp", "cryptography"),
)
"""Packages that MLflow installs and its slim client does not."""


def lacking(program, *arguments, without, **options):
    """Run a program where some modules cannot be imported."""
    refusal = f"import sys; sys.modules |= dict.fromkeys({sorted(without)})\n"
    return subprocess.run(
        [sys.executable, "-c", refusal + program, *arguments],
        capture_output=True, text=True, check=False, **options,
    )  # fmt: skip
