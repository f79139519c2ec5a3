"""What the model itself would write: its next-token distribution along a draft, which orders candidates.

The tokens before a position are known when it is searched, those after it are not. A draft of what follows, the best tokens of
the readout, goes through the whole model in one pass with them: as long as the draft proves right, one pass serves
all positions of a window; where it was wrong, the rest is run again. A wrong draft costs time and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headscan.inversion.fitting import read_text
from headscan.inversion.table import ReadoutSums, TokenReadout
from headscan.model.slicing import SlicedModel
from headscan.run import Progress

WINDOW = 16
# Tokens before a window that the model reads with it.
CONTEXT = 64
# How much half the square of the readout's score counts beside the nats of the prior. Were outputs Gaussian, and their spread
# known, it would be 1; at blocks 13 and 27 of Qwen2.5-Coder-1.5B the true token stands foremost with this.
TRUST = 0.03

Readouts = Callable[[bool], TokenReadout]
"""The readout of a first position (True) or of a later one (False)."""


class Outlook:
    """How well each token fits at the positions of one prompt: readout and, where it pays, prior.

    Args:
        cut: the slice.
        readouts: its readouts.
        goals: [T, w'] the outputs given.
        known: tokens that come before the first of them.
        prior: whether the model's own distribution counts.

    Memory: 3 x 16 numbers a token of the vocabulary.
    """

    def __init__(
        self, cut: SlicedModel, readouts: Readouts, goals: Float[Tensor, "T w"], known: list[int], *,
        allowed: Bool[Tensor, " V"] | None = None, prior: bool = False,
    ) -> None:  # fmt: skip
        self.cut, self.readouts, self.goals, self.known, self.allowed = cut, readouts, goals, known, allowed
        self.prior = prior
        self.begin = -1
        self.draft: list[int] = []
        self._fit: Tensor | None = None
        self._nats: Tensor | None = None
        self._apart: tuple[list[int], Tensor] | None = None

    def scores(self, found: list[int]) -> Float[Tensor, " V"]:
        """The scores of all tokens at the position after `found`, the larger the better."""
        place = len(found)
        begin = place - place % WINDOW
        if begin != self.begin:
            self._open(begin)
            if self.prior:
                self._look(found)  # with the readout's draft, then with the better one that the prior makes of it
                self.draft = self._best()
                self._look(found)
        elif self.prior and self.draft[: place - begin] != found[begin:]:
            self._look(found)
        return self._scored()[place - begin]

    def alone(self, found: list[int]) -> Float[Tensor, " V"] | None:
        """The readout's own scores at the position that `scores` was last asked for; None where no prior counts."""
        return None if self._nats is None or self._fit is None else self._fit[len(found) - self.begin]

    def apart(self, found: list[int], token: int) -> Float[Tensor, " V"]:
        """How far the output of every token is predicted to be from that of `token`, at the position after `found`.

        One product serves the tokens of a whole draft: the table of vectors is read once in a window, not once a token.
        """
        place = len(found) - self.begin
        if not found and not self.known:  # alone, a token is read out otherwise
            return self.readouts(True).distances(self.cut.vectors, torch.tensor([token]))[0]
        readout = self.readouts(False)
        if self._apart is None:
            self._apart = list(self.draft), readout.distances(self.cut.vectors, torch.tensor(self.draft))
        draft, distances = self._apart
        return (
            distances[place] if draft[place] == token else readout.distances(self.cut.vectors, torch.tensor([token]))[0]
        )

    def state(self) -> tuple[int, list[int]]:
        """Where the window begins and the draft that was looked at last: with it, `restore` gives the same scores."""
        return self.begin, list(self.draft)

    def restore(self, found: list[int], begin: int, draft: list[int]) -> None:
        """Take up a state where the tokens `found` are known."""
        if begin >= 0:
            self._open(begin)
            self.draft = draft
            if self.prior:
                self._look(found[:begin] + draft)

    def _open(self, begin: int) -> None:
        """The readout's scores of a window."""
        self.begin = begin
        goals, parts = self.goals[begin : begin + WINDOW], []
        for first in (True, False):
            lone = begin == 0 and not self.known
            some = goals[:1] if first and lone else goals[:0] if first else goals[1:] if lone else goals
            if len(some):
                parts.append(self.readouts(first).scores(self.cut.vectors, some))
        self._fit = torch.cat(parts)
        if self.allowed is not None:
            self._fit.masked_fill_(~self.allowed, float("-inf"))
        self._nats = self._apart = None
        self.draft = self._best()

    def _scored(self) -> Tensor:
        assert self._fit is not None
        if self._nats is None:
            return self._fit
        return TRUST / 2 * self._fit.clamp_min(0).square().masked_fill(self._fit.isneginf(), float("-inf")) + self._nats

    def _best(self) -> list[int]:
        found: list[int] = self._scored().argmax(1).tolist()
        return found

    @torch.no_grad()
    def _look(self, found: list[int]) -> None:
        """The prior along the tokens found and, after them, the draft."""
        inside = found[self.begin :]
        self.draft = inside + self.draft[len(inside) :]
        before = (self.known + found[: self.begin])[-CONTEXT:]
        ids = torch.tensor([before + self.draft[:-1]], device=self.cut.lens.device)
        skipped = 0 if before else 1  # of a text's first token the model says nothing
        nats = self.goals.new_zeros(len(self.draft), self.cut.vocabulary_size)
        if ids.shape[1]:
            logits = self.cut.lens.run(ids, sites="head")["head"][0, max(len(before) - 1, 0) :].float()
            nats[skipped:] = logits.log_softmax(-1).nan_to_num(nan=0.0, neginf=-1e4)
        self._nats = nats


def prior_pays(cut: SlicedModel) -> bool:
    """Whether the model says what follows, and the slice is so deep that asking it costs little beside the search.

    Two passes of the whole model a token stand against some thirty of the slice: worth it from a quarter of the depth.
    """
    sites = cut.lens.sites
    if "head" not in sites or cut.slice.embedding is not None or not cut.lens.traits.causal:
        return False
    if cut.lens.width("head") != cut.vocabulary_size or any(site == "head" for site in cut.sites):
        return False
    return max(map(sites.index, cut.sites)) >= len(sites) / 4


# ---- Reading all tokens of a prompt at once, and again near what was read: starts for the joint search.
#
# Where the output of every position is given, a linear readout (`headscan.inversion.table`) tells which tokens fit each. Fitted
# on other texts it must see the token through whatever any context adds; fitted on texts that differ from a guess in a part of
# their tokens it sees it through what nearly this context adds, which is known by then. So the guess is read, and the readout
# fitted again around it, some rounds: deep in an encoder, where gradients lead astray, that is the nearer start.

TOKENS, LEAST = 6144, 512
"""Of a fit, at most and at least; between them 8 for each feature and each number of a vector."""
ROUNDS, EXCHANGED, LISTED = 4, 0.4, 64
"""Fits at most; the share of a guess at which each text of a later fit has other tokens; so many of a list are drawn from, for
half of them, the others from the whole vocabulary."""
BATCH = 64


@dataclass(frozen=True)
class ReadTokens:
    """What was read: guesses [n, T], and of the last fit the scores [T, V] of all tokens."""

    guesses: Int[Tensor, "n T"]
    scores: Float[Tensor, "T V"]


def can_read(cut: SlicedModel, length: int) -> bool:
    """Whether the slice gives the output of every position."""
    return cut.slice.pool is None and cut.kept(length) == list(range(length))


@torch.no_grad()
def read_tokens(
    cut: SlicedModel, target: Float[Tensor, "T w"], length: int, *, known: dict[int, int] | None = None,
    allowed: Bool[Tensor, " V"] | None = None, seed: int = 0, progress: Progress | None = None,
) -> ReadTokens:  # fmt: skip
    """Guess all tokens of a prompt from its outputs.

    Args:
        cut: a slice for which `can_read`.
        target: [T, w'].
        length: T.
        known: tokens that are given, by position.
        allowed: bool [V].
        seed: of the texts that are fitted on.
        progress: told the fits done.

    Cost: 4 fits at most, each a pass of 6,144 tokens (fewer in narrow models) and V e² products.
    """
    generator, device = torch.Generator().manual_seed(seed), cut.lens.device
    goal, known = target.to(device).float(), known or {}
    free = [place for place in range(length) if place not in known]
    choice = torch.arange(cut.vocabulary_size) if allowed is None else allowed.cpu().nonzero()[:, 0]
    rows = _elsewhere(cut, length, choice, generator)
    guesses: list[Tensor] = []
    scores = torch.zeros(length, cut.vocabulary_size, device=device)
    for number in range(ROUNDS):
        for place, token in known.items():
            rows[:, place] = token
        sums = ReadoutSums(cut.width)
        for some in rows.to(device).split(BATCH):
            vectors = cut.embed(some)
            sums.update(
                vectors[:, free].flatten(0, 1), cut.states(inputs_embeds=vectors).float()[:, free].flatten(0, 1)
            )
        scores = sums.solve(cut.vectors).scores(cut.vectors, goal)
        if allowed is not None:
            scores = scores.masked_fill(~allowed.to(device), float("-inf"))
        guess = scores.argmax(-1).cpu()
        for place, token in known.items():
            guess[place] = token
        if any(torch.equal(guess, one) for one in guesses):
            break
        guesses.append(guess)
        if progress:
            progress("reading all tokens", number + 1, ROUNDS, "fits")
        lists = scores.topk(min(LISTED, len(choice)), -1).indices.cpu()
        rows = _around(guess, lists, choice, _tokens(cut), generator)
    return ReadTokens(torch.stack(guesses[::-1]).to(device), scores)


def _tokens(cut: SlicedModel) -> int:
    return min(TOKENS, max(LEAST, 8 * (cut.width + cut.vectors.shape[1])))


def _elsewhere(cut: SlicedModel, length: int, choice: Tensor, generator: torch.Generator) -> Tensor:
    """Texts of this length: of the embedded sample, and of tokens drawn from the vocabulary."""
    count = max(2, _tokens(cut) // length)
    ids = read_text(cut, None, count // 2 * length)
    written = ids[: len(ids) // length * length].reshape(-1, length)
    drawn = choice[torch.randint(0, len(choice), (count - len(written), length), generator=generator)]
    return torch.cat([written, drawn])


def _around(guess: Tensor, lists: Tensor, choice: Tensor, tokens: int, generator: torch.Generator) -> Tensor:
    """Texts that differ from a guess in a part of their tokens."""
    count, length = max(2, tokens // len(guess)), len(guess)
    near = lists[torch.arange(length), torch.randint(0, lists.shape[1], (count, length), generator=generator)]
    far = choice[torch.randint(0, len(choice), (count, length), generator=generator)]
    other = torch.where(torch.rand(count, length, generator=generator) < 0.5, near, far)
    return torch.where(torch.rand(count, length, generator=generator) < EXCHANGED, other, guess)
