"""A linear readout: scores of the whole vocabulary for an output of a slice, by one product.

A slice's output is modelled as h = F (e_v - mean of e) + mean of h + rest, with e_v the vector of
the token that went in and a rest, of covariance S, that other tokens and the model's curves cause.
F is a ridge regression from vectors to outputs. A token is scored by the cosine, in the metric of
S, of h - mean of h with what F gives for it:

    score(v) = (h - mean)' S^-1 F (e_v - mean) / ||F (e_v - mean)||_S

This is the likelihood of h where it is not known how strongly a token shows (a matched filter).
Without the length, tokens that were never trained, which lie together near the mean, come before
every rare token. All sums are streamed, in one pass.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headscan.inversion.candidates import Ranking

WIDEST = 4096  # of wider outputs (logits) so many features are read, evenly spaced
# The rest's covariance is shrunk to its diagonal by this share and one that falls with the number
# of tokens.
SHRUNK = 1e-3
# Ridge, in the vectors' mean variance, times vectors' width over tokens: as many tokens as
# dimensions would be learned by heart.
RIDGE = 0.15
ROWS = 8192
NEAREST = 8  # candidates whose outputs show what the context adds
# Nats that a standard deviation of the nearness learned from candidates counts beside the prior.
LEARNED = 4.0


@dataclass(frozen=True, eq=False)
class TokenReadout:
    """The scores of all tokens for outputs of a slice.

    Attributes:
        mean: mean of the outputs, of the features read.
        centre: mean of the vectors.
        filter: S^-1 F.
        metric: F' S^-1 F, in which the distance of two tokens' predicted outputs is measured.
        lengths: ||F (e_v - centre)|| in that metric.
        columns: the features that are read; None: all.
    """

    mean: Float[Tensor, " w"]
    centre: Float[Tensor, " e"]
    filter: Float[Tensor, "w e"]
    metric: Float[Tensor, "e e"]
    lengths: Float[Tensor, " V"]
    columns: Int[Tensor, " w"] | None = None

    def scores(
        self, vectors: Float[Tensor, "V e"], outputs: Float[Tensor, "N w"]
    ) -> Float[Tensor, "N V"]:
        """Return the score of each token for each output, the larger the better.

        The unit is the standard deviation of the rest.
        """
        filtered = self._filtered(outputs)
        along = _products(vectors, filtered.T).T - (filtered @ self.centre)[:, None]
        return along / self.lengths.clamp_min(1e-20)

    def _filtered(self, outputs: Float[Tensor, "*N w"]) -> Float[Tensor, "*N e"]:
        features = outputs if self.columns is None else outputs[..., self.columns]
        return (features - self.mean) @ self.filter

    def missed(
        self, vectors: Float[Tensor, "N e"], outputs: Float[Tensor, "N w"]
    ) -> Float[Tensor, "N e"]:
        """Return the part of outputs that F does not give for these vectors, filtered."""
        return self._filtered(outputs) - (vectors.float() - self.centre) @ self.metric

    def nearness(
        self, vectors: Float[Tensor, "V e"], output: Float[Tensor, " w"], shift: Float[Tensor, " e"]
    ) -> Float[Tensor, " V"]:
        """Return minus half the squared distance of F's outputs to an output less a shift.

        It is given up to a constant, for each token.
        """
        filtered = self._filtered(output) - shift
        return _products(vectors, filtered[:, None])[:, 0] - self.lengths.square() / 2

    def distances(
        self, vectors: Float[Tensor, "V e"], tokens: Int[Tensor, " N"]
    ) -> Float[Tensor, "N V"]:
        """Return the squared distance of every token's predicted output from those of `tokens`.

        Each row is given up to a constant.
        """
        directions = self.metric @ (vectors[tokens].float() - self.centre).T
        return self.lengths.square() - 2 * _products(vectors, directions).T


class ReadoutSums:
    """Streamed second moments of outputs and vectors, from which a `TokenReadout` is solved.

    Sums are taken around the mean of the first rows.
    """

    def __init__(self, width: int) -> None:
        self.columns: Tensor | None = None
        if width > WIDEST:
            self.columns = torch.linspace(0, width - 1, WIDEST).round().long()
        self.count = 0
        self._origin: Tensor | None = None
        self._sum: Tensor | None = None
        self._products: Tensor | None = None

    def update(self, vectors: Float[Tensor, "N e"], outputs: Float[Tensor, "N w"]) -> None:
        """Add tokens' vectors and the slice's outputs; rows with NaN or infinity are left out."""
        features = outputs if self.columns is None else outputs[:, self.columns.to(outputs.device)]
        rows = torch.cat([vectors.double(), features.double()], dim=1)
        rows = rows[rows.isfinite().all(1)]
        if not len(rows):
            return
        if self._origin is None or self._sum is None or self._products is None:
            self._origin = rows.mean(0)
            self._sum = torch.zeros_like(self._origin)
            self._products = rows.new_zeros(rows.shape[1], rows.shape[1])
        rows = rows - self._origin
        self._sum.add_(rows.sum(0))
        self._products.addmm_(rows.T, rows)
        self.count += len(rows)

    def solve(self, vectors: Float[Tensor, "V e"]) -> TokenReadout:
        """Return the readout of a vocabulary [V, e]. Cost: V e^2 + (w + e)^3 products."""
        assert self._origin is not None
        assert self._sum is not None
        assert self._products is not None
        width = vectors.shape[1]
        shift = self._sum / self.count
        mean = self._origin + shift
        moment = self._products / self.count - torch.outer(shift, shift)
        inputs = moment[:width, :width]
        cross = moment[:width, width:]
        outputs = moment[width:, width:]

        ridge = RIDGE * width / self.count * float(inputs.diagonal().mean())
        forward = _solved(inputs, cross, torch.full_like(inputs[0], ridge))
        explained = forward.T @ cross
        rest = outputs - explained - explained.T + forward.T @ inputs @ forward
        share = SHRUNK + len(rest) / (8 * self.count)
        shrinkage = share * rest.diagonal() + 1e-12 * outputs.diagonal().mean()
        fitting = _solved(rest, forward.T, shrinkage)

        metric = (forward @ fitting).float()
        centre = mean[:width].float()
        squares = []
        for part in vectors.split(ROWS):
            moved = part.float() - centre
            squares.append((moved @ metric * moved).sum(1))
        return TokenReadout(
            mean=mean[width:].float(),
            centre=centre,
            filter=fitting.float(),
            metric=metric,
            lengths=torch.cat(squares).clamp_min(0).sqrt(),
            columns=self.columns,
        )


def _products(vectors: Tensor, right: Tensor) -> Tensor:
    return torch.cat([part.float() @ right for part in vectors.split(ROWS)])


def _solved(matrix: Tensor, right: Tensor, ridge: Tensor) -> Tensor:
    return torch.as_tensor(torch.linalg.solve(matrix + torch.diag(ridge.clamp_min(1e-30)), right))


class ReadoutRanking(Ranking):
    """An order of candidates by readout and prior, and then by what tried candidates really gave.

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
        readout: TokenReadout,
        vectors: Float[Tensor, "V e"],
        scores: Float[Tensor, " V"],
        target: Float[Tensor, " w"],
        allowed: Bool[Tensor, " V"] | None,
        *,
        learns: bool,
    ) -> None:
        """Set what ranks the candidates of one position.

        Args:
            readout: the readout of the position.
            vectors: the vectors of all tokens.
            scores: the first order: the larger, the better.
            target: the output given.
            allowed: the tokens that may be returned; None: all.
            learns: whether other tokens come before the position.
        """
        super().__init__(scores, allowed)
        self.readout = readout
        self.vectors = vectors
        self.target = target
        self.learns = learns
        self._first_scores = scores
        self._first_ranks: Tensor | None = None
        self._distances: list[Float[Tensor, " n"]] = []  # of tried outputs from the target
        self._missed: list[Float[Tensor, "n e"]] = []  # what F misses of tried outputs

    def distances_from(self, token: int) -> Float[Tensor, " V"]:
        return self.readout.distances(self.vectors, torch.tensor([token]))[0]

    def learn(self, tokens: Tensor, outputs: Tensor) -> None:
        finite = outputs.isfinite().all(1)
        if not self.learns or not bool(finite.any()):
            return
        tokens = tokens[finite]
        outputs = outputs[finite]
        if self._first_ranks is None:
            self._first_ranks = _ranks(self._first_scores)
        self._distances.append((outputs - self.target).norm(dim=1))
        self._missed.append(self.readout.missed(self.vectors[tokens], outputs))

        distances = torch.cat(self._distances)
        nearest = distances.topk(min(NEAREST, len(distances)), largest=False).indices
        shift = torch.cat(self._missed)[nearest].mean(0)
        nearness = self.readout.nearness(self.vectors, self.target, shift)
        total = self._first_scores + LEARNED * nearness / nearness.std().clamp_min(1e-20)
        ranks = [self._first_ranks, _ranks(nearness), _ranks(total)]
        self.scores = -torch.stack(ranks).amin(0).float()


def _ranks(scores: Float[Tensor, " V"]) -> Int[Tensor, " V"]:
    """Return the rank of each score, the largest first."""
    return scores.argsort(descending=True).argsort()
