"""The colours of a style sheet, and whether people can distinguish them."""

import re


def palettes(css):
    """The colours by name, in light and in dark."""
    light, dark = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    colours = [dict(re.findall(r"--([\w-]+): (#\w{6})", part)) for part in (light, dark)]
    return dict(zip(("light", "dark"), colours, strict=True))


def contrast(one, other):
    """The contrast of two colours like #0369a1 (WCAG 2.2): 4.5 is enough for text, 3 for a line."""
    low, high = sorted(map(_luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour):
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
