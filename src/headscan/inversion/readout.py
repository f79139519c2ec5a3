"""Which tokens fit an output of a slice, told for the whole vocabulary by one product; fitted in
one pass, and cached.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Bool, Float, Int
from safetensors import SafetensorError, safe_open
from torch import Tensor

from headscan.inversion.candidates import Ranking, cache_path, write_cache
from headscan.model.slicing import SlicedModel
from headscan.run import BadInput, Progress
from headscan.text import documents, tokenise

# A slice's output is modelled as h = F (e_v - mean of e) + mean of h + rest, with e_v the vector of
# the token that went in and a rest, of covariance S, that other tokens and the model's curves
# cause. F is a ridge regression from vectors to outputs. A token is scored by the cosine, in the
# metric of S, of h - mean of h with what F gives for it:
#
#     score(v) = (h - mean)' S^-1 F (e_v - mean) / ||F (e_v - mean)||_S
#
# the likelihood of h where it is not known how strongly a token shows (a matched filter). Without
# the length, tokens that were never trained, which lie together near the mean, come before every
# rare token. All sums are streamed, in one pass.

WIDEST = 4096  # of outputs wider than this (logits) so many features are read, evenly spaced
# the rest's covariance is shrunk to its diagonal by this share and one that falls with the tokens
# seen
SHRUNK = 1e-3
# of the vectors' mean variance, times vectors' width over tokens: as many as dimensions would be
# learned by heart
RIDGE = 0.15
ROWS = 8192


@dataclass(frozen=True, eq=False)
class TokenReadout:
    """The scores of all tokens for outputs of a slice."""

    mean: Float[Tensor, " w"]  # of the outputs, of the features read
    centre: Float[Tensor, " e"]  # mean of the vectors
    filter: Float[Tensor, "w e"]  # S^-1 F
    # F' S^-1 F, by which the predicted outputs of two tokens lie apart
    metric: Float[Tensor, "e e"]
    lengths: Float[Tensor, " V"]  # ||F (e_v - centre)|| in that metric
    columns: Int[Tensor, " w"] | None = None  # the features that are read; None: all

    def scores(
        self, vectors: Float[Tensor, "V e"], outputs: Float[Tensor, "N w"]
    ) -> Float[Tensor, "N V"]:
        """How well each token fits each output; the larger the better, in units of the rest's
        standard deviation.
        """
        wanted = self._filtered(outputs)
        along = _products(vectors, wanted.T).T - (wanted @ self.centre)[:, None]
        return along / self.lengths.clamp_min(1e-20)

    def _filtered(self, outputs: Float[Tensor, "*N w"]) -> Float[Tensor, "*N e"]:
        seen = outputs if self.columns is None else outputs[..., self.columns]
        return (seen - self.mean) @ self.filter

    def missed(
        self, vectors: Float[Tensor, "N e"], outputs: Float[Tensor, "N w"]
    ) -> Float[Tensor, "N e"]:
        """What outputs have beside what F gives for these vectors, as the filter sees it."""
        return self._filtered(outputs) - (vectors.float() - self.centre) @ self.metric

    def nearness(
        self, vectors: Float[Tensor, "V e"], output: Float[Tensor, " w"], shift: Float[Tensor, " e"]
    ) -> Float[Tensor, " V"]:
        """Minus half the squared distance of what F gives for each token to an output less a shift,
        up to a constant.
        """
        wanted = self._filtered(output) - shift
        return _products(vectors, wanted[:, None])[:, 0] - self.lengths.square() / 2

    def distances(
        self, vectors: Float[Tensor, "V e"], tokens: Int[Tensor, " N"]
    ) -> Float[Tensor, "N V"]:
        """The squared distance of every token's predicted output from those of `tokens`, each row
        up to a constant.
        """
        toward = self.metric @ (vectors[tokens].float() - self.centre).T
        return self.lengths.square() - 2 * _products(vectors, toward).T


NEAREST = 8  # candidates whose outputs tell what the context adds
LEARNED = (
    4.0  # nats that a standard deviation of the nearness that they tell counts beside the prior
)


class ReadoutRanking(Ranking):
    """Candidates by the readout and the prior; once some were tried, two of three by what those
    really gave.

    What an output has of other tokens, the readout takes for noise. But every candidate that was
    tried, right or wrong, has the same of them: what the nearest tried ones have beside what F
    gives is taken from the target, and tokens are ranked by the distance of what F gives for them
    to what is left. Three orders take turns: the first one, this nearness, and the sum of both.
    Nearness alone finds tokens that the first order puts last, and is far off in deep blocks of
    wide models, where the sum is best; none is right everywhere. The first position has no other
    tokens and learns nothing.
    """

    def __init__(
        self,
        scores: "TokenScores",
        found: list[int],
        target: Float[Tensor, " w"],
        allowed: Bool[Tensor, " V"] | None,
    ) -> None:
        self.readout = scores.readout(found)
        self.vectors = scores.cut.vectors
        self.target = target
        super().__init__(scores.scores(found), allowed)
        self.before = self.scores
        self.first = not found and not scores.known
        self.tried: list[
            tuple[Tensor, Tensor]
        ] = []  # distance to the target [n], and what F misses [n, e]

    def apart(self, token: int) -> Float[Tensor, " V"]:
        return self.readout.distances(self.vectors, torch.tensor([token]))[0]

    def learn(self, tokens: Tensor, outputs: Tensor) -> None:
        fine = outputs.isfinite().all(1)
        if self.first or not bool(fine.any()):
            return
        tokens = tokens[fine]
        outputs = outputs[fine]
        if not self.tried:
            self.ranks = _ranks(self.before)
        self.tried.append(
            (
                (outputs - self.target).norm(dim=1),
                self.readout.missed(self.vectors[tokens], outputs),
            )
        )
        far, missed = (torch.cat(parts) for parts in zip(*self.tried, strict=True))
        shift = missed[far.topk(min(NEAREST, len(far)), largest=False).indices].mean(0)
        near = self.readout.nearness(self.vectors, self.target, shift)
        both = self.before + LEARNED * near / near.std().clamp_min(1e-20)
        self.scores = -torch.stack([self.ranks, _ranks(near), _ranks(both)]).amin(0).float()


def _ranks(scores: Float[Tensor, " V"]) -> Int[Tensor, " V"]:
    """The place of each in the order from the largest down."""
    return scores.argsort(descending=True).argsort()


class ReadoutSums:
    """Streamed second moments of outputs and vectors together, from which a `TokenReadout` is
    solved.
    """

    def __init__(self, width: int) -> None:
        self.columns = (
            None if width <= WIDEST else torch.linspace(0, width - 1, WIDEST).round().long()
        )
        self.count = 0
        self._sums: tuple[Tensor, Tensor] | None = None
        self._origin: Tensor | None = (
            None  # the mean of the first rows, around which sums are taken
        )

    def update(self, vectors: Float[Tensor, "N e"], outputs: Float[Tensor, "N w"]) -> None:
        """Add tokens' vectors and what the slice gave for them; those with NaN or infinity are left
        out.
        """
        seen = outputs if self.columns is None else outputs[:, self.columns.to(outputs.device)]
        both = torch.cat([vectors.double(), seen.double()], dim=1)
        both = both[both.isfinite().all(1)]
        if not len(both):
            return
        if self._origin is None or self._sums is None:
            self._origin = both.mean(0)
            self._sums = (
                torch.zeros_like(self._origin),
                both.new_zeros(both.shape[1], both.shape[1]),
            )
        both = both - self._origin
        self._sums[0].add_(both.sum(0))
        self._sums[1].addmm_(both.T, both)
        self.count += len(both)

    def solve(self, vectors: Float[Tensor, "V e"]) -> TokenReadout:
        """The readout of a vocabulary [V, e]. Cost: V e^2 + (w + e)^3 products."""
        assert self._sums is not None
        assert self._origin is not None
        width = vectors.shape[1]
        shift = self._sums[0] / self.count
        mean = self._origin + shift
        moment = self._sums[1] / self.count - torch.outer(shift, shift)
        inputs = moment[:width, :width]
        cross = moment[:width, width:]
        outputs = moment[width:, width:]
        ridge = RIDGE * width / self.count * float(inputs.diagonal().mean())
        forward = _solved(inputs, cross, torch.full_like(inputs[0], ridge))
        explained = forward.T @ cross
        rest = outputs - explained - explained.T + forward.T @ inputs @ forward
        share = SHRUNK + len(rest) / (8 * self.count)
        fitting = _solved(
            rest, forward.T, share * rest.diagonal() + 1e-12 * outputs.diagonal().mean()
        )
        metric = forward @ fitting
        centre = mean[:width].float()
        narrow = metric.float()
        moved = (rows.float() - centre for rows in vectors.split(ROWS))
        squares = [(rows @ narrow * rows).sum(1) for rows in moved]
        return TokenReadout(
            mean=mean[width:].float(),
            centre=centre,
            filter=fitting.float(),
            metric=narrow,
            lengths=torch.cat(squares).clamp_min(0).sqrt(),
            columns=self.columns,
        )


def _products(vectors: Tensor, right: Tensor) -> Tensor:
    return torch.cat([rows.float() @ right for rows in vectors.split(ROWS)])


def _solved(matrix: Tensor, right: Tensor, ridge: Tensor) -> Tensor:
    return torch.as_tensor(torch.linalg.solve(matrix + torch.diag(ridge.clamp_min(1e-30)), right))


# ---- The pass that fits the readouts of a slice, and the folder that keeps them.

# Tokens of the pass: windows, a third of them of the text, the rest of tokens drawn from the whole
# vocabulary (a text has few of them, and for its own the prior is the better guide); and tokens
# that stand alone, for first positions.
WINDOWS = 6144
LONE = 2048
TOKENS = WINDOWS + LONE
LENGTH = 128
BATCH = 512
VERSION = 4


@dataclass(frozen=True, eq=False)
class Readouts:
    """The readouts of a slice."""

    # of the outputs at position 0, where models keep a sink that is like no other state
    first: TokenReadout
    later: TokenReadout  # of all other outputs
    passes: int = 0  # tokens that were run now; 0 if they were read from disk


def readouts_of(cut: SlicedModel, *, progress: Progress | None = None) -> Readouts:
    """The readouts of a slice: from memory, from the cache folder, or by one pass of at most 8,192
    tokens.
    """

    def made() -> Readouts:
        path = cache_path(cut, "readouts", VERSION)
        if (readouts := _read(path, cut)) is None:
            readouts = _fit(cut, _batches(cut), progress)
            _write(path, readouts)
        return readouts

    return cut.once("readouts", made)


def _batches(cut: SlicedModel) -> list[Int[Tensor, "B T"]]:
    vocabulary = cut.vocabulary_size
    generator = torch.Generator().manual_seed(0)
    length = max(2, min(LENGTH, cut.lens.context_length or LENGTH))
    rows = max(3, WINDOWS // length)
    ids = read_stories(cut, rows // 3 * length)
    written = ids[: len(ids) // length * length].reshape(-1, length)
    drawn = torch.randint(0, vocabulary, (rows - len(written), length), generator=generator)
    seen = ids.unique()
    common = seen[torch.randperm(len(seen), generator=generator)[: LONE // 3]]
    alone = torch.cat(
        [common, torch.randperm(vocabulary, generator=generator)[: LONE - len(common)]]
    )
    at_once = max(1, BATCH // length)
    parts = [*written.split(at_once), *drawn.split(at_once), *alone[:, None].split(BATCH)]
    return [ids for ids in parts if len(ids)]


def read_stories(cut: SlicedModel, count: int) -> Int[Tensor, " N"]:
    """The first tokens of the embedded stories; none where the model has no tokenizer."""
    if cut.lens.tokenizer is None:
        return torch.empty(0, dtype=torch.int64)
    parts: list[Tensor] = []
    for stretch in tokenise(documents("stories"), cut.lens.tokenizer):
        parts.append(torch.as_tensor(stretch.ids, dtype=torch.int64))
        if sum(map(len, parts)) >= count:
            break
    ids = torch.cat(parts)[:count]
    return ids[ids < cut.vocabulary_size]


@torch.no_grad()
def _fit(cut: SlicedModel, batches: list[Tensor], progress: Progress | None) -> Readouts:
    first = ReadoutSums(cut.width)
    later = ReadoutSums(cut.width)
    done = 0
    for ids in batches:
        vectors = cut.embed(ids.to(cut.lens.device))
        outputs = cut.states(inputs_embeds=vectors).float()
        first.update(vectors[:, 0], outputs[:, 0])
        if ids.shape[1] > 1:
            later.update(vectors[:, 1:].flatten(0, 1), outputs[:, 1:].flatten(0, 1))
        done += ids.numel()
        if progress:
            progress("fit of the readout", done, sum(ids.numel() for ids in batches), "tokens")
    if not first.count + later.count:
        raise BadInput(
            f"The model gives no finite number at {cut.slice}: its outputs overflow, nothing can "
            "be read from them."
        )
    # A model of one position has no later ones.
    solved = [part.solve(cut.vectors) for part in (first, later) if part.count]
    return Readouts(solved[0], solved[-1], done)


def _read(path: Path, cut: SlicedModel) -> Readouts | None:
    try:
        with safe_open(path, "pt", device=str(cut.lens.device)) as file:
            held = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError):
        return None
    first, later = (
        TokenReadout(
            **{
                field.partition(".")[2]: value
                for field, value in held.items()
                if field.startswith(part)
            }
        )
        for part in ("first.", "later.")
    )
    return Readouts(first, later)


def _write(path: Path, readouts: Readouts) -> None:
    parts = {"first": vars(readouts.first), "later": vars(readouts.later)}
    named = {
        f"{part}.{name}": value for part, values in parts.items() for name, value in values.items()
    }
    write_cache(path, {name: value for name, value in named.items() if value is not None})


# ---- What the model itself would write: its next-token distribution along a draft, which orders candidates.
#
# The tokens before a position are known when it is searched, those after it are not. A draft of
# what follows, the best tokens of the readout, goes through the whole model in one pass with them:
# as long as the draft proves right, one pass serves all positions of a window; where it was wrong,
# the rest is run again. A wrong draft costs time and nothing else.

DRAFT = 16
CONTEXT = 64  # tokens before a window that the model reads with it
# Half the square of the readout's score would be the nats of what it saw, were outputs Gaussian and
# the rest between them known. It is not: features err together, and however many there are, they
# say no more than this number of independent ones. And how often the model's distribution is taken
# to be wrong, all tokens being as likely: a model is sure also of what it never read. Both by trial
# (.03 to 3 of the square, with doubt and without) on gpt-vanilla, SmolLM2-135M and
# Qwen2.5-Coder-1.5B, at middle and last blocks and caches in int8: .1 of it is best at a width of
# 1,536, .3 at 576 and 256, 3 at 128.
INDEPENDENT = 100
DOUBT = 0.1


class TokenScores:
    """How well each token fits at the positions of one prompt: readout and, where it pays, prior.

    `goals` [T, w'] are the outputs given, `known` the tokens before the first; `prior`: the model's
    own distribution counts.
    """

    def __init__(
        self,
        cut: SlicedModel,
        readouts: Readouts,
        goals: Float[Tensor, "T w"],
        known: list[int],
        *,
        allowed: Bool[Tensor, " V"] | None = None,
        prior: bool = False,
    ) -> None:
        self.cut = cut
        self.readouts = readouts
        self.goals = goals
        self.known = known
        self.allowed = allowed
        self.prior = prior
        self.begin = -1
        self.draft: list[int] = []
        self._fit: Tensor | None = None  # scores of the readout in the window
        self._nats: Tensor | None = None  # the log-probabilities of the prior along the draft

    def scores(self, found: list[int]) -> Float[Tensor, " V"]:
        """The scores of all tokens at the position after `found`, the larger the better."""
        place = len(found)
        begin = place - place % DRAFT
        if begin != self.begin:
            self._open(begin)
            if self.prior:
                # with the readout's draft, then with the better one that the prior makes of it
                self._look(found)
                self.draft = self._best()
                self._look(found)
        elif self.prior and self.draft[: place - begin] != found[begin:]:
            self._look(found)
        return self._scored()[place - begin]

    def readout(self, found: list[int]) -> TokenReadout:
        """The readout of the position after `found`; the first position has one of its own."""
        return self.readouts.later if found or self.known else self.readouts.first

    def _open(self, begin: int) -> None:
        self.begin = begin
        goals = self.goals[begin : begin + DRAFT]
        alone = int(begin == 0 and not self.known)
        parts = (self.readouts.first, goals[:alone]), (self.readouts.later, goals[alone:])
        self._fit = torch.cat(
            [readout.scores(self.cut.vectors, some) for readout, some in parts if len(some)]
        )
        if self.allowed is not None:
            self._fit.masked_fill_(~self.allowed, float("-inf"))
        self._nats = None
        self.draft = self._best()

    def _scored(self) -> Tensor:
        assert self._fit is not None
        if self._nats is None:
            return self._fit
        trust = min(1.0, INDEPENDENT / len(self.readouts.later.mean))
        return (
            trust
            / 2
            * self._fit.clamp_min(0).square().masked_fill(self._fit.isneginf(), float("-inf"))
            + self._nats
        )

    def _best(self) -> list[int]:
        return list(self._scored().argmax(1).tolist())

    @torch.no_grad()
    def _look(self, found: list[int]) -> None:
        inside = found[self.begin :]
        self.draft = inside + self.draft[len(inside) :]
        before = (self.known + found[: self.begin])[-CONTEXT:]
        ids = torch.tensor([before + self.draft[:-1]], device=self.cut.lens.device)
        skipped = 0 if before else 1  # of a text's first token the model says nothing
        nats = self.goals.new_zeros(len(self.draft), self.cut.vocabulary_size)
        if ids.shape[1]:
            logits = self.cut.lens.run(ids, sites="head")["head"][
                0, max(len(before) - 1, 0) :
            ].float()
            said = logits.softmax(-1).nan_to_num()
            nats[skipped:] = ((1 - DOUBT) * said + DOUBT / said.shape[-1]).log()
        self._nats = nats


def prior_pays(cut: SlicedModel) -> bool:
    """Whether the model says what follows, and the slice is so deep (a quarter) that two passes of
    the model a token pay.
    """
    sites = cut.lens.sites
    if "head" not in sites or cut.slice.embedding is not None or not cut.lens.traits.causal:
        return False
    if cut.lens.width("head") != cut.vocabulary_size or "head" in cut.sites:
        return False
    return max(map(sites.index, cut.sites)) >= len(sites) / 4
