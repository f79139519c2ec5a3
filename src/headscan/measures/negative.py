"""Is there a direction in which every hidden state is negative? A certificate for each of them, or a witness against it.

If v exists with v·h < 0 for all hidden states h, cross-entropy can lower the logit of a token that is never to be
predicted for ever by moving its output vector along v: rare tokens drift (Gao et al. 2019, arXiv:1907.12009). Such a v
exists if and only if 0 lies outside the convex hull of the states' directions; if 0 lies inside, d + 1 of them show it
(Carathéodory). So a working set that holds the states on the wrong side settles it, however many there are: it is solved
(`separate`), the other states are held against its answer, and those on the wrong side enter (cutting planes).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import gammaln, logsumexp
from torch import Tensor

from headscan.measures.halfspace import EPS, NONE, Floats, Halfspace, Witness, separate, witness
from headscan.measures.measure import Field, ProbeWords
from headscan.measures.probe import Probe, ProbeData, ProbeSetup
from headscan.run import BadInput
from headscan.statistics import SiteBatch
from headscan.statistics.accumulator import Accumulator
from headscan.statistics.uncertainty import Cells, wilson

Verdict = Literal["uniformly negative", "none", "undecided"]
KEPT_BYTES = 64 * 2**20  # states in float32 that are kept for a second look without a second pass
ROUNDS = 60


@dataclass(frozen=True)
class NearestPoint:
    """The point of the hull of n directions nearest to the origin, as far as it is known, and its proof.

    direction: x̂ [d], the best found; −x̂ is the uniformly negative direction if the verdict says so. lowest: min x̂·û over *all*
    states, a lower bound of the hull's distance from 0. support, weights: rows of the states and their convex weights. distance:
    ‖Σ weights·û‖ with its rounding, an upper bound of every least cosine. error: the rounding error of `lowest`. verdict:
    "uniformly negative" (lowest > error), "none" (distance ≤ 1e-9) or "undecided". exact: of "none", whether positive weights
    that give exactly 0 are proved to exist. vanished: of "none", how many states had been read when the working set had no
    direction any more. states: n. passes: how often they were read.
    """

    direction: Floats
    lowest: float
    support: npt.NDArray[np.int64]
    weights: Floats
    distance: float
    error: float
    verdict: Verdict
    exact: bool
    vanished: int | None
    states: int
    passes: int

    @property
    def gap(self) -> float:
        """How much wider the widest margin could be: distance − max(lowest, 0), at least 0."""
        return max(0.0, self.distance - max(self.lowest, 0.0))


class NegativeSearch(Accumulator):
    """The search over a stream of states that may be read several times; memory does not grow with the stream.

    It keeps a working set (at most 8d + 2,048 directions) and, while they fit into 64 MiB of float32, the states
    themselves. `add` every state, then `finish`; while `wanting`, read them once more. A state of length zero is
    negative in no direction.

    >>> search = NegativeSearch(2)
    >>> search.add(torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64))
    >>> search.finish()
    >>> search.found().verdict, round(search.found().lowest, 4)
    ('uniformly negative', 0.7071)
    """

    def __init__(self, width: int, *, tolerance: float | None = 0.01):
        self.width, self.tolerance = width, tolerance
        self.limit = 8 * width + 2048
        self.rows = np.zeros((0, width))  # the working set
        self.ids = np.zeros(0, dtype=np.int64)  # which state of the stream each is
        self.pending: list[tuple[Floats, npt.NDArray[np.int64]]] = []
        self.kept: list[Tensor] | None = []
        self.best: Halfspace | None = None
        self.refuted: Witness | None = None
        self.seen = self.checked = self.passes = self.vanished = 0
        self._ended = False  # between two passes
        self._near = False  # the states are at hand: no proof alone, the widest margin is looked for
        self.least = np.inf  # of the states checked against the present direction

    @property
    def error(self) -> float:
        return (2 * self.width + 8) * EPS

    @property
    def wanting(self) -> bool:
        proved = self.refuted is not None or (self.checked == self.seen and self.least > self.error)
        return not proved and self.passes < ROUNDS

    @property
    def loose(self) -> bool:
        """Whether a direction is proved whose margin could be wider by more than `tolerance` of the distance."""
        if self.tolerance is None or self.best is None or self.refuted is not None or self.passes >= ROUNDS:
            return False
        return self.best.distance - self.least > self.tolerance * self.best.distance

    @property
    def _floor(self) -> float:
        if self.best is None or self.best.margin <= 0:
            return self.error
        if self._near and self.tolerance is not None:
            return self.best.margin * (1 - 0.5 * self.tolerance)
        return max(self.error, 0.5 * self.best.margin)  # those near the wrong side spare a pass

    def add(self, states: Tensor) -> None:
        """Read states [n, d], float64; after `finish` they are the first of another pass."""
        if self._ended:
            self._restart()
            self.kept = None
        if self.kept is not None:
            small = states.float().cpu()
            room = 4 * self.width * (self.seen + len(states)) <= KEPT_BYTES
            exact = bool((small.double() == states.cpu()).all())
            self.kept = [*self.kept, small.clone()] if room and exact else None
        self._look(states.double().cpu().numpy())

    def _restart(self) -> None:
        self.seen = self.checked = 0
        self.least, self._ended = np.inf, False

    def _look(self, states: Floats) -> None:
        first, self.seen = self.seen, self.seen + len(states)
        if self.refuted is not None or not len(states):
            return
        lengths = np.linalg.norm(states, axis=1)
        if (lengths == 0).any():
            at = np.array([first + int(np.argmin(lengths))])
            self.refuted, self.vanished = Witness(at, np.ones(1), 0.0, exact=True), self.seen
            return
        rows, ids = states / lengths[:, None], np.arange(first, self.seen)
        if self.best is not None:
            products = rows @ self.best.direction
            self.least, self.checked = min(self.least, float(products.min())), self.checked + len(rows)
            wrong = np.flatnonzero(products < self._floor)
            room = max(0, self.limit // 4 - sum(len(rows) for rows, _ in self.pending))
            if len(wrong) > room:  # the worst; the others come with the next pass
                wrong = wrong[np.argsort(products[wrong])[: max(room, int((products[wrong] <= self.error).sum() > 0))]]
            rows, ids = rows[wrong], ids[wrong]
        if len(rows):
            self.pending.append((rows, ids))
        # A direction that no state has refuted yet is not given up in a later pass: it may be the one.
        waiting = self.best is not None and self.passes > 0 and self.least > self.error
        if not waiting and sum(len(rows) for rows, _ in self.pending) >= max(64, len(self.rows) // 4):
            self._solve()

    def _solve(self) -> None:
        self.rows = np.concatenate([self.rows, *(rows for rows, _ in self.pending)])
        self.ids = np.concatenate([self.ids, *(ids for _, ids in self.pending)])
        self.pending = []
        if len(self.rows) > 4 * self.limit:  # the first batch may be large
            self.rows, self.ids = self.rows[:: len(self.rows) // self.limit], self.ids[:: len(self.rows) // self.limit]
        self.best = separate(self.rows, tolerance=0.1 if self.tolerance is None else 0.1 * self.tolerance)
        self.checked, self.least = 0, np.inf
        if self.best.distance <= NONE:
            found = witness(self.rows, self.best.weights)
            self.refuted, self.vanished = Witness(self.ids[found.support], *list(vars(found).values())[1:]), self.seen
        elif len(self.rows) > self.limit:
            nearest = np.argpartition(self.rows @ self.best.direction, self.limit)[: self.limit]
            self.rows, self.ids = self.rows[nearest], self.ids[nearest]

    def finish(self) -> None:
        """After the last state of a pass: solve what is pending, and look again at the states that were kept."""
        self._settle()
        kept = self.kept
        while kept and (self.wanting or self.loose):
            self._restart()
            self._near = True
            for states in kept:
                self._look(states.double().numpy())
            self._settle()
        self.kept, self._ended, self._near = None, True, False

    def _settle(self) -> None:
        self.passes += 1
        if self.pending and (self.wanting or self.loose):
            self._solve()

    def found(self) -> NearestPoint | None:
        """The verdict and both sides of it; None without states."""
        if not self.seen:
            return None
        direction, lowest = np.zeros(self.width), -1.0
        if self.best is not None:
            direction = self.best.direction
            lowest = self.least if self.checked == self.seen else min(self.least, -1.0)
        weights, support = np.zeros(0), self.ids[:0]
        distance = 1.0
        if self.refuted is not None:
            weights, support, distance = self.refuted.weights, self.refuted.support, self.refuted.distance
        elif self.best is not None:
            held = self.best.weights > 0 if len(self.best.weights) == len(self.rows) else np.zeros(len(self.rows), bool)
            weights = self.best.weights[held] if held.any() else weights
            support, distance = self.ids[held], self.best.distance + (len(self.rows) + 4) * EPS
        positive = self.refuted is None and lowest > self.error
        verdict: Verdict = "uniformly negative" if positive else "none" if distance <= NONE else "undecided"
        return NearestPoint(
            direction, lowest, support, weights, distance, self.error, verdict,
            self.refuted is not None and self.refuted.exact,
            self.vanished if verdict == "none" else None, self.seen, self.passes,
        )  # fmt: skip

    def merge(self, other: NegativeSearch) -> None:
        if other.refuted is not None and self.refuted is None:
            self.refuted, self.vanished = other.refuted, self.seen + other.vanished
        entering = [(other.rows, other.ids + self.seen), *((rows, ids + self.seen) for rows, ids in other.pending)]
        self.pending += [(rows, ids) for rows, ids in entering if len(rows)]
        self.kept = [*self.kept, *other.kept] if self.kept is not None and other.kept is not None else None
        self.seen += other.seen
        self.checked, self.least = 0, np.inf

    def state(self) -> dict[str, Tensor]:
        rows = np.concatenate([self.rows, *(rows for rows, _ in self.pending)])
        ids = np.concatenate([self.ids, *(ids for _, ids in self.pending)])
        tolerance = -1.0 if self.tolerance is None else self.tolerance
        counts = [self.width, self.seen, self.checked, self.passes, self.vanished, len(self.rows)]
        state = {"counts": torch.tensor(counts), "bounds": torch.tensor([tolerance, self.least], dtype=torch.float64)}
        state |= {"rows": torch.from_numpy(rows), "ids": torch.from_numpy(ids)}
        if self.kept is not None:
            state["kept"] = torch.cat(self.kept) if self.kept else torch.zeros(0, self.width)
        if self.best is not None:
            sides = [self.best.margin, self.best.distance]
            state |= {
                "direction": torch.from_numpy(self.best.direction),
                "weights": torch.from_numpy(self.best.weights),
            }
            state["sides"] = torch.tensor(sides, dtype=torch.float64)
        if self.refuted is not None:
            proof = [self.refuted.distance, float(self.refuted.exact)]
            state |= {
                "support": torch.from_numpy(self.refuted.support),
                "proof": torch.tensor(proof, dtype=torch.float64),
            }
            state["mass"] = torch.from_numpy(self.refuted.weights)
        return state

    @classmethod
    def restore(cls, state: dict[str, Tensor]) -> Self:
        width, *counts, held = state["counts"].tolist()
        tolerance, least = state["bounds"].tolist()
        new = cls(width, tolerance=None if tolerance < 0 else tolerance)
        new.seen, new.checked, new.passes, new.vanished = counts
        new.least = least
        rows, ids = state["rows"].numpy().copy(), state["ids"].numpy().copy()
        new.rows, new.ids = rows[:held], ids[:held]
        new.pending = [(rows[held:], ids[held:])] if len(rows) > held else []
        new.kept = [state["kept"].clone()] if "kept" in state else None
        if "sides" in state:
            margin, distance = state["sides"].tolist()
            new.best = Halfspace(state["direction"].numpy().copy(), margin, state["weights"].numpy().copy(), distance)
        if "proof" in state:
            distance, exact = state["proof"].tolist()
            new.refuted = Witness(state["support"].numpy().copy(), state["mass"].numpy().copy(), distance, bool(exact))
        return new


def nearest_point(states: npt.ArrayLike | Tensor, *, tolerance: float | None = 1e-6) -> NearestPoint | None:
    """The point of the convex hull of the rows' directions [n, d] nearest to the origin, with the proof of what it says.

    The states' directions decide, not their lengths, whether a uniformly negative direction exists; so they are scaled to
    length 1 first, and `distance` and `lowest` are in [0, 1], the widest margin in cosines that any direction has to all
    states. With a row of norm zero no direction is strictly negative: the verdict is then "none". None without rows;
    BadInput where a value is NaN or infinite. Ends when both sides agree to `tolerance` of the distance or, with None,
    as soon as the verdict is proved. Cost: a few products of n·d, and O(d³) for each of some ten working sets.

    >>> nearest_point([[1.0, 1.0], [1.0, -1.0]]).verdict, nearest_point([[1.0, 0.0], [-1.0, 0.0]]).verdict
    ('uniformly negative', 'none')
    """
    rows = torch.as_tensor(np.asarray(states) if not isinstance(states, Tensor) else states.detach().cpu())
    if rows.ndim != 2:
        raise BadInput(f"States come as the rows of a matrix [n, d], not in the shape {list(rows.shape)}.")
    if not bool(torch.isfinite(rows).all()):
        raise BadInput("States must be finite: there are NaN or infinite values among these.")
    if not len(rows):
        return None
    search = NegativeSearch(rows.shape[1], tolerance=tolerance)
    search.kept = None  # they are here
    chunk = max(2 * rows.shape[1] + 64, 2048)
    while True:
        search._restart()
        for start in range(0, len(rows), chunk):
            search._look(rows[start : start + chunk].double().numpy())
        search.finish()
        search._near = True
        if not (search.wanting or search.loose):
            return search.found()


def cover_log10(n: int, d: int) -> float:
    """log₁₀ of the chance that n random directions in d dimensions lie on one side of some direction.

    2^{1−n}·Σ_{k<d} C(n − 1, k), for any law symmetric about 0 and in general position (Wendel 1962; Cover 1965): 1 for n ≤
    d, ½ for n = 2d, and next to nothing for many more.

    >>> cover_log10(10, 10), round(10 ** cover_log10(40, 20), 6)
    (0.0, 0.5)
    """
    if n <= d:
        return 0.0
    k = np.arange(d)
    return float((logsumexp(gammaln(n) - gammaln(k + 1) - gammaln(n - k)) - (n - 1) * np.log(2)) / np.log(10))


SMALLEST = 125  # sampled states that the growth begins with


class NegativeProbe(Probe):
    """The uniformly negative direction."""

    words = ProbeWords(
        name="negative", title="A uniformly negative direction?", group="head",
        sentence="Is there a direction in which every state of the text is negative? Then rare tokens can be pushed "
        "away for ever. A proof for every state of the text, or some of them that prove the contrary.",
        literature="Gao et al. 2019, arXiv:1907.12009, theorem 1; Mangasarian 2002; Cover 1965",
        position="All positions of the text: a direction certified for all is one for any part of them.",
        docs="negative.md", function="headscan.measures.negative.NegativeSearch", sample=2000, order=15, fields={
            "verdict": Field("verdict", "‘uniformly negative’ (each state was found on one side), ‘none’ (states on at most "
                "d + 1 places have 0 between them), or ‘undecided’ (both sides are given)."),
            "margin": Field("margin",
                "The least cosine of any state to the best direction; above its rounding error (about 1e-12) it proves "
                "the direction.", "min x̂·ĥ", range=(-1, 1), undefined="no direction was held against every state",
                interval="a certificate about these very states"),
            "distance": Field("distance",
                "Of a convex combination of the directions from 0, rounding included: no direction has a larger margin.",
                "‖Σλĥ‖", range=(0, 1), interval="a certificate about these very states"),
            "exact": Field("exactly none", "Whether weights are proved to exist that give 0 itself.", interval="a proof"),
            "support": Field("support", "States that hold the combination.", range=(1, None), unit="states",
                interval="a count"),
            "vanished": Field("vanished by", "States read when those kept had no direction any more.", range=(1, None),
                unit="states", undefined="it has not vanished", interval="a count"),
            "chance": Field("chance", "log₁₀ of the chance that as many random directions lie on one side.", range=(None, 0),
                interval="a formula (Cover 1965)"),
            "violated": Field("violated",
                "Share of the sample's second half on the wrong side of the first half's direction: what to expect of "
                "other text.",
                range=(0, 1), undefined="no such direction for the first half"),
            "states": Field("states", "How many states were looked at.", range=(1, None), unit="states", interval="a count"),
            "passes": Field("passes", "How often the states were read, the scan's own pass included.", range=(1, None),
                interval="a count"),
        },
    )  # fmt: skip
    passes: ClassVar[int] = 4

    def accumulators(self, setup: ProbeSetup) -> dict[str, Accumulator]:
        return {setup.last: NegativeSearch(setup.lens.width(setup.last))}

    def update(self, setup: ProbeSetup, key: str, accumulator: Accumulator, batch: SiteBatch) -> None:
        assert isinstance(accumulator, NegativeSearch)
        accumulator.add(batch.rows.flatten(0, 1))

    def again(self, setup: ProbeSetup, own: Mapping[str, Accumulator]) -> dict[str, Callable[[SiteBatch], None]]:
        wanted: dict[str, Callable[[SiteBatch], None]] = {}
        for site, search in own.items():
            assert isinstance(search, NegativeSearch)
            search.finish()
            if search.wanting:
                wanted[site] = lambda batch, search=search: search.add(batch.rows.flatten(0, 1))  # type: ignore[misc]
        return wanted

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        search = data.own.get(setup.last)
        found = search.found() if isinstance(search, NegativeSearch) else None
        if found is None:
            return []
        sampled = data.sample.get(setup.last)
        x = np.zeros((0, 1)) if sampled is None else sampled.double().numpy()
        return [{"site": setup.last, **_cells(found), **_violated(x), **_growth(x)}]


def _growth(x: npt.NDArray[np.float64]) -> Cells:
    sizes = [SMALLEST * 2**i for i in range(8) if SMALLEST * 2**i < len(x)] + ([len(x)] if len(x) else [])
    margins: list[float] = []
    for size in sizes:
        part = nearest_point(x[:size], tolerance=0.01)
        assert part is not None
        margins.append(part.lowest if part.verdict == "uniformly negative" else 0.0)
        if not margins[-1]:
            break
    return {"growth_states": [float(size) for size in sizes[: len(margins)]], "growth_margin": list(margins)}


def _cells(found: NearestPoint) -> Cells:
    return {
        "verdict": found.verdict, "margin": found.lowest if found.lowest > -1 else None, "distance": found.distance,
        "exact": found.exact if found.verdict == "none" else None, "support": len(found.support),
        "vanished": found.vanished, "chance": cover_log10(found.states, len(found.direction)),
        "states": found.states, "passes": found.passes,
    }  # fmt: skip


def _violated(x: npt.NDArray[np.float64]) -> Cells:
    half = nearest_point(x[: len(x) // 2], tolerance=None)
    if half is None or half.verdict != "uniformly negative":
        return {"violated": None}
    wrong = x[len(x) // 2 :] @ half.direction <= 0
    return {"violated": float(wrong.mean()), "violated_interval": wilson(int(wrong.sum()), len(wrong))}
