"""Candidates for the next token: in which order they are tried, what they gave, and what was found
for a whole prompt.
"""

import contextlib
import hashlib
import json
import os
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import torch
from jaxtyping import Bool, Float
from safetensors.torch import load_file, save
from torch import Tensor

from headscan.inversion.reconstruction import Evidence, accepts, relative
from headscan.model.slicing import SlicedModel
from headscan.model.slicing.prefix import Prefix
from headscan.model.slicing.specification import split_on_exhaustion
from headscan.run import Progress, write_atomic

RIVAL = (
    4.0  # a token is a rival of the best one if its residual is less than so many times as large
)


class Ranking:
    """Candidates by a score [V], the largest first; none is given twice."""

    def __init__(
        self, scores: Float[Tensor, " V"], allowed: Bool[Tensor, " V"] | None = None
    ) -> None:
        self.scores = scores
        self.done = torch.zeros(len(scores), dtype=torch.bool, device=scores.device)
        if allowed is not None:
            self.done |= ~allowed

    def far(self) -> Float[Tensor, " V"]:
        """How far every token is predicted to be from the target, up to a monotonic map."""
        return -self.scores

    def apart(self, token: int) -> Float[Tensor, " V"]:
        """How far every token is predicted to be from `token`, which was tried."""
        return self.far()

    def learn(self, tokens: Tensor, outputs: Tensor) -> None:
        """Take note of what candidates gave: [n] tokens, [n, w'] outputs."""

    def next(self, count: int) -> Tensor:
        """The best candidates not tried yet, at most `count`; none when all were given."""
        return self._nearest_left(self.far(), min(count, int((~self.done).sum())))

    def near(self, token: int, count: int) -> Tensor:
        """The candidates not tried yet whose output is predicted nearest to that of `token`, which
        was tried.
        """
        return self._nearest_left(self.apart(token), min(count, int((~self.done).sum())))

    def _nearest_left(self, far: Tensor, count: int) -> Tensor:
        best = (
            far.masked_fill(self.done, float("inf")).topk(count, largest=False, sorted=True).indices
        )
        self.done[best] = True
        return best


# ---- The cached table: what a slice returns for every token of the vocabulary, at the first position and after some text.

WORTH_KEEPING = 8_000_000  # below this many numbers a table is made faster than it is read
VERSION = 4
# tokens before the table's second part: enough that attention is shared out, few enough to cost
# nothing
CONTEXT = 4
STEP = 512


@dataclass
class FirstPositions:
    """Outputs of every token, alone and after a few random tokens, and what is computed from them
    once.
    """

    outputs: Float[Tensor, "V w"]  # F_0: float32, at position 0, with nothing before it
    change: Float[Tensor, "V w"]  # F_c - F_0: what a short text before it changes
    built: int = 0  # tokens that were run now; 0 if it was read from disk

    @cached_property
    def products(self) -> Float[Tensor, "3 V"]:
        """F_0.F_0, F_0.change and change.change of each token."""
        parts = [
            torch.stack([(f * f).sum(1), (f * g).sum(1), (g * g).sum(1)])
            for f, g in zip(self.outputs.split(4096), self.change.split(4096), strict=True)
        ]
        return torch.cat(parts, dim=1)


def table_of(cut: SlicedModel, *, progress: Progress | None = None) -> FirstPositions:
    """The table of a slice: from memory, from the cache folder (large ones are kept), or by two
    passes of the vocabulary.
    """
    return cut.once("table of one-token outputs", lambda: _read_or_build(cut, progress))


def _read_or_build(cut: SlicedModel, progress: Progress | None) -> FirstPositions:
    path = (
        cache_path(cut, "tables", VERSION)
        if cut.vocabulary_size * cut.width >= WORTH_KEEPING
        else None
    )
    if path is not None and path.is_file():
        saved = load_file(path)
        return FirstPositions(
            saved["outputs"].to(cut.lens.device), saved["change"].to(cut.lens.device)
        )
    table = _build(cut, progress)
    if path is not None:
        write_cache(path, {"outputs": table.outputs, "change": table.change})
    return table


@torch.no_grad()
def _build(cut: SlicedModel, progress: Progress | None) -> FirstPositions:
    length = min(CONTEXT, (cut.lens.context_length or CONTEXT + 1) - 1)
    prefix = Prefix(
        cut,
        torch.randint(
            0, cut.vocabulary_size, (1, length), generator=torch.Generator().manual_seed(0)
        ),
    )
    parts: list[list[Tensor]] = [[], []]
    done = 0
    batch = STEP
    for number, before in enumerate((Prefix(cut, prefix.ids[:, :0]), prefix)):
        for tokens in torch.arange(cut.vocabulary_size, device=cut.lens.device).split(STEP):
            if before.length:
                found = before.evaluate(torch.zeros_like(tokens), tokens)
            else:
                # Without a cache: at the first position there is nothing to read from it.
                def run(part: slice, tokens: Tensor = tokens) -> Tensor:
                    return cut.states(inputs_embeds=cut.embed(tokens[part])[:, None])[:, 0].float()

                found, batch, _ = split_on_exhaustion(run, len(tokens), batch)
            parts[number].append(found)
            done += len(tokens)
            if progress:
                progress("table of the vocabulary", done, 2 * cut.vocabulary_size, "tokens")
        if not prefix.length:  # a model of one position has no later ones
            parts[1] = [torch.zeros_like(one) for one in parts[0]]
            break
    # What is no number predicts nothing; the candidates themselves are judged by what they really
    # give.
    outputs, later = (torch.cat(part).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0) for part in parts)
    return FirstPositions(outputs, later - outputs if prefix.length else later, built=done)


def write_cache(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write tensors to the cache folder; a cache that cannot be written costs time, not
    correctness.
    """
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(
            path, save({name: value.cpu().contiguous() for name, value in tensors.items()})
        )


def cache_path(cut: SlicedModel, kind: str, version: int) -> Path:
    """Where something made of a slice is kept between runs: equal for equal weights and slices,
    whoever loaded them.
    """
    folder = Path(os.environ.get("HEADSCAN_CACHE") or Path.home() / ".cache" / "headscan")
    what = {
        "version": version,
        "weights": cut.lens.identity(),
        "class": type(cut.lens.model).__name__,
        "dtype": str(cut.lens.input_embeddings.dtype),
        "slice": cut.document(),
    }
    name = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()
    return folder / kind / f"{name[:32]}.safetensors"


# ---- Candidates by the table of all first outputs: what is cheap and best for vocabularies of some ten thousand tokens.
#
# The output at position t of a token v after a prefix, F_t(v), is not known before it is computed,
# but F_0(v), at the first position, and F_c(v), after some other text, are in the cached table.
# Every candidate that was tried, right or wrong, tells F_t at one token: from them a and a shift
# are fitted in F_t = F_0 + a (F_c - F_0) + shift, and candidates are ranked by the distance of the
# predicted F_t(v) to the target. What was fitted at one position is the first guess at the next.

# candidates beyond so many add time and little else to a fit, and so many are its shift
MOST = 192
NEAREST = 8


@dataclass(frozen=True)
class Fit:
    """F_t as the anchors tell it: F_0 + share (F_c - F_0) + shift."""

    share: float
    shift: Tensor


class TableRanking(Ranking):
    """Candidates by the predicted distance of their output to the target [w']; the first guess
    `fit` is the last position's.
    """

    def __init__(
        self, table: FirstPositions, target: Tensor, allowed: Tensor | None, fit: Fit | None
    ) -> None:
        super().__init__(table.outputs[:, 0], allowed)
        self.table = table
        self.target = target
        self.tokens = torch.empty(0, dtype=torch.int64, device=target.device)
        self.outputs = target.new_empty(0, len(target))
        self.guess = fit or Fit(0.0, torch.zeros_like(target))
        self._fit: Fit | None = None

    def far(self) -> Float[Tensor, " V"]:
        return self._distances(self.target)

    def apart(self, token: int) -> Float[Tensor, " V"]:
        return self._distances(self.outputs[(self.tokens == token).nonzero()[-1, 0]])

    def learn(self, tokens: Tensor, outputs: Tensor) -> None:
        self.tokens = torch.cat([self.tokens, tokens])
        self.outputs = torch.cat([self.outputs, outputs])
        self._fit = None

    def fit(self) -> Fit:
        if self._fit is None:
            self._fit = self._fitted() if len(self.tokens) else self.guess
        return self._fit

    def _fitted(self) -> Fit:
        order = (
            (self.outputs - self.target)
            .norm(dim=1)
            .topk(min(MOST, len(self.tokens)), largest=False)
            .indices
        )
        tokens = self.tokens[order]
        outputs = self.outputs[order]
        change = self.table.change[tokens]
        rest = outputs - self.table.outputs[tokens]
        centred = change - change.mean(0)
        strength = (centred**2).sum()
        # The first guess counts as much as two candidates do.
        prior = 2 * (change**2).sum(1).mean()
        slope = ((centred * rest).sum() + prior * self.guess.share) / (strength + prior).clamp_min(
            1e-30
        )
        share = float(slope) if float(strength + prior) > 0 else 0.0
        return Fit(share, (rest - share * change)[:NEAREST].mean(0))

    def _distances(self, goal: Tensor) -> Tensor:
        table = self.table
        fit = self.fit()
        plain, mixed, changed = table.products
        rest = goal - fit.shift
        scores: Tensor = plain - 2 * (table.outputs @ rest)
        if fit.share:
            scores = scores + 2 * fit.share * (mixed - table.change @ rest) + fit.share**2 * changed
        return scores


# ---- What was tried.


class Candidates:
    """The tokens tried for one prompt at one position, with the relative residual ||O - O*|| /
    ||O*|| of each.
    """

    def __init__(self, ranking: Ranking, goal: Tensor) -> None:
        self.ranking = ranking
        self.goal = goal
        self.tokens: list[Tensor] = []
        self.residuals: list[Tensor] = []
        self.count = self.searching = (
            0  # candidates tried, and those of them that were tried to find the token
        )
        self.best = float("inf")
        self.token = 0
        self.beside: int | None = (
            None  # the token whose neighbours were tried with the first candidates
        )
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
            self.best = float(low)
            self.token = int(tokens[place])
        self.ranking.learn(tokens, outputs)

    def runner_up(self, twins: list[int]) -> float:
        """The least residual of a token that is none of `twins`."""
        tokens, residuals = self.sorted()
        return next(
            (r for token, r in zip(tokens, residuals, strict=True) if token not in twins),
            float("inf"),
        )

    def sorted(self) -> tuple[list[int], list[float]]:
        """The best 256 of the tokens tried with their residuals, best first."""
        residuals = torch.cat(self.residuals)
        tokens = torch.cat(self.tokens)
        order = residuals.argsort()[:256]
        return tokens[order].tolist(), residuals[order].tolist()


@dataclass(frozen=True)
class Step:
    """What was found at one position of a prompt."""

    token: int
    rivals: tuple[int, ...]  # other tokens that cannot be told from the one found
    evidence: Evidence
    evaluations: int  # candidates tried until the token was found
    failed: bool  # no token came within the tolerance: the nearest was taken
    tried_all: bool  # no candidate was left

    def exchanged(self) -> "Step":
        """The same with the first rival taken in place of the token found; the token is no rival."""
        rival, *rest = self.rivals
        return replace(
            self,
            token=rival,
            rivals=tuple(rest),
            evidence=self.evidence.exchanged(self.token, rival),
        )


@dataclass
class SearchTrace:
    """What a search from left to right found for one prompt, position by position."""

    steps: list[Step] = field(default_factory=list)
    backtracks: int = 0  # prefixes taken back
    passes: int = 0  # token positions run
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def tokens(self) -> list[int]:
        return [step.token for step in self.steps]

    @property
    def residuals(self) -> list[float]:
        return [step.evidence.residual for step in self.steps]

    @property
    def rivals(self) -> list[tuple[int, ...]]:
        return [step.rivals for step in self.steps]

    @property
    def evaluations(self) -> list[int]:
        return [step.evaluations for step in self.steps]

    @property
    def failed(self) -> list[int]:
        return [place for place, step in enumerate(self.steps) if step.failed]

    @property
    def exhausted(self) -> bool:
        return all(step.tried_all for step in self.steps if step.failed)

    def upto(self, length: int) -> "SearchTrace":
        """A copy of the first positions; the work done stays counted."""
        return replace(self, steps=self.steps[:length], notes=list(self.notes))

    def add(
        self, tried: Candidates, tolerance: float, floor: float, twins: list[int], choice: int
    ) -> None:
        """Go one position further, with the best candidate there; `floor` is what rounding may
        cause, `twins` have its vector.
        """
        tokens, residuals = tried.sorted()
        limit = max(RIVAL * tried.best, floor)
        rivals = [
            token
            for token, r in zip(tokens, residuals, strict=True)
            if r <= limit and token != tried.token
        ]
        every = torch.cat(tried.tokens)
        values = torch.cat(tried.residuals)
        evidence = Evidence.of(
            every, values, tried.token, tolerance=tolerance, choice=choice, twins=tuple(twins)
        )
        rivals += [token for token in twins if token not in rivals and token != tried.token]
        failed = not accepts(tried.best, tolerance)
        self.steps.append(
            Step(tried.token, tuple(rivals), evidence, tried.searching, failed, tried.tried_all)
        )
