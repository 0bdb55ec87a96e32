"""Shape annotations are enforced while testing (jaxtyping and beartype)."""

from jaxtyping import install_import_hook

install_import_hook(["forecaster.attention", "forecaster.model"], "beartype.beartype")
