"""Scores of all tokens at the positions of one prompt: the readout, and the model's own prior.

The prior is the model's next-token distribution. The tokens before a position are known when it is
searched, those after it are not. A draft of what follows, the best tokens of the readout, goes
through the whole model in one pass with them: as long as the draft proves right, one pass serves
all positions of a window; where it was wrong, the positions after it are run again. A wrong draft
costs time and nothing else.
"""

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headscan.inversion.readout import ReadoutRanking, TokenReadout
from headscan.inversion.readout_fit import Readouts
from headscan.model.slicing import SlicedModel

DRAFT = 16  # positions of a window
CONTEXT = 64  # tokens before a window that the model reads with it
# Half the square of the readout's score would be the nats of the evidence, were outputs Gaussian
# and the covariance of the rest known. It is not: features err together, and however many there
# are, they say no more than INDEPENDENT independent ones. DOUBT is how often the model's
# distribution is taken to be wrong, all tokens being as likely: a model is sure also of what it
# never read. Both were chosen by trial (0.03 to 3 of the square, with doubt and without) on
# gpt-vanilla, SmolLM2-135M and Qwen2.5-Coder-1.5B, at middle and last blocks and caches in int8:
# 0.1 of it is best at a width of 1,536, 0.3 at 576 and 256, 3 at 128.
INDEPENDENT = 100
DOUBT = 0.1


@dataclass(eq=False)
class TokenScores:
    """The scores of each token at the positions of one prompt: readout and, if asked for, prior.

    Attributes:
        cut: the slice.
        readouts: its readouts.
        goals: the outputs given.
        known: the tokens before the first output.
        allowed: the tokens that may be returned; None: all.
        prior: whether the model's own distribution counts.
        begin: the first position of the window that is scored.
        draft: the tokens that are expected in it.
    """

    cut: SlicedModel
    readouts: Readouts
    goals: Float[Tensor, "T w"]
    known: list[int]
    allowed: Bool[Tensor, " V"] | None = None
    prior: bool = False
    begin: int = -1
    draft: list[int] = field(default_factory=list)
    _readout_scores: Tensor | None = None  # in the window
    _nats: Tensor | None = None  # log-probabilities of the prior along the draft

    def ranking(self, prefix: list[int]) -> ReadoutRanking:
        """Return the order of candidates at the position after the tokens `prefix`."""
        return ReadoutRanking(
            self.readout(prefix),
            self.cut.vectors,
            self.scores(prefix),
            self.goals[len(prefix)],
            self.allowed,
            learns=bool(prefix or self.known),
        )

    def scores(self, prefix: list[int]) -> Float[Tensor, " V"]:
        """Return the scores of all tokens after the tokens `prefix`, the larger the better."""
        position = len(prefix)
        begin = position - position % DRAFT
        if begin != self.begin:
            self._open(begin)
            if self.prior:
                # With the readout's draft, then with the better one that the prior makes of it.
                self._run_draft(prefix)
                self.draft = self._best()
                self._run_draft(prefix)
        elif self.prior and self.draft[: position - begin] != prefix[begin:]:
            self._run_draft(prefix)
        return self._scored()[position - begin]

    def readout(self, prefix: list[int]) -> TokenReadout:
        """Return the readout of the position after `prefix`; the first has one of its own."""
        return self.readouts.later if prefix or self.known else self.readouts.first

    def _open(self, begin: int) -> None:
        """Begin a window: score its positions by the readouts."""
        self.begin = begin
        goals = self.goals[begin : begin + DRAFT]
        first_goals = goals[:1] if begin == 0 and not self.known else goals[:0]
        later_goals = goals[len(first_goals) :]
        parts = []
        if len(first_goals):
            parts.append(self.readouts.first.scores(self.cut.vectors, first_goals))
        if len(later_goals):
            parts.append(self.readouts.later.scores(self.cut.vectors, later_goals))
        self._readout_scores = torch.cat(parts)
        if self.allowed is not None:
            self._readout_scores.masked_fill_(~self.allowed, float("-inf"))
        self._nats = None
        self.draft = self._best()

    def _scored(self) -> Tensor:
        scores = self._readout_scores
        assert scores is not None
        if self._nats is None:
            return scores
        trust = min(1.0, INDEPENDENT / len(self.readouts.later.mean))
        squares = scores.clamp_min(0).square().masked_fill(scores.isneginf(), float("-inf"))
        return trust / 2 * squares + self._nats

    def _best(self) -> list[int]:
        return list(self._scored().argmax(1).tolist())

    @torch.no_grad()
    def _run_draft(self, prefix: list[int]) -> None:
        """Compute the prior along the draft, which begins with the tokens found in the window."""
        tokens = prefix[self.begin :]
        self.draft = tokens + self.draft[len(tokens) :]
        context = (self.known + prefix[: self.begin])[-CONTEXT:]
        ids = torch.tensor([context + self.draft[:-1]], device=self.cut.lens.device)
        nats = self.goals.new_zeros(len(self.draft), self.cut.vocabulary_size)
        if ids.shape[1]:
            # A model has no distribution of a text's first token: its row stays zero.
            first_row = 0 if context else 1
            logits = self.cut.lens.run(ids, sites="head")["head"][0]
            in_window = logits[max(len(context) - 1, 0) :]
            shares = in_window.float().softmax(-1).nan_to_num()
            nats[first_row:] = ((1 - DOUBT) * shares + DOUBT / shares.shape[-1]).log()
        self._nats = nats


def prior_pays(cut: SlicedModel) -> bool:
    """Return whether the prior is worth two passes of the model a token.

    The model must say what follows, and the slice must be deep: a quarter of the sites at least.
    """
    sites = cut.lens.sites
    if "head" not in sites or cut.slice.embedding is not None or not cut.lens.traits.causal:
        return False
    if cut.lens.width("head") != cut.vocabulary_size or "head" in cut.sites:
        return False
    deepest = max(sites.index(site) for site in cut.sites)
    return deepest >= len(sites) / 4
