"""Lenses: what the states of an early block would say if the head read them, and how far that is from what the model says.

The logit lens (nostalgebraist 2020) gives them to the final norm and the head as they are. The Jacobian lens (Gurnee et al.
2026, arXiv:2607.15495) moves them first by the mean Jacobian of the last block's states; the logit lens has J = I.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headscan.geometry.explained import Cells, Field
from headscan.geometry.interval import with_intervals
from headscan.geometry.probe_setup import ProbeSetup
from headscan.model import Lens
from headscan.model.sites import is_block
from headscan.model.traits import LinearHead
from headscan.run import BadInput
from headscan.statistics import Tally

__all__ = ["FIELDS", "LensHead", "StreamStates", "mean_jacobians", "read", "reading_rows", "stream_sites"]

CHUNK = 2**23  # logits that are made at once
SUMS = ("tokens", "kl", "agree", "kl_shuffled", "agree_shuffled", "loss", "predicted")
FIELDS = {
    "kl": Field("KL to the output", "Divergence of the lens's next-token distribution from the model's own.",
        "mean KL(p‖p_lens)", (0, None), unit="nats", plotted=True),
    "agreement": Field("same first token", "Share of tokens where both find the same next token likeliest.", range=(0, 1),
        plotted=True),
    "lens_loss": Field("loss through the lens", "Mean cross-entropy of the next token.", "−mean log p_lens(next)", (0, None),
        unit="nats a token", undefined="windows of one token"),
    "kl_shuffled": Field("null: another token",
        "The divergence where the lens reads another token of the same batch: what it knows of no token in particular.",
        "mean KL(p_t‖p_lens,s)", (0, None), unit="nats", plotted=True),
    "agreement_shuffled": Field("its first token", "The share of equal first tokens in that null.", range=(0, 1)),
}  # fmt: skip
"""The numbers that every lens has."""


@dataclass(frozen=True)
class LensHead:
    """The final norm and the head: from states [..., d] of the last block to log probabilities [..., V]."""

    norm: nn.Module | None
    head: LinearHead
    last: str

    @classmethod
    def of(cls, lens: Lens) -> Self | None:
        """None where the head is no linear map, or reads what no norm at the end gives."""
        head = lens.traits.linear_head
        if head is None or len(lens.stacks) != 1:
            return None
        last = f"block.{lens.depth - 1}"
        if head.site == last:
            return cls(None, head, last)
        tap = lens.tap(head.site)
        return cls(tap.module, head, last) if head.site == "final_norm" and tap.where == "output" else None

    @torch.no_grad()
    def __call__(self, states: Float[Tensor, "... d"]) -> Float[Tensor, "... V"]:
        """In float32."""
        states = states.to(self.head.weight)
        found: Tensor = self.head.logits(states if self.norm is None else self.norm(states)).float().log_softmax(-1)
        return found


@dataclass(frozen=True)
class StreamStates:
    """States of a batch at every site [n, d], the ids that follow [n] (−1: none), all of the same n tokens."""

    states: Mapping[str, Tensor]
    following: Tensor


def stream_sites(setup: ProbeSetup) -> tuple[str, ...]:
    """The blocks among the scan's sites, and the embedding."""
    return tuple(site for site in setup.sites if site == "embedding" or is_block(site))


def readings(lens: Lens, parts: Sequence[Int[Tensor, "w T"]], sites: Sequence[str]) -> Iterator[StreamStates]:
    """One forward pass, a part of the windows at a time."""
    for ids in parts:
        if not len(ids):
            continue
        found = lens.run(ids.to(lens.device), sites=sites)
        following = torch.nn.functional.pad(ids[:, 1:], (0, 1), value=-1).flatten()
        yield StreamStates({site: found[site].flatten(0, 1) for site in sites}, following)


def read(readout: LensHead, final: Tensor, states: Tensor, following: Tensor) -> Tally:
    """Sums over tokens: how far the readout of states [n, d] is from that of the last block's states `final` [n, d].

    The null pairs each token with the one half of the batch away. Cost 4·n·d·V operations.
    """
    tally = Tally(dict.fromkeys(SUMS, ()))
    step = max(2, CHUNK // len(readout.head.weight))
    for start in range(0, len(states), step):
        part = slice(start, start + step)
        own, through, after = readout(final[part]), readout(states[part]), following[part].to(states.device)
        for end, logs in (("", through), ("_shuffled", through.roll(len(through) // 2, 0))):
            tally[f"kl{end}"] += (own.exp() * (own - logs)).sum(-1).double().sum().cpu()
            tally[f"agree{end}"] += (own.argmax(-1) == logs.argmax(-1)).double().sum().cpu()
        known = after >= 0
        tally["loss"] -= through[known].gather(1, after[known][:, None]).double().sum().cpu()
        tally["predicted"] += known.double().sum().cpu()
        tally["tokens"] += float(len(own))
    return tally


def _numbers(tally: Tally) -> dict[str, float | None]:
    tokens, predicted = float(tally["tokens"]), float(tally["predicted"])
    names = {"kl": "kl", "agreement": "agree", "kl_shuffled": "kl_shuffled", "agreement_shuffled": "agree_shuffled"}
    found: dict[str, float | None] = {name: float(tally[key]) / tokens for name, key in names.items()}
    # Rounding makes the divergence of what is equal a little negative.
    found |= {name: max(0.0, found[name] or 0.0) for name in ("kl", "kl_shuffled")}
    return found | {"lens_loss": float(tally["loss"]) / predicted if predicted else None}


def reading_rows(
    lens: Lens, readout: LensHead, sites: Sequence[str], parts: Sequence[Tensor],
    ways: Mapping[str, Callable[[str, Tensor], Tensor]], fields: Mapping[str, Field],
) -> list[Cells]:  # fmt: skip
    """One row a site: the numbers of `FIELDS` of the first way of moving states to the last block's place, and KL_NAME of the
    others; intervals leave the parts of the text out by turns."""
    tallies: dict[tuple[str, str], list[Tally]] = {}
    for reading in readings(lens, parts, tuple(dict.fromkeys([*sites, readout.last]))):
        final = reading.states[readout.last]
        for site in sites:
            for name, moved in ways.items():
                one = read(readout, final, moved(site, reading.states[site]), reading.following)
                tallies.setdefault((site, name), []).append(one)
    rows: list[Cells] = []
    for site in sites:
        row: Cells = {"site": site}
        for number, name in enumerate(ways):
            own = tallies[site, name]
            whole = Tally.restore(own[0].state())
            for part in own[1:]:
                whole.merge(part)
            found = [_numbers(whole), *(_numbers(whole.without(part)) for part in own if len(own) > 2)]
            if number:
                found = [{f"kl_{name}": one["kl"]} for one in found]
            sizes = [float(part["tokens"]) for part in own]
            row |= with_intervals(found[0], found[1:], sizes, {field: fields[field].range for field in found[0]})
        rows.append(row)
    return rows


def mean_jacobians(
    lens: Lens, ids: Int[Tensor, "w T"], sites: Sequence[str], target: str
) -> dict[str, Float[Tensor, "d d"]]:
    """J = mean over windows and positions t of Σ_{t' ≥ t} ∂h_target,t'/∂h_site,t, by site; float64.

    As published, the target's gradients are summed over positions and the source's averaged. Cost: one forward pass with
    gradients and d backward passes. Raises BadInput where a site's states do not lie on the way to the target's.

    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> lens = Lens(GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=2, n_head=2)))
    >>> found = mean_jacobians(lens, torch.arange(12).reshape(2, 6), ["block.0", "block.1"], "block.1")
    >>> torch.equal(found["block.1"], torch.eye(8).double()), found["block.0"].shape
    (True, torch.Size([8, 8]))
    """
    table = lens.input_embeddings.detach()
    inputs = table[ids.to(table.device)].clone().requires_grad_(True)
    found = lens.run(inputs_embeds=inputs, sites=tuple(dict.fromkeys([*sites, target])), grad=True)
    last = found[target]
    width, tokens = last.shape[-1], ids.numel()
    rows: dict[str, list[Tensor]] = {site: [] for site in sites}
    for place in range(width):
        grads = torch.autograd.grad(
            last[..., place].sum(), [found[site] for site in sites], retain_graph=True, allow_unused=True
        )
        for site, grad in zip(sites, grads, strict=True):
            if grad is None:
                raise BadInput(f"The states of {lens.name} at {site} do not lie on the way to {target}.")
            rows[site].append(grad.double().sum((0, 1)) / tokens)
    return {site: torch.stack(lines) for site, lines in rows.items()}
