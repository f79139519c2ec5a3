"""Gradient descent on the inputs of a slice: starts, steps, the best iterate, and its tokens.

*Indirect*: the embeddings e [T, d] are moved by the gradient of ||O(e) - O*||, and decoded.
*Direct*: vectors a [T, V] over the vocabulary are moved, with e = a W; the token is the largest
entry. The gradient by a lies in the column space of W, so what the start has in the null space of
W^T (V - d dimensions) never changes; with a random start its extreme entries win the argmax
whatever was learned. `null_space=False` projects it away (a W W^+).

Source of the methods: Badger, "Language Modeling and Discrete Encodings" (blbadger.github.io); the
preset "seed" has its optimiser, schedule, start and masks, and none of the remedies.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Protocol

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headscan.inversion.reconstruction import relative
from headscan.run import BadInput, Progress

Decoding = Literal["nearest", "pinv"]
Mask = Literal["-inf", "zero"]
Loss = Literal["l1", "l2", "cosine", "linear"]
Start = Literal["embedding", "zeros", "noise"]

LAST = 0.1  # the last rate as a share of the first; it falls linearly
BEST = 5  # tokens of a position that are returned
SOLVED = 1e-5  # relative residual of the decoded tokens at which a descent ends early


class Decoder:
    """Scores of every token for given vectors, from a table [V, e] of the tokens' own vectors.

    `allowed` are the tokens that may be returned, of all prompts [V] or of each [B, V]. With the
    mask "zero", the published fault, scores are multiplied by 0 or 1, so that a forbidden token
    wins wherever all allowed ones score below zero.

    >>> Decoder(torch.eye(3)).scores(torch.tensor([[0.1, 0.9, 0.2]])).argmax(-1)
    tensor([1])
    """

    def __init__(
        self,
        table: Float[Tensor, "V e"],
        allowed: Bool[Tensor, "*B V"] | None = None,
        mask: Mask = "-inf",
    ) -> None:
        if allowed is not None and not bool(allowed.any(-1).all()):
            raise BadInput("The restricted vocabulary is empty.")
        self.table = table.float()
        self.allowed = allowed
        self.mask = mask

    @cached_property
    def _gram_factor(self) -> Tensor:
        """Return the Cholesky factor of W^T W, with a little ridge where that has no full rank."""
        gram = self.table.double().T @ self.table.double()
        factor, info = torch.linalg.cholesky_ex(gram)
        if bool(info):
            identity = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
            factor = torch.linalg.cholesky(gram + 1e-10 * gram.trace() * identity)
        return torch.as_tensor(factor)

    def pinv(self, vectors: Float[Tensor, "*batch e"]) -> Float[Tensor, "*batch V"]:
        """Return x W^+ = x (W^T W)^-1 W^T.

        These are the coefficients of least norm with which rows of W sum to x.
        """
        flat = vectors.reshape(-1, vectors.shape[-1]).double()
        solved = torch.cholesky_solve(flat.T, self._gram_factor).T.float()
        return (solved @ self.table.T).reshape(*vectors.shape[:-1], -1)

    def nearest(self, vectors: Float[Tensor, "*batch e"]) -> Float[Tensor, "*batch V"]:
        """Return minus half the squared Euclidean distance, up to a constant of the vector."""
        return vectors.float() @ self.table.T - 0.5 * (self.table**2).sum(1)

    def scores(
        self, vectors: Float[Tensor, "*batch e"], method: Decoding = "nearest"
    ) -> Float[Tensor, "*batch V"]:
        """Return the scores, larger is better; forbidden tokens are masked."""
        return self.restrict(self.nearest(vectors) if method == "nearest" else self.pinv(vectors))

    def restrict(self, scores: Float[Tensor, "*batch V"]) -> Float[Tensor, "*batch V"]:
        """Return scores with the forbidden tokens masked."""
        if self.allowed is None:
            return scores
        # [B, V] for scores [B, T, V]
        allowed = self.allowed if self.allowed.ndim == 1 else self.allowed[:, None]
        if self.mask == "zero":
            return scores * allowed.to(scores)
        return scores.masked_fill(~allowed, float("-inf"))


def loss_of(
    name: Loss,
    outputs: Float[Tensor, "B kept w"],
    targets: Float[Tensor, "B kept w"],
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
) -> Float[Tensor, " B"]:
    """Return one number a row.

    "cosine" is of the flattened outputs, as published; "linear" is alpha (1 - cos) + beta L1.

    >>> loss_of("cosine", torch.ones(1, 2, 3), 2 * torch.ones(1, 2, 3)).abs() < 1e-6
    tensor([True])
    """
    difference = (outputs - targets).flatten(1)
    if name == "l1":
        return difference.abs().sum(1)
    if name == "l2":
        return (difference**2).sum(1)
    cosine = 1 - F.cosine_similarity(outputs.flatten(1), targets.flatten(1))
    return cosine if name == "cosine" else alpha * cosine + beta * difference.abs().sum(1)


@dataclass(frozen=True, kw_only=True)
class Descent:
    """The settings of a descent.

    Attributes:
        method: the vectors that are moved: embeddings, or coefficients over the vocabulary.
        loss: the distance of outputs.
        alpha, beta: the weights of the cosine distance and of L1 in the loss "linear".
        optimiser, steps: as they say.
        rate: the first rate; None: for Adam 0.15 of the embeddings' standard deviation (direct:
            0.05), for SGD 0.2.
        init: "embedding": mean and spread of the table; "noise": standard normal.
        null_space: direct: whether decoding uses what lies in the null space of W^T, too.
        decoder: the way from vectors to tokens.
        keep_best: whether the best iterate is decoded rather than the last.
        check_every: steps between runs of the decoded tokens, to end early; 0: never.
        mask: how a restricted vocabulary is imposed; "zero" is the published way.
        seed: seed of the start.
    """

    method: Literal["indirect", "direct"] = "indirect"
    loss: Loss = "l1"
    alpha: float = 1.0
    beta: float = 1.0
    optimiser: Literal["sgd", "adam"] = "adam"
    steps: int = 300
    rate: float | None = None
    init: Start = "embedding"
    null_space: bool = False
    decoder: Decoding = "nearest"
    keep_best: bool = True
    check_every: int = 25
    mask: Mask = "-inf"
    seed: int = 0


_PUBLISHED = Descent(
    optimiser="sgd",
    steps=2000,
    rate=0.2,
    init="noise",
    decoder="pinv",
    keep_best=False,
    check_every=0,
    mask="zero",
    seed=999,
)
_DIRECT = replace(_PUBLISHED, method="direct", steps=500, rate=0.01, null_space=True)
PRESETS = {"adam": Descent(), "seed": _PUBLISHED, "seed-direct": _DIRECT}


def preset(name: str, **changes: object) -> Descent:
    """Return named settings ("adam", "seed", "seed-direct"), some of them changed.

    >>> preset("seed", steps=500).steps
    500
    """
    if name not in PRESETS:
        raise BadInput(f"There is no preset '{name}'; choose one of {', '.join(PRESETS)}.")
    return replace(PRESETS[name], **changes)  # type: ignore[arg-type]


class Runs(Protocol):
    """Something to descend on: a slice on its model, or the next position after a prefix."""

    @property
    def vectors(self) -> Float[Tensor, "V e"]: ...

    def run(
        self,
        input_ids: Tensor | None = None,
        *,
        inputs_embeds: Tensor | None = None,
        grad: bool = False,
    ) -> Tensor: ...


@dataclass(frozen=True)
class Descended:
    """The result of a descent.

    Attributes:
        tokens: the tokens.
        top: the best five tokens of each position.
        vectors: the vectors that were decoded, float32.
        loss: of the vectors.
        residual: relative residual of the *tokens* when they are run.
        steps: gradient steps made.
        passes: token positions computed; a backward pass counts as two.
    """

    tokens: Int[Tensor, "B T"]
    top: Int[Tensor, "B T best"]
    vectors: Float[Tensor, "B T e"]
    loss: Float[Tensor, " B"]
    residual: Float[Tensor, "B kept"]
    steps: int
    passes: int


def descend(
    cut: Runs,
    target: Float[Tensor, "B kept w"],
    length: int,
    settings: Descent | None = None,
    *,
    allowed: Bool[Tensor, "*B V"] | None = None,
    decode_with: Float[Tensor, "V e"] | None = None,
    progress: Progress | None = None,
) -> Descended:
    """Find tokens [B, `length`] whose outputs are near the target, by gradients.

    Args:
        cut: any slice, causal or not.
        target: the outputs [B, T', w'].
        length: tokens of each prompt.
        settings: the settings of the descent.
        allowed: the vocabulary to decode to, of all prompts [V] or of each [B, V].
        decode_with: another table than the slice's.
        progress: called as the work goes on.
    """
    settings = settings or Descent()
    decoder = Decoder(cut.vectors if decode_with is None else decode_with, allowed, settings.mask)
    return _Optimisation(cut, target, length, settings, decoder).run(progress)


@dataclass(eq=False)
class _Optimisation:
    """One batch of descents: the vectors `x` of all prompts are moved together."""

    cut: Runs
    goal: Tensor
    length: int
    settings: Descent
    decoder: Decoder

    def __post_init__(self) -> None:
        self.table = self.cut.vectors.float()
        self.direct = self.settings.method == "direct"
        self.target = self.goal.float()
        self.x = self._begin()
        self.best = self.x.clone()
        self.best_loss = torch.full((len(self.goal),), float("inf"), device=self.goal.device)

    def run(self, progress: Progress | None = None) -> Descended:
        steps = self._minimise(progress)
        vectors = self.best if self.settings.keep_best else self.x.detach()
        with torch.no_grad():
            losses = self._losses(vectors)
        scores = self._scores(vectors)
        tokens = scores.argmax(-1)
        return Descended(
            tokens=tokens,
            top=scores.topk(min(BEST, scores.shape[-1]), dim=-1).indices,
            vectors=self._embeddings(vectors).detach(),
            loss=losses,
            residual=relative(self.cut.run(tokens), self.goal),
            steps=steps,
            passes=3 * steps * len(self.goal) * self.length,
        )

    def _begin(self) -> Tensor:
        settings = self.settings
        shape = (1, self.length, len(self.table) if self.direct else self.table.shape[1])
        if settings.init == "zeros" or (self.direct and settings.init == "embedding"):
            x = torch.zeros(shape)
        else:
            x = torch.randn(shape, generator=torch.Generator().manual_seed(settings.seed))
            if settings.init == "embedding":
                x = x * self.table.std().cpu() + self.table.mean(0).cpu()
        return x.to(self.table.device).repeat(len(self.goal), 1, 1)

    def _embeddings(self, x: Tensor) -> Tensor:
        return x @ self.table if self.direct else x

    def _scores(self, x: Tensor) -> Tensor:
        if self.direct and self.settings.null_space:
            return self.decoder.restrict(x)
        return self.decoder.scores(self._embeddings(x), self.settings.decoder)

    def _losses(self, x: Tensor) -> Tensor:
        embeddings = self._embeddings(x)
        outputs = self.cut.run(inputs_embeds=embeddings, grad=torch.is_grad_enabled())
        settings = self.settings
        return loss_of(
            settings.loss, outputs.float(), self.target, alpha=settings.alpha, beta=settings.beta
        )

    def _first_rate(self) -> float:
        settings = self.settings
        if settings.rate is not None:
            return settings.rate
        if settings.optimiser == "sgd":
            return 0.2
        if self.direct:
            return 0.05
        spread = float(self.table.std())
        if not math.isfinite(spread):
            spread = float(self.table[self.table.isfinite()].std())
        return 0.15 * spread

    def _minimise(self, progress: Progress | None) -> int:
        """Move the vectors, and return the number of steps."""
        settings = self.settings
        parameter = self.x.requires_grad_()
        kind = torch.optim.SGD if settings.optimiser == "sgd" else torch.optim.Adam
        optimiser: torch.optim.Optimizer = kind([parameter], lr=1.0)
        first_rate = self._first_rate()
        for step in range(settings.steps):
            rate = first_rate * ((settings.steps - step) + LAST * step) / settings.steps
            optimiser.param_groups[0]["lr"] = rate
            with torch.enable_grad():
                losses = self._losses(parameter)
            self._note_best(parameter.detach(), losses.detach())
            (parameter.grad,) = torch.autograd.grad(losses.sum(), parameter)
            optimiser.step()
            if progress and (step + 1) % 10 == 0:
                progress("gradient steps", step + 1, settings.steps, "steps")
            if settings.check_every and (step + 1) % settings.check_every == 0 and self._solved():
                return step + 1
        return settings.steps

    def _note_best(self, x: Tensor, losses: Tensor) -> None:
        better = losses < self.best_loss
        self.best[better] = x[better]
        self.best_loss[better] = losses[better]

    @torch.no_grad()
    def _solved(self) -> bool:
        outputs = self.cut.run(self._scores(self.best).argmax(-1))
        return bool((relative(outputs, self.target) <= SOLVED).all())
