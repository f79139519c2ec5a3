"""Gradient descent on the inputs of a slice, one batch: starts, steps, the best iterate, and what it decodes to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headscan.inversion.decoders import Decoder, spread
from headscan.inversion.reconstruction import Descent, loss_of, relative
from headscan.model.slicing import SlicedModel
from headscan.model.slicing.prefix import Prefix
from headscan.run import BadInput, Progress


class Runs(Protocol):
    """What can be descended on: a slice on its model, or the next position after a prefix."""

    @property
    def vectors(self) -> Float[Tensor, "V e"]:
        """[V, e], the vector of every token."""
        ...

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
