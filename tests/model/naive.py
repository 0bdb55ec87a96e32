"""The skeletons written from their formulas, with loops over one series at a time, in float64.

`w` holds a model's weights by their names in its state dict; `observed` and `real` are as the
skeletons have them, and None where nothing is missing.
"""

import math

import torch
from torch import Tensor

Weights = dict[str, Tensor]


def weights(module: torch.nn.Module) -> Weights:
    return {name: value.detach().double() for name, value in module.state_dict().items()}


def linear(w: Weights, name: str, x: Tensor) -> Tensor:
    bias = w.get(f"{name}.bias", torch.zeros(()))
    return torch.stack([w[f"{name}.weight"] @ step + bias for step in x])


def layer_norm(w: Weights, name: str, x: Tensor) -> Tensor:
    scale, shift = w[f"{name}.weight"], w.get(f"{name}.bias", torch.zeros(()))
    rows = []
    for step in x:
        centred = step - step.mean()
        rows.append(centred / torch.sqrt((centred**2).mean() + 1e-5) * scale + shift)
    return torch.stack(rows)


def circular_conv(w: Weights, name: str, x: Tensor) -> Tensor:
    """Width 3; the step before the first is the last, the step after the last the first."""
    kernel, length = w[f"{name}.weight"], len(x)
    return torch.stack(
        [
            w[f"{name}.bias"] + sum(kernel[:, :, j] @ x[(t + j - 1) % length] for j in range(3))
            for t in range(length)
        ]
    )


def position(t: int, d: int, width: int) -> float:
    angle = t / 10000 ** ((d - d % 2) / width)
    return math.cos(angle) if d % 2 else math.sin(angle)


def embedding(w: Weights, name: str, values: Tensor, calendar: Tensor) -> Tensor:
    value = circular_conv(w, f"{name}.value", values)
    length, width = value.shape
    table = [[position(t, d, width) for d in range(width)] for t in range(length)]
    return value + torch.tensor(table) + linear(w, f"{name}.calendar", calendar)


def attention(
    w: Weights,
    name: str,
    x: Tensor,
    context: Tensor,
    heads: int,
    causal: bool,
    mix: bool = False,
    real: Tensor | None = None,
) -> Tensor:
    q = linear(w, f"{name}.query_projection", x)
    k = linear(w, f"{name}.key_projection", context)
    v = linear(w, f"{name}.value_projection", context)
    width = q.shape[1] // heads
    out = torch.zeros(heads, len(x), width)
    for h in range(heads):
        part = slice(h * width, (h + 1) * width)
        for i in range(len(x)):
            keys = [j for j in range(i + 1 if causal else len(context)) if real is None or real[j]]
            if not keys:
                continue
            scores = torch.stack([q[i, part] @ k[j, part] / math.sqrt(width) for j in keys])
            share = scores.exp() / scores.exp().sum()
            out[h, i] = sum(share[n] * v[j, part] for n, j in enumerate(keys))
    merged = torch.zeros(len(x), heads * width)
    for h in range(heads):
        for i in range(len(x)):
            for e in range(width):
                if mix:  # the numbers in memory order, cut into rows
                    row, column = divmod((h * len(x) + i) * width + e, heads * width)
                else:
                    row, column = i, h * width + e
                merged[row, column] = out[h, i, e]
    return linear(w, f"{name}.out_projection", merged)


def feed_forward(w: Weights, name: str, x: Tensor, activation: str = "gelu") -> Tensor:
    inner = linear(w, f"{name}.0", x)
    if activation == "gelu":
        inner = inner * (1 + torch.erf(inner / math.sqrt(2))) / 2
    else:
        inner = inner.clamp(min=0)
    return linear(w, f"{name}.3", inner)


def distil(w: Weights, name: str, x: Tensor, real: Tensor | None = None) -> Tensor:
    if real is not None:
        x = torch.where(real[:, None], x, 0)
    x = circular_conv(w, f"{name}.conv", x)
    scale = w[f"{name}.norm.weight"] / torch.sqrt(w[f"{name}.norm.running_var"] + 1e-5)
    x = (x - w[f"{name}.norm.running_mean"]) * scale + w[f"{name}.norm.bias"]
    x = torch.where(x > 0, x, x.exp() - 1)
    if real is not None:
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
    encoder_layers: tuple[int, ...],
    decoder_layers: int,
    distilling: bool,
    activation: str,
    mix: bool,
) -> Tensor:
    if observed is None:
        observed = torch.ones_like(past, dtype=torch.bool)
    past = torch.where(observed, past, 0)
    embedded = embedding(w, "encoder_embedding", past, past_known)
    memory, memory_real = [], []
    for e, layers in enumerate(encoder_layers):
        begin = len(embedded) - len(embedded) // 2**e
        x, real = embedded[begin:], observed[begin:].any(dim=1)
        number = 0
        for layer in range(layers):
            name = f"encoders.{e}.steps.{number}"
            a = attention(w, f"{name}.attention", x, x, heads, causal=False, real=real)
            x = layer_norm(w, f"{name}.norm_attention", x + a)
            f = feed_forward(w, f"{name}.feed_forward", x, activation)
            x = layer_norm(w, f"{name}.norm_feed_forward", x + f)
            number += 1
            if distilling and layer < layers - 1:
                x = distil(w, f"encoders.{e}.steps.{number}", x, real)
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
        a = attention(w, f"{name}.attention", x, x, heads, causal=True, mix=mix, real=real)
        x = layer_norm(w, f"{name}.norm_attention", x + a)
        c = attention(w, f"{name}.cross", x, seen, heads, causal=False, real=seen_real)
        x = layer_norm(w, f"{name}.norm_cross", x + c)
        f = feed_forward(w, f"{name}.feed_forward", x, activation)
        x = layer_norm(w, f"{name}.norm_feed_forward", x + f)
    return linear(w, "output", layer_norm(w, "norm", x))[start:]


def cycle(
    w: Weights,
    past: Tensor,
    observed: Tensor | None = None,
    *,
    season: int,
    parts: int,
    horizon: int,
    heads: int,
    centre: str,
) -> Tensor:
    """One column: past (P,) -> (T,); one encoder layer."""
    cycles, steps = len(past) // season, season // parts
    window = past[len(past) - cycles * season :]
    there = torch.ones_like(window, dtype=torch.bool)
    if observed is not None:
        there = observed[len(past) - cycles * season :]
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
    x = x + attention(w, "encoder.0.attention", normed, normed, heads, causal=False, real=real)
    normed = layer_norm(w, "encoder.0.norm_feed_forward", x)
    x = x + feed_forward(w, "encoder.0.feed_forward", normed)
    keys = linear(w, "average.key", layer_norm(w, "norm", x))

    width = keys.shape[1] // heads
    ahead = []
    for t in range(horizon):
        future_cycle, phase = divmod(t, season)
        part, step = divmod(phase, steps)
        value = torch.zeros(())
        for h in range(heads):
            query = w["average.query"][h, future_cycle, part]
            scores = torch.stack(
                [
                    query @ keys[c * parts + part, h * width : (h + 1) * width] / math.sqrt(width)
                    + w["average.bias"][h, future_cycle, part, c]
                    for c in range(cycles)
                ]
            )
            share = scores.exp() * torch.stack(
                [cells[c * parts + part, step].double() for c in range(cycles)]
            )
            share = share / share.sum() if share.any() else share
            mean = sum(share[c] * tokens[c * parts + part, step] for c in range(cycles))
            value = value + w["average.mixture"][h] * mean
        if "linear.weight" in w:
            value = value + w["linear.weight"][t] @ window
        ahead.append(value)
    return torch.stack(ahead) * spread + level
