"""What the numbers of a prediction say, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headscan.ntp.entropy import DataNumbers
from headscan.ntp.result import ModelComparison, SolutionNumbers
from headscan.run import Finding

__all__ = ["findings"]


def findings(
    order: int, data: DataNumbers, solution: SolutionNumbers | None, comparisons: Sequence[ModelComparison]
) -> list[Finding]:
    """Coded sentences, most important first: of the data, then of each model."""
    found = [*_of_data(order, data)]
    if solution is not None:
        text = (
            f"the growing part has rank {solution.rank} of at most {data.vocabulary - 1}, "
            f"certified to a relative gap of {solution.gap:.0e}"
        )
        certain = solution.converged
        found.append(
            Finding(code="LOW RANK", level="good" if certain else "notice", sentence=text, value=solution.rank)
        )
    for model in comparisons:
        found += _of_model(model)
    return found


def _of_data(order: int, data: DataNumbers) -> Iterator[Finding]:
    bound = data.entropy_bound
    text = f"no model that sees {order} tokens gets below {bound:.4g} nats a token on this text"
    yield Finding(code="BOUND", level="notice", sentence=text, value=bound)
    share = data.single_successor_share
    if share > 0.5:
        text = f"{share:.0%} of the contexts were followed by one token only: their logits have no finite part"
        yield Finding(code="ONE SUCCESSOR", level="notice", sentence=text, value=share)
    if data.unseen_mass > 0.1:
        text = (
            f"about {data.unseen_mass:.0%} of next occurrences would bring a successor not yet seen: "
            f"the supports are not settled"
        )
        yield Finding(code="UNSETTLED", level="alert", sentence=text, value=data.unseen_mass)


def _of_model(model: ModelComparison) -> Iterator[Finding]:
    m, name = model.metrics, model.name
    if m.direction is not None:
        text = f"the growing part of the logits has cosine {m.direction:.3f} with the prediction"
        turned = m.direction > 0.9
        yield Finding(
            code="DIRECTION", level="good" if turned else "notice", sentence=text, value=m.direction, model=name
        )
    if m.SC1.after is not None:
        same = m.SC1.after.same_cosine
        text = (
            f"contexts with equal supports: cosine {same:.3f} after projection, "
            f"{m.SC1.after.other_cosine:.3f} between different supports"
        )
        yield Finding(code="COLLAPSE", level="good" if same > 0.9 else "notice", sentence=text, value=same, model=name)
    outside = m.SC6.outside_mass
    if outside > 0.05:
        text = f"{outside:.1%} of the probability lies outside the supports: it generalises, or has not fitted"
        yield Finding(code="OUTSIDE", level="notice", sentence=text, value=outside, model=name)
