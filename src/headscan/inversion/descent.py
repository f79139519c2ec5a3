"""Continuous inversion: gradient descent on vectors until the slice gives the target, then decoding to tokens.

*Indirect*: the embeddings e [T, d] are moved by the gradient of ||O(e) - O*||, and decoded. *Direct*: vectors a [T, V]
over the vocabulary are moved, with e = a W; the token is the largest entry. The gradient by a lies in the column space
of W, so what the start has in the null space of W^T (V - d dimensions) never changes; with a random start its extreme
entries win the argmax whatever was learned. `null_space=False` projects it away (a W W^+).

Source of the methods: Badger, "Language Modeling and Discrete Encodings" (blbadger.github.io); the preset "seed" has its
optimiser, schedule, start and masks, and none of the remedies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from headscan.errors import BadInput
from headscan.inversion.decoders import Decoder
from headscan.inversion.losses import loss_of, relative
from headscan.model.slicing import SlicedModel

__all__ = ["PRESETS", "Descended", "Descent", "descend", "preset"]

Progress = Callable[[str, int, int | None], None]


@dataclass(frozen=True)
class Descent:
    """How to descend.

    Attributes:
        method: "indirect" or "direct".
        loss: "l1", "l2", "cosine" or "linear" (alpha (1 - cos) + beta L1).
        optimiser: "sgd" (the published one: plain gradient steps), "adam" or "lbfgs".
        steps: N.
        rate: the first learning rate; None is 0.05 for Adam in units of the embeddings' standard deviation (of one for
            direct), 0.2 for SGD, 1 for L-BFGS.
        last: the last rate as a share of the first; in between it falls linearly.
        start: "embedding" (mean and spread of the table), "zeros", or "noise" (standard normal).
        null_space: direct only: keep what lies in the null space of W^T when decoding.
        decoder: "nearest", "pinv" or "mahalanobis".
        restarts: starts per prompt, run in one batch; the best is kept.
        keep_best: decode the best iterate rather than the last.
        check: every so many steps the decoded tokens are run; a prompt whose residual is at rounding ends. 0 never.
        mask: how a restricted vocabulary is imposed, "-inf" or the published "zero".
        seed: of the start.
        sequential: one token after another, those found being committed (causal slices); `steps` are then per token.
    """

    method: str = "indirect"
    loss: str = "l1"
    optimiser: str = "adam"
    steps: int = 300
    rate: float | None = None
    last: float = 0.1
    start: str = "embedding"
    null_space: bool = False
    decoder: str = "nearest"
    restarts: int = 1
    keep_best: bool = True
    check: int = 25
    mask: str = "-inf"
    alpha: float = 1.0
    beta: float = 1.0
    seed: int = 0
    sequential: bool = False

    def __post_init__(self) -> None:
        for name, allowed in (
            ("method", ("indirect", "direct")),
            ("optimiser", ("sgd", "adam", "lbfgs")),
            ("start", ("embedding", "zeros", "noise")),
        ):
            if getattr(self, name) not in allowed:
                raise BadInput(f"There is no {name} '{getattr(self, name)}'; choose one of {', '.join(allowed)}.")
        if self.steps < 1 or self.restarts < 1:
            raise BadInput("Continuous inversion needs at least one step and one start.")


_SEED = Descent(
    optimiser="sgd",
    steps=2000,
    rate=0.2,
    start="noise",
    decoder="pinv",
    keep_best=False,
    check=0,
    mask="zero",
    seed=999,
)
PRESETS = {
    "seed": _SEED,
    "seed-direct": replace(_SEED, method="direct", steps=500, rate=0.01, null_space=True),
    "adam": Descent(),
    "lbfgs": Descent(optimiser="lbfgs", loss="l2", steps=150),
}


def preset(name: str, **changes: object) -> Descent:
    """A named setting, with some attributes changed.

    >>> preset("seed", steps=500).optimiser
    'sgd'
    """
    if name not in PRESETS:
        raise BadInput(f"There is no preset '{name}'; choose one of {', '.join(PRESETS)}.")
    return replace(PRESETS[name], **changes)  # type: ignore[arg-type]


@dataclass
class Descended:
    """What a descent found.

    Attributes:
        tokens: ids [B, T]; top: [B, T, 5] the best five of each position.
        vectors: float32 [B, T, e], what was decoded.
        loss: [B] of the vectors; residual: [B, T'] relative, of the *tokens* when they are run.
        steps: how many were made; passes: token positions computed (a backward pass counts as two).
    """

    tokens: Tensor
    top: Tensor
    vectors: Tensor
    loss: Tensor
    residual: Tensor
    steps: int
    passes: int


def descend(
    cut: SlicedModel,
    target: Tensor,
    length: int,
    settings: Descent | None = None,
    *,
    allowed: Tensor | None = None,
    decode_with: Tensor | None = None,
    progress: Progress | None = None,
) -> Descended:
    """Find tokens whose output is near the target, by gradients.

    Args:
        cut: any slice, causal or not.
        target: [B, T', w'] outputs wanted.
        length: T, the number of tokens to find.
        settings: how.
        allowed: bool [V], the vocabulary to decode to.
        decode_with: [V, e], another table to decode with than the slice's own.
        progress: called with (name, done, all).
    """
    settings = settings or Descent()
    if settings.sequential:
        from headscan.inversion.sequential import descend_in_order  # which uses this function for every token

        return descend_in_order(
            cut, target, length, settings, allowed=allowed, decode_with=decode_with, progress=progress
        )
    decoder = Decoder(cut.vectors if decode_with is None else decode_with, allowed, settings.mask)
    state = _Run(cut, target.float(), length, settings, decoder)
    done = state.minimise(progress)
    vectors, losses = state.result()
    tokens_scores = state.scores(vectors)
    tokens = tokens_scores.argmax(-1)
    residual = relative(cut.run(tokens), target)
    return Descended(
        tokens,
        tokens_scores.topk(min(5, tokens_scores.shape[-1]), dim=-1).indices,
        state.embeddings(vectors).detach(),
        losses,
        residual,
        done,
        3 * done * state.rows * length,
    )


class _Run:
    def __init__(self, cut: SlicedModel, target: Tensor, length: int, settings: Descent, decoder: Decoder) -> None:
        self.cut, self.settings, self.decoder, self.length = cut, settings, decoder, length
        self.table = cut.vectors.float()
        self.direct = settings.method == "direct"
        self.prompts = len(target)
        self.rows = self.prompts * settings.restarts
        self.target = target.repeat_interleave(settings.restarts, 0)
        self.x = self._begin()
        self.best, self.best_loss = self.x.clone(), torch.full((self.rows,), float("inf"), device=target.device)

    def _begin(self) -> Tensor:
        s = self.settings
        shape = (s.restarts, self.length, len(self.table) if self.direct else self.table.shape[1])
        generator = torch.Generator().manual_seed(s.seed)
        if s.start == "zeros" or (self.direct and s.start == "embedding"):
            x = torch.zeros(shape)
        else:
            x = torch.randn(shape, generator=generator)
            if s.start == "embedding":
                x = x * self.table.std().cpu() + self.table.mean(0).cpu()
        return x.to(self.table.device).repeat(self.prompts, 1, 1)

    def embeddings(self, x: Tensor) -> Tensor:
        return x @ self.table if self.direct else x

    def scores(self, x: Tensor) -> Tensor:
        s = self.settings
        if not self.direct:
            return self.decoder.scores(x, s.decoder)
        if s.null_space:
            return self.decoder.restrict(x)
        return self.decoder.scores(self.embeddings(x), s.decoder)

    def losses(self, x: Tensor) -> Tensor:
        outputs = self.cut.run(inputs_embeds=self.embeddings(x), grad=torch.is_grad_enabled()).float()
        return loss_of(self.settings.loss, outputs, self.target, alpha=self.settings.alpha, beta=self.settings.beta)

    def rate(self, step: int) -> float:
        s = self.settings
        if s.rate is not None:
            first = s.rate
        elif s.optimiser == "adam":
            first = 0.05 if self.direct else 0.15 * float(self.table.std())
        else:
            first = {"sgd": 0.2, "lbfgs": 1.0}[s.optimiser]
        return first * ((s.steps - step) + s.last * step) / s.steps

    def minimise(self, progress: Progress | None) -> int:
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
                    group["lr"] = self.rate(step)
                losses = self._note(parameter)
                (parameter.grad,) = torch.autograd.grad(losses.sum(), parameter)
                optimiser.step()
            if progress and (step + 1) % 10 == 0:
                progress("gradient steps", step + 1, s.steps)
            if s.check and (step + 1) % s.check == 0 and self._solved():
                return step + 1
        return s.steps

    def _note(self, parameter: Tensor) -> Tensor:
        with torch.enable_grad():
            losses = self.losses(parameter)
        with torch.no_grad():
            better = losses < self.best_loss
            self.best[better], self.best_loss[better] = parameter.detach()[better], losses.detach()[better]
        return losses

    @torch.no_grad()
    def _solved(self) -> bool:
        """Whether every prompt's decoded tokens give its target; those that do are fixed as the best."""
        tokens = self.scores(self.best).argmax(-1)
        residual = relative(self.cut.run(tokens), self.target).amax(1)
        return bool((residual.reshape(self.prompts, -1).amin(1) <= 1e-5).all())

    @torch.no_grad()
    def result(self) -> tuple[Tensor, Tensor]:
        """The vectors of each prompt, [B, T, e or V], and their losses."""
        x = self.best if self.settings.keep_best else self.x.detach()
        losses = self.losses(x)
        if self.settings.restarts > 1:
            tokens = self.scores(x).argmax(-1)
            order = relative(self.cut.run(tokens), self.target).amax(1).reshape(self.prompts, -1).argmin(1)
            index = order + torch.arange(self.prompts, device=order.device) * self.settings.restarts
            x, losses = x[index], losses[index]
        return x, losses
