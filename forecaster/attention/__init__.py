"""The attentions: q, k, v -> o. Pure torch; one file is one mechanism.

To add one: write its file (docstring with the formula, pure function, module), import it here and
give it an entry in `ATTENTIONS`. The name in the table is the one on the command line.
"""

from forecaster.attention.base import Attention, AttentionChoice, AttentionPlan, Place, Role
from forecaster.attention.full import FullAttention, full_attention
from forecaster.attention.mean import MeanAttention, mean_attention
from forecaster.attention.multihead import MultiHeadAttention
from forecaster.attention.none import NoAttention
from forecaster.attention.plugins import Catalogue
from forecaster.attention.prob import ProbSparseAttention, prob_counts, prob_sparse_attention
from forecaster.attention.topk import TopKAttention, topk_attention

ATTENTIONS: dict[str, type[Attention]] = {
    "full": FullAttention,
    "prob": ProbSparseAttention,
    "topk": TopKAttention,
    "mean": MeanAttention,
    "none": NoAttention,
}

CATALOGUE = Catalogue(ATTENTIONS)
"""`ATTENTIONS` and what other installed packages offer: what --attn takes."""

# What people also call them; only suggested, and only if the table holds what is meant.
SYNONYMS = {
    "probsparse": "prob",
    "informer": "prob",
    "softmax": "full",
    "vanilla": "full",
    "dot": "full",
    "uniform": "mean",
    "logtrans": "logsparse",
    "reformer": "lsh",
    "sparse": "strided",
    "additive": "fastformer",
    "aft": "aft-full",
}

__all__ = [
    "ATTENTIONS",
    "CATALOGUE",
    "SYNONYMS",
    "Attention",
    "AttentionChoice",
    "AttentionPlan",
    "FullAttention",
    "MeanAttention",
    "MultiHeadAttention",
    "NoAttention",
    "Place",
    "ProbSparseAttention",
    "Role",
    "TopKAttention",
    "full_attention",
    "mean_attention",
    "prob_counts",
    "prob_sparse_attention",
    "topk_attention",
]
