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

from headscan.measures.measure import Field, ProbeWords
from headscan.measures.probe import Cost, Probe, ProbeData, ProbeSetup
from headscan.model import Lens
from headscan.model.sites import is_block
from headscan.model.traits import LinearHead
from headscan.run import BadInput
from headscan.statistics import Tally
from headscan.statistics.uncertainty import Cells, with_intervals

CHUNK = 2**23  # logits that are made at once
SUMS = ("tokens", "kl", "agree", "kl_shuffled", "agree_shuffled", "loss", "predicted")
FIELDS = {
    "kl": Field("KL to the output", "Divergence of the lens's next-token distribution from the model's own.",
        "mean KL(p‖p_lens)", range=(0, None), unit="nats", plotted=True),
    "agreement": Field("same first token", "Share of tokens where both find the same next token likeliest.", range=(0, 1),
        plotted=True),
    "lens_loss": Field("loss through the lens", "Mean cross-entropy of the next token.", "−mean log p_lens(next)",
        range=(0, None), unit="nats a token", undefined="windows of one token"),
    "kl_shuffled": Field("null: another token",
        "The divergence where the lens reads another token of the same batch: what it knows of no token in particular.",
        "mean KL(p_t‖p_lens,s)", range=(0, None), unit="nats", plotted=True),
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


LOGIT_LENS_TOKENS = 2048


class LogitLensProbe(Probe):
    """From which block on does the model know its prediction?"""

    words = ProbeWords(
        name="logit_lens", title="Logit lens", group="head",
        sentence=f"From which block on do the states say what the model will say, read by its own final norm and head? On the "
        f"second half of the first {LOGIT_LENS_TOKENS:,} tokens; means are of the first half.",
        literature="nostalgebraist 2020; the mean as what a lens must beat: Belrose et al. 2023, arXiv:2303.08112",
        position="All positions.", docs="lenses.md", function="headscan.measures.lenses.read", expensive=True, order=20,
        fields=FIELDS | {
            "kl_centred": Field("with the means corrected",
                "The divergence where the last block's mean is put in place of the site's: what a bias alone mends.",
                "h − mean h + mean h_L", range=(0, None), unit="nats", plotted=True),
        },
    )  # fmt: skip

    def reason(self, setup: ProbeSetup) -> str | None:
        if not setup.lens.traits.causal:
            return "its output at a token is no prediction of the next"
        return None if LensHead.of(setup.lens) is not None else "its head is no linear map of its last norm or block"

    def cost(self, setup: ProbeSetup) -> Cost:
        vocabulary, width = setup.lens.vocabulary_size, setup.lens.width("embedding")
        tokens = min(LOGIT_LENS_TOKENS, setup.tokens or LOGIT_LENS_TOKENS) / 2
        return Cost(8.0 * vocabulary * width * tokens * len(stream_sites(setup)), 4.0 * 3 * 2**23)

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        lens, sites = setup.lens, stream_sites(setup)
        readout = LensHead.of(lens)
        assert readout is not None
        ids = data.windows[: max(2, LOGIT_LENS_TOKENS // setup.context)]
        half = len(ids) // 2
        means = self._means(setup, (*sites, readout.last), ids[:half])
        ways = {"plain": lambda site, states: states}
        if means:
            ways["centred"] = lambda site, states: states - means[site] + means[readout.last]
        rows = reading_rows(lens, readout, sites, ids[half:].tensor_split(8), ways, self.fields)
        return rows if means else [row | {"kl_centred": None} for row in rows]

    @staticmethod
    def _means(setup: ProbeSetup, sites: tuple[str, ...], ids: Tensor) -> dict[str, Tensor]:
        sums: dict[str, Tensor] = {}
        tokens = 0
        for reading in readings(setup.lens, ids.split(max(1, 2048 // setup.context)), tuple(dict.fromkeys(sites))):
            tokens += len(reading.following)
            for site, states in reading.states.items():
                sums[site] = sums.get(site, 0) + states.sum(0, dtype=torch.float64)
        return {site: (total / tokens).float() for site, total in sums.items()}


FITTED, JACOBIAN_LENS_TOKENS = 512, 1024  # tokens that the Jacobians are means of, and that are read through them


class JacobianLensProbe(Probe):
    """What would each block's states do to the output, on average?"""

    words = ProbeWords(
        name="jacobian_lens", title="Jacobian lens", group="head",
        sentence=f"What do a block's states say if they are moved as the rest of the model moves them on average? The mean "
        f"Jacobian is of the first {FITTED} tokens; read are {JACOBIAN_LENS_TOKENS:,} others.",
        literature="Gurnee et al. 2026, arXiv:2607.15495 (there the target is the last block but one, and thousands of windows)",
        position="All positions.", docs="lenses.md", function="headscan.measures.lenses.mean_jacobians", expensive=True,
        order=21, fields=FIELDS | {
            "kl_plain": Field("the logit lens's", "The divergence of the logit lens on the same tokens (J = I).",
                range=(0, None), unit="nats", plotted=True),
            "steadiness": Field("steadiness",
                "Cosine of the Jacobians of two halves of the tokens: near 1, there are enough.", "⟨J₁, J₂⟩/‖J₁‖‖J₂‖",
                range=(-1, 1), undefined="one window", interval="it is one itself"),
        },
    )  # fmt: skip

    def reason(self, setup: ProbeSetup) -> str | None:
        lens = setup.lens
        if not lens.traits.causal:
            return "its output at a token is no prediction of the next"
        if LensHead.of(lens) is None:
            return "its head is no linear map of its last norm or block"
        return "its weights are rounded to integers" if lens.traits.quantised else None

    def cost(self, setup: ProbeSetup) -> Cost:
        size = sum(p.numel() for p in setup.lens.model.parameters())
        width = setup.lens.width("embedding")
        return Cost(4.0 * size * FITTED * width, 4.0 * 16 * FITTED * width * setup.lens.depth)

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        lens, sites = setup.lens, stream_sites(setup)
        readout = LensHead.of(lens)
        assert readout is not None
        fitted = max(1, FITTED // setup.context)
        chosen, read = (
            data.windows[:fitted],
            data.windows[fitted : fitted + max(1, JACOBIAN_LENS_TOKENS // setup.context)],
        )
        if not len(read):
            return [{"site": "head", "notes": ["the text has too few windows"], **dict.fromkeys(self.fields)}]
        sizes = [part for part in chosen.tensor_split(2) if len(part)]
        try:
            halves = [mean_jacobians(lens, part, sites, readout.last) for part in sizes]
        except BadInput as error:
            return [{"site": "head", "notes": [str(error)], **dict.fromkeys(self.fields)}]
        weights = [len(part) / len(chosen) for part in sizes]
        jacobians = {
            site: sum((w * half[site] for w, half in zip(weights, halves, strict=True)), torch.zeros(())).float()
            for site in sites
        }

        def moved(site: str, states: Tensor) -> Tensor:
            return states.float() @ jacobians[site].T

        ways = {"jacobian": moved, "plain": lambda site, states: states}
        rows = reading_rows(lens, readout, sites, read.tensor_split(8), ways, self.fields)
        for row, site in zip(rows, sites, strict=True):
            row["steadiness"] = None
            if len(halves) > 1:
                one, two = (half[site].flatten() for half in halves)
                row["steadiness"] = float(torch.nn.functional.cosine_similarity(one, two, dim=0))
        return rows
