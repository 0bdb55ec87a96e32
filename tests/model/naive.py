"""The skeletons written from their formulas, for one series at a time, in float64.

`w` holds a model's weights by their names in its state dict; `observed` and `real` are as the
skeletons have them, and None where nothing is missing.
"""

import math
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor

from forecaster.attention.common.definitions import attend

Weights = dict[str, Tensor]


def weights(module: torch.nn.Module) -> Weights:
    return {name: value.detach().double() for name, value in module.state_dict().items()}


def linear(w: Weights, name: str, x: Tensor) -> Tensor:
    return F.linear(x, w[f"{name}.weight"], w.get(f"{name}.bias"))


def layer_norm(w: Weights, name: str, x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[1:], w[f"{name}.weight"], w.get(f"{name}.bias"))


def circular_conv(w: Weights, name: str, x: Tensor) -> Tensor:
    """Width 3; the step before the first is the last, the step after the last the first."""
    around = torch.cat([x[-1:], x, x[:1]]).T
    return F.conv1d(around, w[f"{name}.weight"], w[f"{name}.bias"]).T


def position(t: int, d: int, width: int) -> float:
    angle = t / 10000 ** ((d - d % 2) / width)
    return math.cos(angle) if d % 2 else math.sin(angle)


def embedding(w: Weights, name: str, values: Tensor, calendar: Tensor) -> Tensor:
    value = circular_conv(w, f"{name}.value", values)
    length, width = value.shape
    table = [[position(t, d, width) for d in range(width)] for t in range(length)]
    return value + torch.tensor(table) + linear(w, f"{name}.calendar", calendar)


def attention(
    w: Weights, name: str, x: Tensor, context: Tensor, heads: int, real: Tensor, **how: bool
) -> Tensor:
    pairs = ("query", x), ("key", context), ("value", context)
    projected = (linear(w, f"{name}.{each}_projection", rows) for each, rows in pairs)
    q, k, v = (torch.stack(each.chunk(heads, dim=1))[None] for each in projected)
    seen = real.expand(1, 1, len(x), len(context))
    (out,) = attend(q, k, v, seen.tril() if how.get("causal") else seen)
    merged = out.transpose(0, 1).flatten(1)
    if how.get("mix"):  # the numbers in memory order, cut into rows
        merged = out.contiguous().view(merged.shape)
    return linear(w, f"{name}.out_projection", merged)


def feed_forward(w: Weights, name: str, x: Tensor, activation: str = "gelu") -> Tensor:
    act = F.gelu if activation == "gelu" else F.relu
    return linear(w, f"{name}.3", act(linear(w, f"{name}.0", x)))


def distilled(w: Weights, name: str, x: Tensor, real: Tensor) -> Tensor:
    x = circular_conv(w, f"{name}.conv", torch.where(real[:, None], x, 0))
    names = ("running_mean", "running_var", "weight", "bias")
    x = F.elu(F.batch_norm(x, *(w[f"{name}.norm.{each}"] for each in names)))
    x = torch.where(real[:, None], x, -1)
    return torch.stack([x[pool].max(dim=0).values for pool in pools(len(x))])


def pools(length: int) -> list[slice]:
    return [slice(max(0, 2 * t - 1), 2 * t + 2) for t in range(math.ceil(length / 2))]


def informer(
    w: Weights,
    past: Tensor,
    past_known: Tensor,
    future_known: Tensor,
    observed: Tensor | None = None,
    *,
    start: int,
    heads: int,
    encoder_layers: int | tuple[int, ...] = 2,
    decoder_layers: int = 1,
    distil: bool = True,
    activation: str = "gelu",
    mix: bool = False,
) -> Tensor:
    if observed is None:
        observed = torch.ones_like(past, dtype=torch.bool)
    past = torch.where(observed, past, 0)
    embedded = embedding(w, "encoder_embedding", past, past_known)
    memory, memory_real = [], []
    stacks = encoder_layers if isinstance(encoder_layers, tuple) else (encoder_layers,)
    for e, layers in enumerate(stacks):
        begin = len(embedded) - len(embedded) // 2**e
        x, real = embedded[begin:], observed[begin:].any(dim=1)
        number = 0
        for layer in range(layers):
            name = f"encoders.{e}.steps.{number}"
            a = attention(w, f"{name}.attention", x, x, heads, real)
            x = layer_norm(w, f"{name}.norm_attention", x + a)
            f = feed_forward(w, f"{name}.feed_forward", x, activation)
            x = layer_norm(w, f"{name}.norm_feed_forward", x + f)
            number += 1
            if distil and layer < layers - 1:
                x = distilled(w, f"encoders.{e}.steps.{number}", x, real)
                real = torch.stack([real[pool].any() for pool in pools(len(real))])
                number += 1
        memory.append(layer_norm(w, f"encoders.{e}.norm", x))
        memory_real.append(real)
    seen, seen_real = torch.cat(memory), torch.cat(memory_real)

    horizon = len(future_known)
    values = torch.cat([past[len(past) - start :], torch.zeros(horizon, past.shape[1])])
    marks = torch.cat([past_known[len(past) - start :], future_known])
    opening = observed[len(past) - start :].any(dim=1)
    real = torch.cat([opening, torch.ones(horizon, dtype=torch.bool)])
    x = embedding(w, "decoder_embedding", values, marks)
    for layer in range(decoder_layers):
        name = f"decoder.{layer}"
        a = attention(w, f"{name}.attention", x, x, heads, real, causal=True, mix=mix)
        x = layer_norm(w, f"{name}.norm_attention", x + a)
        c = attention(w, f"{name}.cross", x, seen, heads, seen_real)
        x = layer_norm(w, f"{name}.norm_cross", x + c)
        f = feed_forward(w, f"{name}.feed_forward", x, activation)
        x = layer_norm(w, f"{name}.norm_feed_forward", x + f)
    return linear(w, "output", layer_norm(w, "norm", x))[start:]


def cycle(
    w: Weights,
    past: Tensor,
    observed: Tensor,
    *,
    season: int,
    parts: int,
    horizon: int,
    heads: int,
    centre: str,
) -> Tensor:
    """One column: past (P,) -> (T,); one encoder layer."""
    cycles, steps = len(past) // season, season // parts
    window, there = (x[len(past) - cycles * season :] for x in (past, observed))
    seen = window[there]
    recent = {"cycle": window[-season:][there[-season:]], "last": seen[-1:], "window": seen}[centre]
    mean = seen.mean() if len(seen) else torch.zeros(())
    level = recent.mean() if len(recent) else mean
    spread = torch.sqrt(((seen - mean) ** 2).sum() / max(len(seen), 1)) + 0.01
    window = torch.where(there, (window - level) / spread, 0)
    cells = there.reshape(cycles * parts, steps)

    tokens = torch.stack([window[i * steps : (i + 1) * steps] for i in range(cycles * parts)])
    x = linear(w, "embed", tokens) + w["positions"]
    normed = layer_norm(w, "encoder.0.norm_attention", x)
    real = cells.any(dim=1)
    x = x + attention(w, "encoder.0.attention", normed, normed, heads, real)
    normed = layer_norm(w, "encoder.0.norm_feed_forward", x)
    x = x + feed_forward(w, "encoder.0.feed_forward", normed)
    ahead = cycle_average(w, "average.", layer_norm(w, "norm", x), tokens, cells).flatten()
    if "linear.weight" in w:
        ahead = ahead[:horizon] + w["linear.weight"] @ window
    return ahead[:horizon] * spread + level


def cycle_average(
    w: Weights, name: str, encoded: Tensor, tokens: Tensor, there: Tensor, *state: Tensor
) -> Tensor:
    """(future tokens, steps): the mean of the observed values of the past tokens of each part."""
    query, keys = w[f"{name}query"], linear(w, f"{name}key", encoded)
    heads, cycles, parts, width = query.shape
    ahead = []
    for cycle, part in product(range(cycles), range(parts)):
        value = torch.zeros(tokens.shape[1])
        for h in range(heads):
            head, alike = slice(h * width, (h + 1) * width), slice(part, None, parts)
            asked = query[h, cycle, part]
            for each in state:
                asked = asked + linear(w, f"{name}project", each[cycle * parts + part])[head]
            scores = keys[alike, head] @ asked / math.sqrt(width) + w[f"{name}bias"][h, cycle, part]
            share = scores.exp()[:, None] * there[alike]
            share = share / share.sum(0).clamp(min=1e-12)
            value = value + w[f"{name}mixture"][h] * (share * tokens[alike]).sum(0)
        ahead.append(value)
    return torch.stack(ahead)
