"""The Informer's embedding: value, position and calendar, summed (Zhou et al. 2021, app. B).

Covariates known ahead are read together with the calendar.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from forecaster.base.shapes import Float
from forecaster.model.dropout import Dropout


def sinusoids(length: int, width: int) -> Float[Tensor, "length width"]:
    """pe[t, 2k] = sin(a) and pe[t, 2k+1] = cos(a) with a = t * 10000^(-2k/D); D must be even."""
    if width % 2:
        raise ValueError(f"a sinusoid table needs an even width, got width={width}")
    # in float64, because float32 is off by 1e-3 after some ten thousand steps
    exact = torch.float64
    frequency = torch.exp(torch.arange(0, width, 2, dtype=exact) * (-math.log(10000.0) / width))
    angle = torch.arange(length, dtype=exact)[:, None] * frequency
    table = torch.stack([angle.sin(), angle.cos()], dim=-1).reshape(length, width)
    return table.to(torch.get_default_dtype())


def circular_conv(channels_in: int, channels_out: int) -> nn.Conv1d:
    """The width-3 circular convolution of the value embedding and of the distilling."""
    return nn.Conv1d(channels_in, channels_out, kernel_size=3, padding=1, padding_mode="circular")


class Embedding(nn.Module):
    """Value convolution + sinusoidal positions + a linear map of the known features.

    The circular padding connects the first step with the last; it is kept because all published
    results of the Informer use it. Positions are sized by `length`, not by a constant.
    """

    positions: Tensor

    def __init__(self, columns: int, known: int, length: int, width: int, dropout: float) -> None:
        super().__init__()
        self.value = circular_conv(columns, width)
        nn.init.kaiming_normal_(self.value.weight, a=0.01, nonlinearity="leaky_relu")
        self.register_buffer("positions", sinusoids(length, width), persistent=False)
        self.calendar = nn.Linear(known, width)
        self.dropout = Dropout(dropout)

    def forward(
        self, values: Float[Tensor, "b l c"], known: Float[Tensor, "b l f"]
    ) -> Float[Tensor, "b l d"]:
        # convolution and map as one product with few columns: each step reads its neighbours
        around = [values.roll(1, dims=1), values, values.roll(-1, dims=1), known]
        kernel = self.value.weight.transpose(1, 2).flatten(1)
        weight = torch.cat([kernel, self.calendar.weight], dim=1)
        assert self.value.bias is not None
        bias = self.value.bias + self.calendar.bias
        summed = F.linear(torch.cat(around, dim=2), weight, bias)
        return self.dropout(summed + self.positions[: values.shape[1]])  # type: ignore[no-any-return]
