"""A reader's sentence for each arm, made of its differences: what it buys, what it costs, where it only moves the cone."""

from __future__ import annotations

from collections.abc import Sequence

from headscan.training.racing.comparison import ArmDifference

__all__ = ["sentence_of"]

OWN = "own rates"


def sentence_of(differences: Sequence[ArmDifference], matched: float) -> str:
    """What the differences of one arm from its reference allow to be said, each clause with its numbers.

    A difference is told where its interval (over seeds, and wide enough for all arms at once) leaves no difference out,
    at each arm's own best rate. Where another rate or size leans the other way, the sentence says that it turns.
    """
    of = {each.measure: each for each in differences if each.where == OWN}
    if not of or of["average_cosine"].seeds < 2:
        return "Two seeds that reach the matched loss are needed to say anything."
    said = [_cone(of, differences, matched), _rank(of, differences), _tokens(of, differences), _end(of, differences)]
    return " ".join(one for one in (*said, _time(of)) if one)


def _turns(own: ArmDifference, differences: Sequence[ArmDifference]) -> str:
    """Where the others lean the other way, or not at all."""
    against = [
        each.where
        for each in differences
        if each.measure == own.measure
        and each.where != OWN
        and each.difference is not None
        and each.leaning != own.sign
    ]
    return f" (not at {', '.join(against)})" if against else ""


def _pair(one: ArmDifference, places: int) -> str:
    return f"{_number(one.value, places)} against {_number(one.reference_value, places)}"


def _number(value: float | None, places: int) -> str:
    return "—" if value is None else f"{value:.{places}f}".replace("-", "−")


def _cone(of: dict[str, ArmDifference], differences: Sequence[ArmDifference], matched: float) -> str:
    cone, inner = of["average_cosine"], of["average_cosine_without_ones"]
    start = f"At {matched:.2f} nats the average cosine of its last block is "
    if cone.sign == 0:
        return f"{start}not told apart from that of {cone.reference}: {_pair(cone, 3)}."
    word = "smaller" if cone.sign < 0 else "larger"
    said = f"{start}{word} than that of {cone.reference}: {_pair(cone, 3)}{_turns(cone, differences)}."
    if cone.sign < 0 and inner.sign >= 0:
        said += (
            " The cone has only moved: without the direction of ones, which a LayerNorm deletes, its cosine is "
            f"{'larger' if inner.sign > 0 else 'not told apart'}, {_pair(inner, 3)}."
        )
    elif cone.sign < 0 and of["effective_rank"].sign < 0 <= of["effective_rank_without_ones"].sign:
        said += (
            " Part of it has only moved, into the direction of ones, which a LayerNorm deletes: its effective rank is lower, "
            f"{_pair(of['effective_rank'], 1)}, and without that direction it is not; the cosine is then "
            f"{_pair(inner, 3)}{_turns(inner, differences)}."
        )
    return said


def _rank(of: dict[str, ArmDifference], differences: Sequence[ArmDifference]) -> str:
    rank = of["effective_rank_without_ones"]
    if rank.sign == 0:
        return ""
    word = "higher" if rank.sign > 0 else "lower"
    return f"Its effective rank without the direction of ones is {word}: {_pair(rank, 1)}{_turns(rank, differences)}."


def _tokens(of: dict[str, ArmDifference], differences: Sequence[ArmDifference]) -> str:
    tokens = of["tokens"]
    if tokens.sign == 0 or tokens.difference is None:
        return ""
    word = "fewer" if tokens.sign < 0 else "more"
    return f"It gets there with {word} tokens, {tokens.difference:.2f} times as many{_turns(tokens, differences)}."


def _end(of: dict[str, ArmDifference], differences: Sequence[ArmDifference]) -> str:
    end = of["heldout_nats"]
    if end.sign == 0:
        return "After equal tokens its held-out loss is not told apart."
    word = "lower" if end.sign < 0 else "higher"
    return f"After equal tokens its held-out loss is {word}: {_pair(end, 3)}{_turns(end, differences)}."


def _time(of: dict[str, ArmDifference]) -> str:
    time = of["seconds_a_step"]
    if time.sign == 0 or time.difference is None:
        return ""
    return f"A step takes {time.difference:.2f} times the processor time."
