"""The article's figures: two are drawings without data; the threshold of its last section is a curve in words."""

from __future__ import annotations

from headscan.claims.experiments.recovered import Recovered
from headscan.claims.figure import FIGURES, Curve, FigureMaker, RedrawnFigure, figure

__all__: list[str] = []

FEATURES = (2, 8, 32, 64, 96, 128)


@figure(
    RedrawnFigure(
        id="article-channel", document="article", place="Noise on a Discreet Channel",
        title="Tokens found by the features that are given",
        published="Llama-7b: all of 4,096 features down to 2,202, none with 2,201 or fewer.", across="features of 128",
        up="share of tokens found",
    )
)  # fmt: skip
def channel(seed: int) -> list[Curve]:
    """The specimen's first block: by the published descent, and by search of the same features."""
    seen = [Recovered(at=f"block.0[:, :, :{size}]").observe(seed) for size in FEATURES]
    given = [float(size) for size in FEATURES]
    return [
        Curve("published descent", given, [one.effect.value for one in seen if one.effect is not None]),
        Curve("search", given, [one.control.value for one in seen if one.control is not None]),
    ]


for _name, _title in (("direct", "Direct input representation"), ("causal", "Causal attention")):
    FIGURES.add(
        f"article-{_name}",
        FigureMaker(
            RedrawnFigure(
                id=f"article-{_name}", document="article", place=_title, title=_title, published="A drawing of the method.",
                why_not="It shows no data.",
            ),
            None,
        ),
    )  # fmt: skip
