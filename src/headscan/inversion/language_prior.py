"""What the model itself would write: its next-token distribution along a draft, which orders candidates.

The tokens before a position are known when it is searched, those after it are not. A draft of what follows, the best tokens of
the readout, goes through the whole model in one pass with them: as long as the draft proves right, one pass serves
all positions of a window; where it was wrong, the rest is run again. A wrong draft costs time and nothing else.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headscan.inversion.readout import Readouts
from headscan.model.slicing import SlicedModel

WINDOW = 16
# Tokens before a window that the model reads with it.
CONTEXT = 64
# How much half the square of the readout's score counts beside the nats of the prior. Were outputs Gaussian, and their spread
# known, it would be 1; at blocks 13 and 27 of Qwen2.5-Coder-1.5B the true token stands foremost with this.
TRUST = 0.03


class TokenScores:
    """How well each token fits at the positions of one prompt: readout and, where it pays, prior.

    `goals` [T, w'] are the outputs given, `known` the tokens before the first of them, and `prior` says whether the model's own
    distribution counts. Memory: 3 x 16 numbers a token of the vocabulary.
    """

    def __init__(
        self, cut: SlicedModel, readouts: Readouts, goals: Float[Tensor, "T w"], known: list[int], *,
        allowed: Bool[Tensor, " V"] | None = None, prior: bool = False,
    ) -> None:  # fmt: skip
        self.cut, self.readouts, self.goals, self.known, self.allowed = cut, readouts, goals, known, allowed
        self.prior, self.begin = prior, -1
        self.draft: list[int] = []
        self._fit: Tensor | None = None  # scores of the readout in the window
        self._nats: Tensor | None = None  # the model's log-probabilities along the draft
        self._apart: tuple[list[int], Tensor] | None = None  # a draft, and predicted distances from its tokens

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

    def _open(self, begin: int) -> None:
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
        best: list[int] = self._scored().argmax(1).tolist()
        return best

    @torch.no_grad()
    def _look(self, found: list[int]) -> None:
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
