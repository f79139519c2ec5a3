"""The slides' figures."""

from __future__ import annotations

import numpy as np

from headscan.claims.experiments.commonest_words import CommonestWords
from headscan.claims.experiments.shape import ShapeOfStates
from headscan.claims.experiments.step_cost import StepCost
from headscan.claims.figure import FIGURES, Curve, FigureMaker, RedrawnFigure, figure
from headscan.claims.stand_ins import lens_of, prompts
from headscan.model.slicing import Slice

__all__: list[str] = []

VOCABULARIES = (1024, 2048, 4096, 8192, 16384)


@figure(
    RedrawnFigure(
        id="slides-svd", document="slides", place="Singular Value Decomposition: expectation, reality",
        title="Singular values of the last states", published="Expected: an even spread. Reality: a few directions carry all.",
        across="direction", up="singular value over the largest", log="y",
    )
)  # fmt: skip
def spectrum(seed: int) -> list[Curve]:
    """The specimen's last states beside normal vectors of the same number and width."""
    states = (
        Slice(sites=("final_norm",)).on(lens_of("specimen")).states(prompts("specimen", seed, 16, 32)).flatten(0, 1)
    )
    drawn = np.random.default_rng(seed).normal(size=tuple(states.shape))
    found = {"gpt-vanilla": np.linalg.svd(states.double().numpy())[1], "normal vectors": np.linalg.svd(drawn)[1]}
    places = [float(k + 1) for k in range(states.shape[1])]
    return [Curve(name, places, (values / values[0]).tolist()) for name, values in found.items()]


@figure(
    RedrawnFigure(
        id="slides-cosine", document="slides", place="Average cosine-similarity", title="Average cosine-similarity",
        published="BERT .4, GPT-2 .97; a headless model's is low.", across="model", up="average cosine",
    )
)  # fmt: skip
def cosines(seed: int) -> list[Curve]:
    """The shipped specimen, and small models trained here with and without a head."""
    seen = {kind: ShapeOfStates(model=kind).observe(seed).effect for kind in ("specimen", "taught", "headless")}
    return [Curve("last states", list(seen), [one.value for one in seen.values() if one is not None])]


@figure(
    RedrawnFigure(
        id="slides-zipf", document="slides", place="Zipf's law and limitations", title="Shares of the commonest words",
        published="the 5 %, of 3 %, and 2 %.", across="rank", up="share of words", log="xy",
    )
)  # fmt: skip
def zipf(seed: int) -> list[Curve]:
    """Of the shipped stories."""
    seen = CommonestWords().observe(seed)
    values = [one.value for one in (seen.effect, *seen.beside) if one is not None]
    return [Curve("stories", [1.0, 2.0, 3.0], values), Curve("published", [1.0, 2.0, 3.0], [0.05, 0.03, 0.02])]


@figure(
    RedrawnFigure(
        id="slides-cost", document="slides", place="Faster and more memory-friendly", title="What a head costs by vocabulary",
        published="BERT-small: 2 times the time at V = 20,000, 3.5 at 200,000.", across="vocabulary",
        up="cost with a head over cost without", log="x",
    )
)  # fmt: skip
def cost(seed: int) -> list[Curve]:
    """Memory kept for the backward pass of the loss alone (exact), and processor time."""
    curves = []
    for kind in ("bytes", "seconds"):
        seen = [StepCost(cost=kind, vocabulary=size).observe(seed).effect for size in VOCABULARIES]
        curves.append(
            Curve(kind, [float(size) for size in VOCABULARIES], [one.value for one in seen if one is not None])
        )
    return curves


for _name, _title in (("bert", "English BERT"), ("gpt", "English GPT"), ("multilingual", "Multilingual BERT-small")):
    FIGURES.add(
        f"slides-{_name}",
        FigureMaker(
            RedrawnFigure(
                id=f"slides-{_name}", document="slides", place=_title, title=_title,
                published="The headless model is ahead of the one with a head at every time of training.",
                why_not="It takes days of several GPUs; `headscan tournament` draws the same curves at the size that is asked.",
            ),
            None,
        ),
    )  # fmt: skip
