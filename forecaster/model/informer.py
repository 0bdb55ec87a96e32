"""The Informer (Zhou et al., AAAI 2021, sec. 3 and 4), with the attention left open.

The encoder reads the past, with distilling between its layers, optionally as a stack of encoders
on ever shorter ends of the past (sec. 4.1). The decoder reads the last `start` known steps followed
by `horizon` zeros, and one forward pass gives the whole forecast (sec. 4.2).

Unlike the authors' code, this one merges the decoder's heads correctly (`mix=True` restores their
reinterpretation of heads as time), and position tables have the length they need.
"""

import torch
from torch import Tensor, nn

from forecaster.attention.base import AttentionPlan, Place
from forecaster.attention.common.kernels import at_least_one
from forecaster.base.shapes import Bool, Float
from forecaster.model.base import ForecastModel, Task
from forecaster.model.blocks import Activation, DecoderLayer, Distil, EncoderLayer
from forecaster.model.embedding import Embedding


class Informer(ForecastModel):
    """Encoder-decoder over time steps.

    Args:
        width, heads: D and H.
        feed_forward: inner width of the feed-forward layers.
        encoder_layers: layers of the encoder; several numbers make a stack of encoders, where
            the i-th number is the layers of the encoder that reads the last P / 2^i steps.
        dropout: probability everywhere except inside the attention weights.
        distil: halve the sequence between encoder layers.
        mix: reinterpret heads as time in the decoder's self-attention, as the authors' code does.
    """

    def __init__(
        self,
        task: Task,
        attention: AttentionPlan,
        *,
        width: int = 512,
        heads: int = 8,
        feed_forward: int = 2048,
        encoder_layers: int | tuple[int, ...] = 2,
        decoder_layers: int = 1,
        dropout: float = 0.05,
        activation: Activation = "gelu",
        distil: bool = True,
        mix: bool = False,
    ) -> None:
        super().__init__(task)
        if not 0 < task.start <= task.past:
            raise ValueError(
                f"the decoder starts with known steps: it needs 1 <= window.start <= window.past, "
                f"got window.start={task.start}, window.past={task.past}"
            )
        stack = encoder_layers if isinstance(encoder_layers, tuple) else (encoder_layers,)
        at_least_one(encoders=len(stack), decoder_layers=decoder_layers)
        embed = (task.columns, task.calendar + task.covariates)
        self.encoder_embedding = Embedding(*embed, task.past, width, dropout)
        self.encoders = nn.ModuleList()
        memory, settings = 0, (feed_forward, dropout, activation)
        for index, layers in enumerate(stack):
            past = task.past // 2**index
            encoder = Encoder(attention, past, layers, width, heads, distil, settings)
            memory += encoder.memory
            self.encoders.append(encoder)

        decoded = task.start + task.horizon
        self.decoder_embedding = Embedding(*embed, decoded, width, dropout)
        self.decoder = nn.ModuleList()
        for depth in range(decoder_layers):
            place = Place(width, heads, decoded, decoded, depth, "decoder", mix=mix)
            across = Place(width, heads, decoded, memory, depth, "cross")
            masked, cross = attention.decoder.build(place), attention.cross.build(across)
            self.decoder.append(DecoderLayer(masked, cross, *settings))
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, len(task.targets))

    def forward(
        self,
        past: Float[Tensor, "b p c"],
        past_known: Float[Tensor, "b p f"],
        future_known: Float[Tensor, "b t f"],
        observed: Bool[Tensor, "b p c"] | None = None,
    ) -> Float[Tensor, "b t targets"]:
        task = self.task
        real = decoded_real = None
        if observed is not None:
            past = past.masked_fill(~observed, 0.0)
            real = observed.any(dim=2)
            ahead = real.new_ones(real.shape[0], task.horizon)
            decoded_real = torch.cat([real[:, -task.start :], ahead], dim=1)
        embedded = self.encoder_embedding(past, past_known)
        encoded, masks = zip(*(encoder(embedded, real) for encoder in self.encoders), strict=True)
        memory = torch.cat(encoded, dim=1)
        memory_real = None if real is None else torch.cat(masks, dim=1)

        unknown = past.new_zeros(past.shape[0], task.horizon, task.columns)
        values = torch.cat([past[:, -task.start :], unknown], dim=1)
        known = torch.cat([past_known[:, -task.start :], future_known], dim=1)
        x = self.decoder_embedding(values, known)
        for depth, layer in enumerate(self.decoder, 1):
            last = task.horizon if depth == len(self.decoder) else 0
            x = layer(x, memory, decoded_real, memory_real, last)
        return self.output(self.norm(x))  # type: ignore[no-any-return]


class Encoder(nn.Module):
    """Layers with distilling between them, over the last `length` steps of the input.

    `memory` is the number of output steps.
    """

    def __init__(
        self,
        attention: AttentionPlan,
        length: int,
        layers: int,
        width: int,
        heads: int,
        distil: bool,
        settings: tuple[int, float, Activation],
    ) -> None:
        super().__init__()
        if layers < 1 or length < 1:
            raise ValueError(
                f"an encoder needs at least one layer and one step, got layers={layers}, "
                f"steps={length}; shorten the stack in model.encoder_layers or raise window.past"
            )
        self.length = length
        self.steps = nn.ModuleList()
        for depth in range(layers):
            place = Place(width, heads, length, length, depth, "encoder")
            self.steps.append(EncoderLayer(attention.encoder.build(place), *settings))
            if distil and depth < layers - 1:
                self.steps.append(Distil(width))
                length = Distil.length(length)
        self.norm = nn.LayerNorm(width)
        self.memory = length

    def forward(
        self, x: Float[Tensor, "b p d"], key_mask: Bool[Tensor, "b p"] | None = None
    ) -> tuple[Float[Tensor, "b s d"], Bool[Tensor, "b s"] | None]:
        """The encoded steps, and the mask of the real ones among them."""
        x = x[:, -self.length :]
        real = None if key_mask is None else key_mask[:, -self.length :]
        for step in self.steps:
            x = step(x, real)
            if real is not None and isinstance(step, Distil):
                real = step.real(real)
        return self.norm(x), real
