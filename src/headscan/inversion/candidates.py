"""What a search from left to right tried: the candidates at one position, and what was found for a whole prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

import torch
from torch import Tensor

from headscan.inversion.ranking import Fit, Order
from headscan.inversion.reconstruction import Evidence, accepts, relative
from headscan.run import BadInput
from headscan.run.parts import Parts

# A token is a rival of the best one if its residual is less than so many times as large.
RIVAL = 4.0


class Candidates:
    """The tokens tried for one prompt at one position, with the relative residual ||O - O*|| / ||O*|| of each.

    Attributes:
        count: how many; `searching`: those of them that were tried to find the token, the rest vouch for it.
        best, token: the least residual and its token.
        beside: the token whose neighbours were tried with the first candidates, None where that was not done.
        tried_all: whether no candidate was left.
    """

    def __init__(self, order: Order, goal: Tensor) -> None:
        self.order, self.goal = order, goal
        self.tokens: list[Tensor] = []
        self.residuals: list[Tensor] = []
        self.count = self.searching = 0
        self.best, self.token = float("inf"), 0
        self.beside: int | None = None
        self.tried_all = False

    def take(self, tokens: Tensor, outputs: Tensor) -> None:
        """Note what some candidates gave: [n] tokens, [n, w'] outputs."""
        if not len(tokens):
            return
        residuals = relative(outputs, self.goal)
        self.tokens.append(tokens)
        self.residuals.append(residuals)
        self.count += len(tokens)
        low, place = residuals.min(0)
        if float(low) < self.best:
            self.best, self.token = float(low), int(tokens[place])
        self.order.learn(tokens, outputs)

    def runner_up(self, twins: list[int]) -> float:
        """The least residual of a token that is none of `twins`."""
        tokens, residuals = self.sorted()
        return next((r for token, r in zip(tokens, residuals, strict=True) if token not in twins), float("inf"))

    def sorted(self) -> tuple[list[int], list[float]]:
        """The best few of the tokens tried with their relative residuals, best first."""
        residuals, tokens = torch.cat(self.residuals), torch.cat(self.tokens)
        order = residuals.argsort()[:256]
        return tokens[order].tolist(), residuals[order].tolist()


@dataclass
class SearchTrace:
    """What a search from left to right found for one prompt, position by position.

    Attributes:
        tokens: ids [T].
        residuals: relative residual of each.
        margins: relative residual of the second best candidate tried (infinite if there was none).
        rivals: for each position the other tokens that cannot be told from the one found.
        compared: for each position what its token was compared with.
        evaluations: candidates tried until each was found; `certifying`: those tried after, for the certificate.
        failed: positions at which no token came within the tolerance (the nearest was taken).
        exhausted: whether there every allowed token had been tried.
        backtracks: prefixes taken back.
        passes: token positions run.
        notes: what happened on the way, as sentences.
    """

    tokens: list[int] = field(default_factory=list)
    residuals: list[float] = field(default_factory=list)
    margins: list[float] = field(default_factory=list)
    rivals: list[list[int]] = field(default_factory=list)
    compared: list[Evidence] = field(default_factory=list)
    evaluations: list[int] = field(default_factory=list)
    certifying: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    exhausted: bool = True
    backtracks: int = 0
    passes: int = 0
    notes: list[str] = field(default_factory=list)

    def upto(self, length: int) -> SearchTrace:
        """The first positions of it, as a start for another attempt; the work done stays counted."""
        return replace(
            self, tokens=self.tokens[:length], residuals=self.residuals[:length], margins=self.margins[:length],
            rivals=self.rivals[:length], compared=self.compared[:length], evaluations=self.evaluations[:length],
            certifying=self.certifying[:length],
            failed=[place for place in self.failed if place < length], exhausted=True,
        )  # fmt: skip

    def follow(self, stored: SearchTrace) -> None:
        """Go one position further as an interrupted search did."""
        place = len(self.tokens)
        self.tokens.append(stored.tokens[place])
        self.residuals.append(stored.residuals[place])
        self.margins.append(stored.margins[place])
        self.rivals.append(list(stored.rivals[place]))
        self.compared.append(stored.compared[place])
        self.evaluations.append(stored.evaluations[place])
        self.certifying.append(stored.certifying[place])
        self.failed += [place] if place in stored.failed else []
        if len(self.tokens) == len(stored.tokens):
            self.exhausted, self.passes, self.notes = stored.exhausted, stored.passes, list(stored.notes)

    def add(self, tried: Candidates, tolerance: float, floor: float, twins: list[int], choice: int) -> None:
        """Go one position further, with the best candidate there.

        Args:
            tried: the candidates at this position.
            tolerance: largest residual that counts as found; floor: what rounding alone may cause.
            twins: tokens whose embedding row equals that of the best one, itself included.
            choice: tokens that may be returned.
        """
        if not accepts(tried.best, tolerance):
            self.failed.append(len(self.tokens))
            self.exhausted = self.exhausted and tried.tried_all
        tokens, residuals = tried.sorted()
        limit = max(RIVAL * tried.best, floor)
        rivals = [token for token, r in zip(tokens, residuals, strict=True) if r <= limit and token != tried.token]
        others = [r for token, r in zip(tokens, residuals, strict=True) if token not in twins]
        self.tokens.append(tried.token)
        self.residuals.append(tried.best)
        self.margins.append(others[0] if others else float("inf"))
        self.rivals.append(rivals + [token for token in twins if token not in rivals and token != tried.token])
        self.compared.append(
            Evidence.of(
                torch.cat(tried.tokens), torch.cat(tried.residuals), tried.token, tolerance=tolerance, choice=choice,
                twins=tuple(twins),
            )
        )  # fmt: skip
        self.evaluations.append(tried.searching)
        self.certifying.append(tried.count - tried.searching)


# ---- What a search from left to right has found so far, stored so that an interrupted run goes on from there.


@dataclass(frozen=True)
class Progressed:
    """Where a search stands between two positions.

    Attributes:
        traces: of each prompt, to the same position.
        outlooks: of each prompt the state of its `Outlook`; empty without readouts.
        fits: of each prompt what the table's order was last fitted to.
    """

    traces: list[SearchTrace]
    outlooks: list[tuple[int, list[int]]] = field(default_factory=list)
    fits: Mapping[int, Fit] = field(default_factory=dict)


class KeptSearch:
    """One stored part of a run: a search, position by position.

    Args:
        parts: of the run.
        name: of the part.
    """

    def __init__(self, parts: Parts, name: str) -> None:
        self.parts, self.name = parts, name

    def due(self) -> bool:
        """Whether it is time to store."""
        return self.parts.due()

    def write(self, state: Progressed, key: str) -> None:
        """Store where a search stands; `key` names what the order of its candidates rests on."""
        note = {
            "key": key,
            "traces": [asdict(one) for one in state.traces],
            "outlooks": [[begin, draft] for begin, draft in state.outlooks],
            "shares": {str(index): fit.share for index, fit in state.fits.items()},
        }
        self.parts.write(self.name, {f"{index}": fit.shift for index, fit in state.fits.items()}, note=note)  # type: ignore[arg-type]

    def read(self, key: str, device: torch.device) -> Progressed | None:
        """Where a search stood when it was interrupted, None if nothing was stored.

        Raises:
            BadInput: its candidates came in another order, so that the rest would not be what it would have been.
        """
        part = self.parts.read(self.name)
        if part is None:
            return None
        from pydantic import TypeAdapter

        note = part.note
        assert isinstance(note, dict)
        if note["key"] != key:
            raise BadInput(
                "The run cannot be resumed: what orders the candidates (the text of the fit, or the order) has changed. "
                "Start afresh without --resume, or in another folder."
            )
        shares = TypeAdapter(dict[int, float]).validate_python(note["shares"])
        return Progressed(
            TypeAdapter(list[SearchTrace]).validate_python(note["traces"]),
            TypeAdapter(list[tuple[int, list[int]]]).validate_python(note["outlooks"]),
            {index: Fit(share, _at(part.tensors, index, device)) for index, share in shares.items()},
        )


def _at(tensors: Mapping[str, Tensor], index: int, device: torch.device) -> Tensor:
    return tensors[f"{index}"].to(device)


def copies(traces: Sequence[SearchTrace]) -> list[SearchTrace]:
    """The traces as they are now."""
    found = []
    for one in traces:
        copied = SearchTrace()
        while len(copied.tokens) < len(one.tokens):
            copied.follow(one)
        found.append(copied)
    return found
