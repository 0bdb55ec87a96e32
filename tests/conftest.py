"""Shape annotations are enforced while testing (jaxtyping and beartype)."""

import torch
from jaxtyping import install_import_hook

install_import_hook(["forecaster.attention", "forecaster.model"], "beartype.beartype")

# Tensors here are tiny: on busy cores a second thread makes a test ten times slower, not faster.
torch.set_num_threads(1)
