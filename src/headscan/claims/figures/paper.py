"""The paper's figures."""

from __future__ import annotations

from functools import lru_cache

import headscan.ntp as ntp
from headscan.claims.figure import FIGURES, Curve, FigureMaker, RedrawnFigure, figure
from headscan.claims.ntp_theory import defined
from headscan.ntp.features import FeatureCheckpoint

__all__: list[str] = []

STEPS = 10_000


@lru_cache(maxsize=2)
def _course(seed: int) -> tuple[FeatureCheckpoint, ...]:
    """Gradient descent on unconstrained features: V = 10, 95 contexts, 30 supports, as in Figs. 3 and 4."""
    labels = ntp.random_labels(10, 95, supports=30, seed=seed)
    run = ntp.train_features(labels, 10, STEPS, seed=seed, prediction=ntp.predict(labels))
    return tuple(one for one in run.records if one.step > 0)


def _steps(seed: int) -> list[float]:
    return [float(one.step) for one in _course(seed)]


@figure(
    RedrawnFigure(
        id="paper-loss", document="paper", place="Figs. 2 (a) and 3", title="Distance of the loss from the entropy bound",
        published="CE - H falls to 1e-4.", across="step", up="CE - H (nats)", log="xy",
    )
)  # fmt: skip
def loss(seed: int) -> list[Curve]:
    """CE - H."""
    return [Curve("gradient descent", _steps(seed), [one.excess for one in _course(seed)])]


@figure(
    RedrawnFigure(
        id="paper-norms", document="paper", place="Fig. 2 (b)", title="Norms of words and contexts",
        published="‖W‖ grows as log k; ‖H‖ of a transformer flattens, since its last norm holds it.", across="step", up="norm",
        log="x",
    )
)  # fmt: skip
def norms(seed: int) -> list[Curve]:
    """Frobenius norms."""
    return [
        Curve("words W", _steps(seed), [one.words for one in _course(seed)]),
        Curve("contexts H", _steps(seed), [one.contexts for one in _course(seed)]),
    ]


@figure(
    RedrawnFigure(
        id="paper-sparse", document="paper", place="Fig. 2 (c)", title="Distance of the in-support part from the log-odds",
        published="It falls to 0.", across="step", up="relative distance", log="xy",
    )
)  # fmt: skip
def sparse_part(seed: int) -> list[Curve]:
    """SC3."""
    found = [defined(one.metrics.SC3 if one.metrics else None) for one in _course(seed)]
    return [Curve("gradient descent", _steps(seed), found)]


@figure(
    RedrawnFigure(
        id="paper-geometry", document="paper", place="Fig. 2 (d, e); Fig. 4", title="Nearness to the predicted geometry",
        published="All similarities rise towards 1; the patterns show early.", across="step", up="similarity", log="x",
    )
)  # fmt: skip
def geometry(seed: int) -> list[Curve]:
    """Direction of the logits, patterns of words and contexts."""
    names = (("direction of the logits", "direction"), ("words", "pattern_words"), ("contexts", "pattern_contexts"))
    return [
        Curve(said, _steps(seed), [defined(getattr(one.metrics, name)) for one in _course(seed)])
        for said, name in names
    ]


FIGURES.add(
    "paper-tinystories",
    FigureMaker(
        RedrawnFigure(
            id="paper-tinystories", document="paper", place="Fig. 1; TinyStories heat maps",
            title="Contexts of ten supports on TinyStories", published="Blocks of equal supports are bright after training.",
            why_not="The text is not shipped; the benchmark a_transformer_on_tinystories_turns_towards_the_prediction does it.",
        ),
        None,
    ),
)  # fmt: skip
