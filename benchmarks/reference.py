"""A plain Informer by its published arithmetic, with which benchmarks/step.py compares ours.

Zhou et al., "Informer: Beyond Efficient Transformer for Long Sequence Time-Series Forecasting",
AAAI 2021. Where the paper is silent it follows the authors' public code: every ProbSparse layer
draws new keys in each call and gathers them, position-wise layers are convolutions of width 1, and
the decoder works on all of its rows, of which the last T are kept. This is an independent
implementation that is not optimised for speed; it has the same inputs and outputs as ours, but the
two cannot exchange weights.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Informer(nn.Module):
    """From values (B, P, C) and calendars (B, P, F) and (B, T, F) to forecasts (B, T, C)."""

    def __init__(
        self, columns: int, known: int, start: int, horizon: int, width: int, heads: int,
        inner: int, encoder_layers: int, decoder_layers: int, dropout: float, factor: int,
    ) -> None:  # fmt: skip
        super().__init__()
        self.start, self.horizon = start, horizon
        self.encoder_embedding = Embedding(columns, known, width, dropout)
        self.decoder_embedding = Embedding(columns, known, width, dropout)
        self.encoder = nn.ModuleList()
        for layer in range(encoder_layers):
            attention = Heads(width, heads, Prob(factor, causal=False))
            self.encoder.append(EncoderLayer(attention, width, inner, dropout))
            if layer < encoder_layers - 1:
                self.encoder.append(Distil(width))
        self.encoder_norm = nn.LayerNorm(width)
        self.decoder = nn.ModuleList(
            DecoderLayer(
                Heads(width, heads, Prob(factor, causal=True), mix=True),
                Heads(width, heads, Full(dropout)),
                width,
                inner,
                dropout,
            )
            for _ in range(decoder_layers)
        )
        self.decoder_norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, columns)

    def forward(self, past: Tensor, past_known: Tensor, future_known: Tensor) -> Tensor:
        x = self.encoder_embedding(past, past_known)
        for layer in self.encoder:
            x = layer(x)
        memory = self.encoder_norm(x)
        zeros = past.new_zeros(len(past), self.horizon, past.shape[2])
        values = torch.cat([past[:, -self.start :], zeros], dim=1)
        known = torch.cat([past_known[:, -self.start :], future_known], dim=1)
        y = self.decoder_embedding(values, known)
        for layer in self.decoder:
            y = layer(y, memory)
        forecast: Tensor = self.output(self.decoder_norm(y))
        return forecast[:, -self.horizon :]


class Embedding(nn.Module):
    """Value convolution, sinusoids and a linear map of the calendar."""

    table: Tensor

    def __init__(self, columns: int, known: int, width: int, dropout: float) -> None:
        super().__init__()
        self.value = nn.Conv1d(columns, width, 3, padding=1, padding_mode="circular")
        self.calendar = nn.Linear(known, width, bias=False)
        self.dropout = nn.Dropout(dropout)
        angle = torch.arange(5000.0)[:, None] * torch.exp(
            torch.arange(0.0, width, 2) * (-math.log(10000.0) / width)
        )
        table = torch.stack([angle.sin(), angle.cos()], dim=2).flatten(1)
        self.register_buffer("table", table)

    def forward(self, values: Tensor, known: Tensor) -> Tensor:
        value = self.value(values.permute(0, 2, 1)).transpose(1, 2)
        x: Tensor = self.dropout(value + self.table[: values.shape[1]] + self.calendar(known))
        return x


class Prob(nn.Module):
    """ProbSparse attention on (B, L, H, E) tensors: algorithm 1, line by line."""

    def __init__(self, factor: int, causal: bool) -> None:
        super().__init__()
        self.factor, self.causal = factor, causal

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = q.transpose(2, 1), k.transpose(2, 1), v.transpose(2, 1)
        B, H, L, E = q.shape
        S = k.shape[2]
        u, U = (min(n, self.factor * math.ceil(math.log(n))) for n in (L, S))
        drawn = torch.randint(S, (L, U))
        gathered = k.unsqueeze(2).expand(B, H, L, S, E)[:, :, torch.arange(L)[:, None], drawn]
        sampled = (q.unsqueeze(3) @ gathered.transpose(3, 4)).squeeze(3)
        measure = sampled.max(3).values - sampled.sum(3) / S
        top = measure.topk(u, sorted=False).indices
        series, head = torch.arange(B)[:, None, None], torch.arange(H)[None, :, None]
        scores = q[series, head, top] @ k.transpose(2, 3) / math.sqrt(E)
        if self.causal:
            scores = scores.masked_fill(torch.arange(S) > top.unsqueeze(3), -math.inf)
            context = v.cumsum(2)
        else:
            context = v.mean(2, keepdim=True).expand(B, H, L, E).clone()
        context[series, head, top] = torch.softmax(scores, dim=3) @ v
        return context.transpose(2, 1).contiguous()


class Full(nn.Module):
    """Softmax attention on (B, L, H, E) tensors, with dropout of the weights."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = torch.einsum("blhe,bshe->bhls", q, k) / math.sqrt(q.shape[3])
        weights = self.dropout(torch.softmax(scores, dim=3))
        return torch.einsum("bhls,bshe->blhe", weights, v).contiguous()


class Heads(nn.Module):
    """The projections around an attention; `mix` reads its heads as time, as the decoder does."""

    def __init__(self, width: int, heads: int, inner: nn.Module, mix: bool = False) -> None:
        super().__init__()
        self.heads, self.inner, self.mix = heads, inner, mix
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        q, k, v = (
            layer(source).view(*source.shape[:2], self.heads, -1)
            for layer, source in ((self.query, x), (self.key, context), (self.value, context))
        )
        out = self.inner(q, k, v)
        if self.mix:
            out = out.transpose(2, 1).contiguous()
        projected: Tensor = self.out(out.view(*x.shape))
        return projected


class Thinking(nn.Module):
    """The position-wise layers, as convolutions of width 1."""

    def __init__(self, width: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Conv1d(width, inner, 1), nn.Conv1d(inner, width, 1)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.dropout(F.gelu(self.wide(x.transpose(1, 2))))
        return self.dropout(self.narrow(inner).transpose(1, 2))


class EncoderLayer(nn.Module):
    def __init__(self, attention: Heads, width: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.attention, self.think = attention, Thinking(width, inner, dropout)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norms[0](x + self.dropout(self.attention(x, x)))
        return self.norms[1](x + self.think(x))


class DecoderLayer(nn.Module):
    def __init__(
        self, attention: Heads, cross: Heads, width: int, inner: int, dropout: float
    ) -> None:
        super().__init__()
        self.attention, self.cross = attention, cross
        self.think = Thinking(width, inner, dropout)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        x = self.norms[0](x + self.dropout(self.attention(x, x)))
        x = self.norms[1](x + self.dropout(self.cross(x, memory)))
        return self.norms[2](x + self.think(x))


class Distil(nn.Module):
    """Convolution, batch norm, ELU and a maximum of stride 2."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(width, width, 3, padding=1, padding_mode="circular")
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x: Tensor) -> Tensor:
        x = F.elu(self.norm(self.conv(x.permute(0, 2, 1))))
        return F.max_pool1d(x, 3, stride=2, padding=1).transpose(1, 2)
