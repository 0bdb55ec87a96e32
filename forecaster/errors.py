"""Where users import the errors from; `forecaster.base.errors` has their tree."""

from forecaster.base.errors import *  # noqa: F403
