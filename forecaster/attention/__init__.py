"""The attentions: q, k, v -> o. Pure torch; imports `base` alone. Begin reading with `full`.

Each file holds one mechanism, except `base` (the contract) and `plugins` (mechanisms of other
packages). `common/` holds what several mechanisms share. To add one, write its file (docstring with
the formula, definition, pure function, module), import it here and name it in `ATTENTIONS`, as on
the command line; with underscores, that is the name of its file. Classes and functions are imported
when they are first used, so that listing the names does not import torch.
"""

from collections.abc import MutableMapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from forecaster.attention.plugins import Catalogue, LazyTable

if TYPE_CHECKING:
    from forecaster.attention.aft_conv import AFTConvAttention, aft_conv_attention, aft_conv_kernel
    from forecaster.attention.aft_full import AFTFullAttention, aft_attention
    from forecaster.attention.aft_local import AFTLocalAttention, aft_local_attention
    from forecaster.attention.aft_simple import AFTSimpleAttention, aft_simple_attention
    from forecaster.attention.base import (
        About,
        Attention,
        AttentionChoice,
        AttentionPlan,
        Effective,
        Place,
        Role,
    )
    from forecaster.attention.common.multihead import MultiHeadAttention
    from forecaster.attention.delta import GatedDeltaAttention, gated_delta_attention
    from forecaster.attention.diff import DifferentialAttention, differential_attention, lambda_init
    from forecaster.attention.fastformer import FastformerAttention, additive_attention
    from forecaster.attention.fixed import FixedAttention, fixed_attention
    from forecaster.attention.flash import MixedChunkAttention, mixed_chunk_attention
    from forecaster.attention.forgetting import ForgettingAttention, forgetting_attention
    from forecaster.attention.full import FullAttention, full_attention
    from forecaster.attention.gated import GatedAttention, gated_attention
    from forecaster.attention.gau import GatedAttentionUnit, relu_squared_attention
    from forecaster.attention.logsparse import (
        LogSparseAttention,
        log_sparse_attention,
        log_sparse_offsets,
    )
    from forecaster.attention.lsh import LSHAttention, lsh_attention, lsh_buckets
    from forecaster.attention.mean import MeanAttention, mean_attention
    from forecaster.attention.none import NoAttention
    from forecaster.attention.position_prior import (
        PositionPriorAttention,
        position_prior_attention,
    )
    from forecaster.attention.prob import ProbSparseAttention, prob_counts, prob_sparse_attention
    from forecaster.attention.retention import RetentionAttention, retention_attention
    from forecaster.attention.single import SingleHeadAttention, single_head_attention
    from forecaster.attention.sliding import SlidingAttention, sliding_attention
    from forecaster.attention.ssd import StateSpaceAttention, state_space_attention
    from forecaster.attention.static import StaticAttention, static_attention
    from forecaster.attention.strided import StridedAttention, strided_attention
    from forecaster.attention.topk import TopKAttention, topk_attention

ATTENTIONS: "MutableMapping[str, type[Attention]]" = LazyTable(
    [
        "full", "prob", "logsparse", "lsh", "strided", "fixed", "topk", "single", "fastformer",
        "gau", "flash", "diff", "aft-full", "aft-local", "aft-simple", "aft-conv", "gated",
        "sliding", "forgetting", "retention", "delta", "ssd", "position-prior", "static", "mean",
        "none",
    ]
)  # fmt: skip
"""The module of each mechanism by its name: the one class of its file that is an `Attention`."""

CATALOGUE = Catalogue(ATTENTIONS)
"""`ATTENTIONS` and the mechanisms of other installed packages: the values of --attn."""

CONTROLS = ("static", "mean", "none")
"""The controls of a comparison; in a measurement they dominate nothing."""

# Other common names; they are only suggested, and only if the table holds the mechanism.
SYNONYMS = {
    **dict.fromkeys(("probsparse", "informer"), "prob"),
    **dict.fromkeys(("softmax", "vanilla", "dot"), "full"),
    **{"uniform": "mean", "normlin": "static", "logtrans": "logsparse", "reformer": "lsh"},
    **{"sparse": "strided", "additive": "fastformer", "aft": "aft-full", "fox": "forgetting"},
    **dict.fromkeys(("longformer", "streaming", "window", "local"), "sliding"),
    **{"retnet": "retention", "deltanet": "delta", "mamba": "ssd", "mamba2": "ssd"},
    **{"synthesizer": "position-prior"},
}

__all__ = [
    "ATTENTIONS", "CATALOGUE", "CONTROLS", "SYNONYMS", "AFTConvAttention", "AFTFullAttention",
    "AFTLocalAttention", "AFTSimpleAttention", "About", "Attention", "AttentionChoice",
    "AttentionPlan", "DifferentialAttention", "Effective", "FastformerAttention",
    "FixedAttention", "ForgettingAttention", "FullAttention", "GatedAttention",
    "GatedAttentionUnit", "GatedDeltaAttention", "LSHAttention", "LogSparseAttention",
    "MeanAttention", "MixedChunkAttention", "MultiHeadAttention", "NoAttention", "Place",
    "PositionPriorAttention", "ProbSparseAttention", "RetentionAttention", "Role",
    "SingleHeadAttention", "SlidingAttention", "StateSpaceAttention", "StaticAttention",
    "StridedAttention", "TopKAttention", "additive_attention", "aft_attention",
    "aft_conv_attention", "aft_conv_kernel", "aft_local_attention", "aft_simple_attention",
    "differential_attention", "fixed_attention", "forgetting_attention", "full_attention",
    "gated_attention", "gated_delta_attention", "lambda_init", "log_sparse_attention",
    "log_sparse_offsets", "lsh_attention", "lsh_buckets", "mean_attention",
    "mixed_chunk_attention", "position_prior_attention", "prob_counts", "prob_sparse_attention",
    "relu_squared_attention", "retention_attention", "single_head_attention",
    "sliding_attention", "state_space_attention", "static_attention", "strided_attention",
    "topk_attention",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    files = (attn.replace("-", "_") for attn in ATTENTIONS)
    for file in ("base", "common.multihead", *files) if name in __all__ else ():
        module = import_module(f"{__name__}.{file}")
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
