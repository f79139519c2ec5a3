"""Gradient descent on the inputs of a slice, one batch: starts, steps, the best iterate, and what it decodes to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Literal, Protocol

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headscan.inversion.decoders import Decoder, Decoding, Mask, spread
from headscan.inversion.reconstruction import relative
from headscan.model.slicing import SlicedModel
from headscan.model.slicing.prefix import Prefix
from headscan.run import BadInput, Option, Progress, Settings

# ---- Distances between outputs that continuous inversion makes small.

Loss = Literal["l1", "l2", "cosine", "linear"]


def loss_of(
    name: Loss, outputs: Float[Tensor, "B kept w"], targets: Float[Tensor, "B kept w"], *, alpha: float = 1.0,
    beta: float = 1.0,
) -> Float[Tensor, " B"]:  # fmt: skip
    """One number a row, [B], for outputs and targets [B, T', w'].

    "l1": sum of absolute differences. "l2": sum of squares. "cosine": 1 - cos of the *flattened* outputs, as published
    (positions of large norm count most). "linear": alpha * cosine + beta * l1.

    >>> import torch
    >>> loss_of("cosine", torch.ones(1, 2, 3), 2 * torch.ones(1, 2, 3)).abs() < 1e-6
    tensor([True])
    """
    difference = (outputs - targets).flatten(1)
    if name == "l1":
        return difference.abs().sum(1)
    if name == "l2":
        return (difference**2).sum(1)
    cosine = 1 - F.cosine_similarity(outputs.flatten(1), targets.flatten(1))
    if name == "cosine":
        return cosine
    return alpha * cosine + beta * difference.abs().sum(1)


# ---- How a descent goes: its settings, and the named ones, among them the published method.

Start = Literal["embedding", "zeros", "noise"]


@dataclass(frozen=True, kw_only=True)
class Descent(Settings):
    """How to descend: by which vectors, loss, steps and start, and how to decode.

    Rates: None is 0.15 of the embeddings' standard deviation for Adam (0.05 for direct), 0.2 for SGD, 1 for L-BFGS. The
    start "embedding" has the mean and spread of the table, "noise" is standard normal.

    >>> Descent(steps=0)
    Traceback (most recent call last):
    headscan.BadInput: steps must be at least 1, not 0.
    """

    method: Annotated[Literal["indirect", "direct"], Option("Move embeddings, or vectors over the vocabulary.")] = (
        "indirect"
    )
    loss: Annotated[Loss, Option("Distance that is made small; linear is alpha (1 - cos) + beta L1.")] = "l1"
    optimiser: Annotated[Literal["sgd", "adam", "lbfgs"], Option("SGD as published, Adam, or L-BFGS.")] = "adam"
    steps: Annotated[int, Option("Gradient steps; with sequential, a token.", low=1)] = 300
    rate: Annotated[float | None, Option("First learning rate.", above=0)] = None
    last: Annotated[float, Option("Last rate as a share of the first; it falls linearly.", low=0)] = 0.1
    init: Annotated[Start, Option("Where the vectors begin.")] = "embedding"
    null_space: Annotated[bool, Option("Direct: keep what lies in the null space of W^T when decoding.")] = False
    decoder: Annotated[Decoding, Option("From vectors to tokens.")] = "nearest"
    restarts: Annotated[int, Option("Starts per prompt, run in one batch; the best is kept.", low=1)] = 1
    keep_best: Annotated[bool, Option("Decode the best iterate rather than the last.")] = True
    check_every: Annotated[int, Option("Steps between runs of the decoded tokens, to end early; 0: never.", low=0)] = 25
    mask: Annotated[Mask, Option("How a restricted vocabulary is imposed; 'zero' is the published way.")] = "-inf"
    alpha: Annotated[float, Option("Weight of the cosine in the loss linear.", low=0)] = 1.0
    beta: Annotated[float, Option("Weight of L1 in the loss linear.", low=0)] = 1.0
    seed: Annotated[int, Option("Seed of the start.", low=0)] = 0
    sequential: Annotated[bool, Option("One token after another, those found committed (causal slices).")] = False


_PUBLISHED = Descent(
    optimiser="sgd", steps=2000, rate=0.2, init="noise", decoder="pinv", keep_best=False, check_every=0, mask="zero", seed=999
)  # fmt: skip
PRESETS = {
    "adam": Descent(),
    "lbfgs": Descent(optimiser="lbfgs", loss="l2", steps=150),
    "seed": _PUBLISHED,
    "seed-direct": replace(_PUBLISHED, method="direct", steps=500, rate=0.01, null_space=True),
}


def preset(name: str, **changes: object) -> Descent:
    """Named settings, with some changed.

    >>> preset("seed", steps=500).optimiser
    'sgd'
    """
    if name not in PRESETS:
        raise BadInput(f"There is no preset '{name}'; choose one of {', '.join(PRESETS)}.")
    return replace(PRESETS[name], **changes)  # type: ignore[arg-type]


# ---- A descent: one batch of vectors that move together.


class Runs(Protocol):
    """What can be descended on: a slice on its model, or the next position after a prefix."""

    @property
    def vectors(self) -> Float[Tensor, "V e"]: ...

    def run(
        self, input_ids: Tensor | None = None, *, inputs_embeds: Tensor | None = None, grad: bool = False
    ) -> Tensor: ...


@dataclass(frozen=True)
class Descended:
    """What a descent found."""

    tokens: Int[Tensor, "B T"]
    top: Int[Tensor, "B T best"]  # the best five tokens of each position
    vectors: Float[Tensor, "B T e"]  # float32, what was decoded
    loss: Float[Tensor, " B"]  # of the vectors
    residual: Float[Tensor, "B kept"]  # relative, of the *tokens* when they are run
    steps: int
    passes: int  # token positions computed; a backward pass counts as two

    def __repr__(self) -> str:
        return f"Descended({list(self.tokens.shape)} tokens after {self.steps} steps, residual {float(self.residual.max()):.1e})"


class Optimisation:
    """One batch of descents: the vectors of every prompt and restart, moved together."""

    def __init__(self, cut: Runs, target: Tensor, length: int, settings: Descent, decoder: Decoder) -> None:
        self.cut, self.settings, self.decoder, self.length = cut, settings, decoder, length
        self.table = cut.vectors.float()
        self.direct = settings.method == "direct"
        self.goal, self.prompts = target, len(target)
        self.rows = self.prompts * settings.restarts
        self.target = target.float().repeat_interleave(settings.restarts, 0)
        self.x = self._begin()
        self.best, self.best_loss = self.x.clone(), torch.full((self.rows,), float("inf"), device=target.device)

    def run(self, progress: Progress | None = None) -> Descended:
        """Descend and decode."""
        done = self._minimise(progress)
        vectors, losses = self._result()
        scores = self._scores(vectors)
        tokens = scores.argmax(-1)
        residual = relative(self.cut.run(tokens), self.goal)
        top = scores.topk(min(5, scores.shape[-1]), dim=-1).indices
        passes = 3 * done * self.rows * self.length
        return Descended(tokens, top, self._embeddings(vectors).detach(), losses, residual, done, passes)

    def _begin(self) -> Tensor:
        s = self.settings
        shape = (s.restarts, self.length, len(self.table) if self.direct else self.table.shape[1])
        generator = torch.Generator().manual_seed(s.seed)
        if s.init == "zeros" or (self.direct and s.init == "embedding"):
            x = torch.zeros(shape)
        else:
            x = torch.randn(shape, generator=generator)
            if s.init == "embedding":
                x = x * self.table.std().cpu() + self.table.mean(0).cpu()
        return x.to(self.table.device).repeat(self.prompts, 1, 1)

    def _embeddings(self, x: Tensor) -> Tensor:
        return x @ self.table if self.direct else x

    def _scores(self, x: Tensor) -> Tensor:
        s = self.settings
        if not self.direct:
            return self.decoder.scores(x, s.decoder)
        if s.null_space:
            return self.decoder.restrict(x)
        return self.decoder.scores(self._embeddings(x), s.decoder)

    def _losses(self, x: Tensor) -> Tensor:
        outputs = self.cut.run(inputs_embeds=self._embeddings(x), grad=torch.is_grad_enabled()).float()
        return loss_of(self.settings.loss, outputs, self.target, alpha=self.settings.alpha, beta=self.settings.beta)

    @cached_property
    def _first_rate(self) -> float:
        s = self.settings
        if s.rate is not None:
            return s.rate
        if s.optimiser == "adam":
            return 0.05 if self.direct else 0.15 * spread(self.table)
        return {"sgd": 0.2, "lbfgs": 1.0}[s.optimiser]

    def _rate(self, step: int) -> float:
        s = self.settings
        return self._first_rate * ((s.steps - step) + s.last * step) / s.steps

    def _minimise(self, progress: Progress | None) -> int:
        s = self.settings
        parameter = self.x.requires_grad_()
        kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}
        optimiser = kind[s.optimiser]([parameter], lr=1.0) if s.optimiser in kind else None
        lbfgs = torch.optim.LBFGS([parameter], max_iter=1, history_size=20, line_search_fn="strong_wolfe")
        scale = 1.0 / float(self.target.pow(2).sum().clamp_min(1e-30))
        for step in range(s.steps):
            if optimiser is None:

                def closure() -> Tensor:
                    losses = self._note(parameter)
                    (parameter.grad,) = torch.autograd.grad(losses.sum() * scale, parameter)
                    return losses.sum() * scale

                lbfgs.step(closure)
            else:
                for group in optimiser.param_groups:
                    group["lr"] = self._rate(step)
                losses = self._note(parameter)
                (parameter.grad,) = torch.autograd.grad(losses.sum(), parameter)
                optimiser.step()
            if progress and (step + 1) % 10 == 0:
                progress("gradient steps", step + 1, s.steps, "steps")
            if s.check_every and (step + 1) % s.check_every == 0 and self._solved():
                return step + 1
        return s.steps

    def _note(self, parameter: Tensor) -> Tensor:
        with torch.enable_grad():
            losses = self._losses(parameter)
        with torch.no_grad():
            better = losses < self.best_loss
            self.best[better], self.best_loss[better] = parameter.detach()[better], losses.detach()[better]
        return losses

    @torch.no_grad()
    def _solved(self) -> bool:
        tokens = self._scores(self.best).argmax(-1)
        residual = relative(self.cut.run(tokens), self.target).amax(1)
        return bool((residual.reshape(self.prompts, -1).amin(1) <= 1e-5).all())

    @torch.no_grad()
    def _result(self) -> tuple[Tensor, Tensor]:
        x = self.best if self.settings.keep_best else self.x.detach()
        losses = self._losses(x)
        if self.settings.restarts > 1:
            tokens = self._scores(x).argmax(-1)
            order = relative(self.cut.run(tokens), self.target).amax(1).reshape(self.prompts, -1).argmin(1)
            index = order + torch.arange(self.prompts, device=order.device) * self.settings.restarts
            x, losses = x[index], losses[index]
        return x, losses


# ---- Continuous inversion: gradient descent on vectors until the slice gives the target, then decoding to tokens.
#
# *Indirect*: the embeddings e [T, d] are moved by the gradient of ||O(e) - O*||, and decoded. *Direct*: vectors a [T, V]
# over the vocabulary are moved, with e = a W; the token is the largest entry. The gradient by a lies in the column space
# of W, so what the start has in the null space of W^T (V - d dimensions) never changes; with a random start its extreme
# entries win the argmax whatever was learned. `null_space=False` projects it away (a W W^+).
#
# *Sequential*: one token at a time, the tokens before it committed. What the source calls sequential feeds each token
# alone, without the tokens before it and at position 0, against an output that was computed with them: that target cannot
# be reached. Here the prefix found so far stands before the vector.
#
# Source of the methods: Badger, "Language Modeling and Discrete Encodings" (blbadger.github.io); the preset "seed" has its
# optimiser, schedule, start and masks, and none of the remedies.


def descend(
    cut: SlicedModel, target: Float[Tensor, "B kept w"], length: int, settings: Descent | None = None, *,
    allowed: Bool[Tensor, "*B V"] | None = None, decode_with: Float[Tensor, "V e"] | None = None,
    progress: Progress | None = None,
) -> Descended:  # fmt: skip
    """Find tokens whose output is near the target, by gradients.

    Args:
        cut: any slice, causal or not.
        target: [B, T', w'] outputs wanted.
        length: T, the number of tokens to find.
        allowed: the vocabulary to decode to, of all prompts [V] or of each [B, V].
        decode_with: [V, e], another table to decode with than the slice's own.

    Raises BadInput: sequential settings for a slice that is not causal, or does not give the output of every position.
    """
    settings = settings or Descent()
    decoder = Decoder(cut.vectors if decode_with is None else decode_with, allowed, settings.mask)
    if not settings.sequential:
        return Optimisation(cut, target, length, settings, decoder).run(progress)
    refuse_sequential(cut, [length])
    prefix = Prefix(cut, torch.zeros(len(target), 0, dtype=torch.int64, device=target.device))
    parts: list[Descended] = []
    for place in range(length):
        one = replace(settings, seed=settings.seed + place)
        parts.append(Optimisation(_NextPosition(prefix), target[:, place : place + 1], 1, one, decoder).run())
        if place + 1 < length:
            prefix.extend(parts[-1].tokens)
        if progress:
            progress("tokens by gradient", place + 1, length, "tokens")
    tokens, top, vectors = (
        torch.cat([getattr(one, name) for one in parts], dim=1) for name in ("tokens", "top", "vectors")
    )
    return Descended(
        tokens, top, vectors, torch.stack([one.loss for one in parts]).sum(0), relative(cut.run(tokens), target),
        sum(one.steps for one in parts), sum(one.passes for one in parts),
    )  # fmt: skip


def refuse_sequential(cut: SlicedModel, lengths: list[int]) -> None:
    """Raise BadInput for a slice of which some position's output is not given, or sees later tokens."""
    if not cut.causal or cut.slice.pool is not None or any(cut.kept(one) != list(range(one)) for one in lengths):
        raise BadInput(
            "Inverting one token after another needs a causal slice that gives the output of every position; leave "
            "'sequential' off."
        )


class _NextPosition:
    """The output at the next position as a slice of one token, for the descent that serves whole prompts."""

    def __init__(self, prefix: Prefix) -> None:
        self.prefix, self.vectors = prefix, prefix.cut.vectors

    def run(
        self, input_ids: Tensor | None = None, *, inputs_embeds: Tensor | None = None, grad: bool = False
    ) -> Tensor:
        vectors = inputs_embeds
        if vectors is None:
            assert input_ids is not None
            vectors = self.prefix.cut.embed(input_ids)
        prompts = len(self.prefix.ids)
        rows = torch.arange(prompts, device=vectors.device).repeat_interleave(len(vectors) // prompts)
        return self.prefix.outputs(rows, vectors[:, 0], grad=grad)[:, None]
