"""The contract that every attention fulfils, and the choice of an attention by name.

An attention is a pure function on (B, H, L, E) tensors and a thin module around it that owns
projections, gates, biases and seeds. The keyword-only arguments of its constructor are its options.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal, TypedDict, Unpack

from torch import Tensor, nn

from forecaster.attention.common.kernels import check_visibility
from forecaster.base.errors import UsageError
from forecaster.base.shapes import Bool, Float

Role = Literal["encoder", "decoder", "cross"]


class Seen(TypedDict):
    """Which keys a query sees: the keyword arguments of `Attention.forward`."""

    causal: bool
    key_mask: Tensor | None


@dataclass(frozen=True)
class Place:
    """The position of an attention in a model, with its lengths.

    `depth` counts the layers of its stack from 0. `mix` reinterprets the (B, H, L, E) output as
    (B, L, H*E) without a transpose, as the decoder of Informer2020 does; it exists only for parity.
    `masked` states whether the layer's self-attention is causal; None: in a decoder only.
    """

    width: int
    heads: int
    query_length: int
    key_length: int
    depth: int = 0
    role: Role = "encoder"
    mix: bool = False
    masked: bool | None = None

    def __post_init__(self) -> None:
        if self.heads < 1 or self.width % self.heads:
            raise ValueError(
                f"the width must be a multiple of the heads, got width={self.width}, "
                f"heads={self.heads}"
            )

    @property
    def head_width(self) -> int:
        return self.width // self.heads

    @property
    def causal(self) -> bool:
        return self.role == "decoder" if self.masked is None else self.masked

    def hold(self, queries: int, keys: int, what: str) -> None:
        """Raise ValueError when the input is longer than the place; `what` opens the message."""
        if self.query_length < queries or self.key_length < keys:
            raise ValueError(
                f"{what} for at most {self.query_length} queries and {self.key_length} keys, got "
                f"{queries} queries and {keys} keys; build it for the longer lengths"
            )


@dataclass(frozen=True)
class About:
    """The declared properties of a mechanism.

    `cost` is the time of one layer in the letters of forecaster/base/shapes.py. `causal` states how
    well the masked form hides the future, and whether that form is ours. `random` names what is
    drawn, `weights` what the weights depend on. `no_export` gives the reason why the module cannot
    be exported in evaluation, in every place and for any number of series, by torch.export and to
    ONNX; it is empty when it can. `rows_apart` is True when the output of a query does not depend
    on the other queries. A class that declares nothing gets the worst values.
    """

    paper: str = "none"
    year: int | None = None
    cost: str = "not stated"
    causal: str = "strict"
    random: str = "nothing"
    weights: Literal["content", "positions", "nothing", "not stated"] = "not stated"
    no_export: str = "not stated"
    rows_apart: bool = False


Family = Literal["every pair of steps", "a choice of pairs", "summaries of many steps"]
Draw = Callable[..., Tensor]
"""Draws a standard normal tensor of the given sizes."""
Call = tuple[Callable[..., Tensor], dict[str, Tensor]]
"""A function and the tensors that it takes by name, in addition to `causal`."""


@dataclass(frozen=True)
class Core:
    """How the function of a mechanism is called when it is measured or drawn.

    `build(q, k, v, draw, **options)` returns the call for tensors (B, H, L, E). The function gets
    the options, or the module's defaults. `family` is the group of the mechanism in the plots.
    """

    family: Family
    build: Callable[..., Call]

    @classmethod
    def plain(cls, family: Family, function: Callable[..., Tensor]) -> "Core":
        def build(q: Tensor, k: Tensor, v: Tensor, draw: Draw, **options: Any) -> Call:
            return partial(function, **options), {"q": q, "k": k, "v": v}

        return cls(family, build)


@dataclass(frozen=True)
class Effective:
    """What a mechanism amounts to at the lengths of its place.

    `text` describes it in words; `full` is True when it is full attention.
    """

    text: str
    full: bool = False


class Attention(nn.Module, ABC):
    """Base of the modules: `forward(query, context=None, *, causal=False, key_mask=None)`."""

    about: ClassVar[About] = About()
    core: ClassVar[Core | None] = None
    """None when there is no function to measure."""
    mixes: ClassVar[bool] = True
    """Whether it has the heads of the model, which alone can be mixed with time."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Reset inherited promises: a subclass may break what its base class declares."""
        super().__init_subclass__(**options)
        if "about" not in vars(cls):
            cls.about = replace(cls.about, no_export="not stated", rows_apart=False)

    def __init__(self, place: Place) -> None:
        super().__init__()
        if place.mix and not self.mixes:
            raise ValueError(
                f"{type(self).__name__} does not use the model's heads and cannot mix them with "
                "time: set model.mix=false"
            )
        self.place = place

    def forward(
        self,
        query: Float[Tensor, "B L D"],
        context: Float[Tensor, "B S D"] | None = None,
        *,
        causal: bool = False,
        key_mask: Bool[Tensor, "B S"] | None = None,
    ) -> Float[Tensor, "B L D"]:
        """Attend from `query` to `context`, or to itself when None.

        `causal`: query i sees keys j <= i. `key_mask`: True is a real observation. Raises
        ValueError with the sizes when they do not fit.
        """
        context = self.check_call(query, context, causal, key_mask)
        return self.compute(query, context, causal=causal, key_mask=key_mask)

    def check_call(
        self, query: Tensor, context: Tensor | None, causal: bool, key_mask: Tensor | None
    ) -> Tensor:
        """Return the context to attend to. Raises ValueError with the sizes that do not fit."""
        context = query if context is None else context
        for name, x in (("query", query), ("context", context)):
            if x.ndim != 3 or x.shape[0] != query.shape[0] or x.shape[2] != self.place.width:
                raise ValueError(
                    f"{name} must be (batch, length, {self.place.width}), got {tuple(x.shape)}"
                )
        check_visibility(query.shape[0], query.shape[1], context.shape[1], causal, key_mask)
        return context

    @abstractmethod
    def compute(self, query: Tensor, context: Tensor, **seen: Unpack[Seen]) -> Tensor:
        """Compute what `forward` returns; the arguments are already checked."""

    def amounts_to(self) -> Effective:
        """What the mechanism amounts to at the lengths of its place: by default, its headline."""
        documented = sys.modules[type(self).__module__].__doc__ or type(self).__name__
        return Effective(documented.partition("\n")[0].removesuffix("."))

    def effective(self) -> Effective:
        """`amounts_to` and what is done to queries and keys before that.

        Raises UsageError when it returns anything but an `Effective`.
        """
        effective = self.amounts_to()
        if not isinstance(effective, Effective):
            kind = type(self)
            raise UsageError(
                f"{kind.__module__}.{kind.__name__}.amounts_to() must return "
                f"forecaster.attention.Effective(text, full=...), got {effective!r}; full says "
                "whether it is full attention at these lengths"
            )
        prepared = getattr(self, "query_key", None)  # QueryKey of common/rotary.py
        words = "" if prepared is None else prepared.words
        return Effective(effective.text + words, effective.full and not words)

    def feed_forward(self) -> nn.Module | None:
        """A module (B, L, D) -> (B, L, D) that replaces the layer's feed-forward; None keeps it."""
        return None


class SelfAttention(Attention):
    """Base of the mechanisms that relate a series only to itself and have no cross form."""

    def __init__(self, place: Place) -> None:
        if place.role == "cross":
            raise ValueError(
                f"{type(self).__name__} relates a series to itself and has no cross form for "
                f"{place.query_length} queries and {place.key_length} keys; choose another "
                "attention there, such as full"
            )
        super().__init__(place)

    def check_call(
        self, query: Tensor, context: Tensor | None, causal: bool, key_mask: Tensor | None
    ) -> Tensor:
        if context is not None and context is not query:
            raise ValueError(
                f"{type(self).__name__} relates a series to itself, got a context of shape "
                f"{tuple(context.shape)} in addition to the query {tuple(query.shape)}"
            )
        return super().check_call(query, context, causal, key_mask)


@dataclass(frozen=True)
class AttentionChoice:
    """The name and the options of a mechanism that is not yet built."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)

    def build(self, place: Place) -> Attention:
        """Build the module for `place`.

        Raises UsageError for an unknown name, ValueError for sizes that do not fit.
        """
        from forecaster.attention import CATALOGUE, SYNONYMS
        from forecaster.base.names import find

        _, kind = find(CATALOGUE, self.name, "attention", SYNONYMS)
        return kind(place, **self.options)


@dataclass(frozen=True)
class AttentionPlan:
    encoder: AttentionChoice
    decoder: AttentionChoice
    cross: AttentionChoice = AttentionChoice("full")
