"""The colours of pages and plots, each as a pair for light and dark.

Figures are made with the light colours; a page replaces every light colour in them by its dark
partner when the reader prefers dark, so a figure is stored once. Categorical colours are safe for
the common forms of colour blindness and are always doubled by a dash pattern; sequential scales run
monotonically in lightness.
"""

ROLES = {
    "paper": ("#fbfaf6", "#161513"),
    "ink": ("#1b1a17", "#ece8de"),
    "muted": ("#68635a", "#a8a296"),
    "hairline": ("#dcd7cb", "#38352f"),
    "accent": ("#a3321d", "#f0866d"),
    "calm": ("#0b5a94", "#74b8ea"),
}
"""The use of a colour -> (light, dark). `muted` on `paper` has a contrast above 5.5 in both."""

MODELS = [
    ("#0b5a94", "#74b8ea"),
    ("#b5460f", "#f2a067"),
    ("#04765a", "#55c7a3"),
    ("#8d4476", "#dc9fc8"),
    ("#6d5c07", "#d6c158"),
]
"""One (light, dark) pair a model, used again in turn."""

DASHES = ["solid", "dash", "dashdot", "longdash", "longdashdot"]
"""One dash pattern a model, so that colour is never the only sign."""

SYMBOLS = ["circle", "square", "diamond", "triangle-up", "cross"]
"""One marker a model, for plots in which the dash pattern means something else."""

DEPTH = (
    ["#b9cfd8", "#6b9db3", "#2f6c8c", "#0e3f5f", "#04202f"],
    ["#24495b", "#2f7190", "#4a9cc0", "#8fc6df", "#e3f3fa"],
)
"""From the shallowest to the deepest layer; the scale for light, then for dark."""

FREQUENCY = (
    ["#e8a33d", "#d9653b", "#a93a62", "#5e2a7a", "#1d1a4b"],
    ["#6a55b5", "#bb5990", "#ea6f5c", "#f6b45f", "#fbf3c0"],
)
"""From the rarest to the most frequent token: the frequent ones stand out most from the paper."""


def mix(scale: list[str], t: float) -> str:
    """Return the colour at t in [0, 1] of a scale of hex colours at equal distances.

    >>> mix(["#000000", "#ffffff"], 0.5)
    '#808080'
    """
    position = min(max(t, 0.0), 1.0) * (len(scale) - 1)
    index = min(int(position), len(scale) - 2)
    fraction = position - index
    low = _channels(scale[index])
    high = _channels(scale[index + 1])
    mixed = [round(a + (b - a) * fraction) for a, b in zip(low, high, strict=True)]
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


def _channels(colour: str) -> list[int]:
    """Return red, green and blue of '#rrggbb'."""
    return [int(colour[start : start + 2], 16) for start in (1, 3, 5)]


def depth_colours(count: int) -> list[tuple[str, str]]:
    """Return `count` (light, dark) pairs from the shallowest to the deepest layer."""
    light, dark = DEPTH
    if count == 1:
        return [(light[2], dark[2])]
    steps = max(count - 1, 1)
    return [(mix(light, layer / steps), mix(dark, layer / steps)) for layer in range(count)]


def model_colour(index: int) -> str:
    """Return the light colour of the index-th model."""
    return MODELS[index % len(MODELS)][0]


def model_line(index: int) -> dict[str, str]:
    """Return the index-th model's line for plotly: colour and dash pattern, used again in turn.

    >>> model_line(1) == {"color": model_colour(1), "dash": "dash"}
    True
    """
    return {"color": model_colour(index), "dash": DASHES[index % len(DASHES)]}


def translucent(colour: str, alpha: float) -> str:
    """Return the hex colour with an alpha channel: '#rrggbb' -> 'rgba(r,g,b,alpha)'."""
    red, green, blue = _channels(colour)
    return f"rgba({red},{green},{blue},{alpha})"


def swaps(depth: int = 0) -> dict[str, str]:
    """Return light -> dark for every colour that a figure may hold.

    `depth` is the largest number of layers in one spectrum.
    """
    pairs = [*ROLES.values(), *MODELS]
    for scale in (DEPTH, FREQUENCY):
        pairs += zip(*scale, strict=True)
    for count in range(1, depth + 1):
        pairs += depth_colours(count)
    for light, dark in (*MODELS, ROLES["muted"]):
        pairs.append((translucent(light, 0.14), translucent(dark, 0.2)))
    return dict(pairs)
