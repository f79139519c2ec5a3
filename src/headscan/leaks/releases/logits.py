"""Leaked logits: the states at the head's input, seen through a linear map."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscan.leaks.audit import audit
from headscan.leaks.channel import Channel, cross_entropy
from headscan.leaks.release import RELEASES, Auditing, Leak, Release
from headscan.model.lens import Lens
from headscan.model.slicing import Slice
from headscan.model.slicing.mapped import Mapped
from headscan.run import BadInput, Run

__all__ = ["LogitsRelease", "states_from_logits"]


@RELEASES.register("logits")
class LogitsRelease(Release):
    """The logits of every position, or log-probabilities, which lack one number of them.

    Logits are W h + b, with the head's weight W [V, d] and the state h before it: d numbers seen V times. All that noise of
    equal power in every logit leaves of h is in Wᵀ y, so with WᵀW = RᵀR the release is R h with d noises of that power: the
    same distances, the same bits, at d numbers a token and not V. Log-probabilities lack the logits' normaliser: they are
    taken centred over the vocabulary, which is the same for W with its columns centred.
    """

    name: ClassVar[str] = "logits"
    uses: ClassVar[tuple[str, ...]] = (
        "noise",
        "prior",
        "windows",
        "length",
        "candidates",
        "draws",
        "particles",
        "others",
    )
    meaning: ClassVar[str] = (
        "Bits that the logits at a token's position, given as log-probabilities, tell of that token to one who knows the "
        "tokens before it."
    )

    def attack(self, lens: Lens, texts: list[list[int]], settings: Auditing, run: Run) -> Leak:
        """Bits and attacks at the head.

        Noise is in the rms of the equivalent d numbers, times √(d/V) that of a logit.
        """
        head = lens.traits.linear_head
        if head is None:
            raise BadInput(
                f"The head of '{lens.name}' is no linear map of its states, so its logits are not read back."
            )
        root = _root(head.weight)
        cut = Mapped(Slice(sites=(head.site,)).on(lens), lambda states: states.float() @ root.T, "centred logits")

        def loss(_: str, ids: Int[Tensor, "B T"], change: Callable[[Tensor], Tensor]) -> Tensor:
            with torch.no_grad():
                states = lens.run(ids, sites=head.site)[head.site].float()
                seen = states @ root.T
                moved = torch.linalg.lstsq(root, (change(seen) - seen).flatten(0, 1).T).solution.T
                return cross_entropy(head.logits(states + moved.view_as(states)), ids)

        return audit(Channel(("head",), cut, (cut.width,), lambda _: cut, loss=loss), texts, settings, run)


@torch.no_grad()
def _root(weight: Float[Tensor, "V d"]) -> Float[Tensor, "d d"]:
    """R with RᵀR = W_cᵀW_c, W_c being W with its columns centred over the vocabulary."""
    centred = weight.double() - weight.double().mean(0)
    values, vectors = torch.linalg.eigh(centred.T @ centred)
    root: Tensor = (values.clamp_min(0).sqrt()[:, None] * vectors.T).float()
    return root


@torch.no_grad()
def states_from_logits(
    lens: Lens, values: Float[Tensor, "T k"], *, tokens: Int[Tensor, " k"] | None = None, probabilities: bool = False
) -> Float[Tensor, "T d"]:
    """The states before the head from logits, log-probabilities, or those of some tokens (top-k, or asked for by a bias).

    Args:
        lens: a model with a linear head.
        values: of each position, of all tokens or of `tokens`.
        tokens: which k tokens the values are of, the same at every position; at least d of them, d + 1 of log-probabilities.
        probabilities: the values are log-probabilities: one number of each position, their normaliser, is unknown.

    Raises:
        BadInput: a head that is no linear map, or fewer tokens than that.

    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> lens = Lens(GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=1, n_head=2)))
    >>> found = lens.run([[3, 7]], sites="head, final_norm")
    >>> some = torch.arange(0, 50, 4)
    >>> back = states_from_logits(lens, found["head"][0].log_softmax(-1)[:, some], tokens=some, probabilities=True)
    >>> torch.allclose(back, found["final_norm"][0], atol=1e-4)
    True
    """
    head = lens.traits.linear_head
    if head is None:
        raise BadInput(f"The head of '{lens.name}' is no linear map of its states, so its logits are not read back.")
    weight = head.weight.double() if tokens is None else head.weight[tokens].double()
    offset = 0.0 if head.bias is None else (head.bias if tokens is None else head.bias[tokens]).double()
    if len(weight) < weight.shape[1] + int(probabilities):
        need = weight.shape[1] + int(probabilities)
        raise BadInput(
            f"The values of {len(weight)} tokens do not tell a state of {weight.shape[1]}: {need} are needed."
        )
    seen = values.double() - offset
    if probabilities:
        weight, seen = weight - weight.mean(0), seen - seen.mean(-1, keepdim=True)
    states: Tensor = torch.linalg.lstsq(weight, seen.T).solution.T.float()
    return states
