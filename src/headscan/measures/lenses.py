"""Lenses: what the states of an early block would say if the head read them, and how far that is
from what the model says.

The logit lens (nostalgebraist 2020) gives them to the final norm and the head as they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headscan.measures.measure import Field, ProbeWords
from headscan.measures.probe import Cost, Probe, ProbeData, ProbeSetup
from headscan.model import Lens
from headscan.model.sites import is_block
from headscan.model.traits import LinearHead
from headscan.statistics import Tally
from headscan.statistics.uncertainty import Cells, with_intervals

CHUNK = 2**23  # logits that are made at once
SUMS = ("tokens", "kl", "agree", "kl_shuffled", "agree_shuffled", "loss", "predicted")
FIELDS = {
    "kl": Field(
        "KL to the output",
        "Divergence of the lens's next-token distribution from the model's own.",
        "mean KL(p‖p_lens)",
        range=(0, None),
        unit="nats",
        plotted=True,
    ),
    "agreement": Field(
        "same first token",
        "Share of tokens where both find the same next token likeliest.",
        range=(0, 1),
        plotted=True,
    ),
    "lens_loss": Field(
        "loss through the lens",
        "Mean cross-entropy of the next token.",
        "−mean log p_lens(next)",
        range=(0, None),
        unit="nats a token",
        undefined="windows of one token",
    ),
    "kl_shuffled": Field(
        "null: another token",
        "The divergence where the lens reads another token of the same batch: what it knows of no "
        "token in particular.",
        "mean KL(p_t‖p_lens,s)",
        range=(0, None),
        unit="nats",
        plotted=True,
    ),
    "agreement_shuffled": Field(
        "its first token", "The share of equal first tokens in that null.", range=(0, 1)
    ),
}


@dataclass(frozen=True)
class LensHead:
    """The final norm and the head: from states [..., d] of the last block to log probabilities
    [..., V].
    """

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
        return (
            cls(tap.module, head, last)
            if head.site == "final_norm" and tap.where == "output"
            else None
        )

    @torch.no_grad()
    def __call__(self, states: Float[Tensor, "... d"]) -> Float[Tensor, "... V"]:
        states = states.to(self.head.weight)
        logits: Tensor = self.head.logits(
            states if self.norm is None else self.norm(states)
        ).float()
        return logits.log_softmax(-1)


def stream_sites(setup: ProbeSetup) -> tuple[str, ...]:
    """The blocks among the scan's sites, and the embedding."""
    return tuple(site for site in setup.sites if site == "embedding" or is_block(site))


def read(readout: LensHead, final: Tensor, states: Tensor, following: Tensor) -> Tally:
    """Sums over tokens: how far the readout of states [n, d] is from that of the last block's
    states `final` [n, d]. The null pairs each token with the one half of the batch away. Cost
    4·n·d·V operations.
    """
    tally = Tally(dict.fromkeys(SUMS, ()))
    step = max(2, CHUNK // len(readout.head.weight))
    for start in range(0, len(states), step):
        part = slice(start, start + step)
        output = readout(final[part])
        through = readout(states[part])
        next_ids = following[part].to(states.device)
        for end, logs in (("", through), ("_shuffled", through.roll(len(through) // 2, 0))):
            tally[f"kl{end}"] += (output.exp() * (output - logs)).sum(-1).double().sum().cpu()
            tally[f"agree{end}"] += (output.argmax(-1) == logs.argmax(-1)).double().sum().cpu()
        known = next_ids >= 0
        tally["loss"] -= through[known].gather(1, next_ids[known][:, None]).double().sum().cpu()
        tally["predicted"] += known.double().sum().cpu()
        tally["tokens"] += float(len(output))
    return tally


def _numbers(tally: Tally) -> dict[str, float | None]:
    tokens = float(tally["tokens"])
    predicted = float(tally["predicted"])
    names = {
        "kl": "kl",
        "agreement": "agree",
        "kl_shuffled": "kl_shuffled",
        "agreement_shuffled": "agree_shuffled",
    }
    numbers: dict[str, float | None] = {
        name: float(tally[key]) / tokens for name, key in names.items()
    }
    # Rounding makes the divergence of what is equal a little negative.
    numbers |= {name: max(0.0, numbers[name] or 0.0) for name in ("kl", "kl_shuffled")}
    return numbers | {"lens_loss": float(tally["loss"]) / predicted if predicted else None}


def reading_rows(
    lens: Lens, readout: LensHead, sites: Sequence[str], parts: Sequence[Tensor]
) -> list[Cells]:
    """One row a site with the numbers of `FIELDS`; intervals leave the parts of the text out by
    turns.
    """
    tallies: dict[str, list[Tally]] = {site: [] for site in sites}
    for ids in parts:
        if not len(ids):
            continue
        states = lens.run(ids.to(lens.device), sites=tuple(dict.fromkeys([*sites, readout.last])))
        following = torch.nn.functional.pad(ids[:, 1:], (0, 1), value=-1).flatten()
        for site in sites:
            final, site_states = (states[name].flatten(0, 1) for name in (readout.last, site))
            tallies[site].append(read(readout, final, site_states, following))
    rows: list[Cells] = []
    for site, site_tallies in tallies.items():
        total = Tally.restore(site_tallies[0].state())
        for part in site_tallies[1:]:
            total.merge(part)
        values = _numbers(total)
        left_out = (
            [_numbers(total.without(part)) for part in site_tallies]
            if len(site_tallies) > 2
            else []
        )
        sizes = [float(part["tokens"]) for part in site_tallies]
        row: Cells = {"site": site}
        rows.append(
            row
            | with_intervals(values, left_out, sizes, {name: FIELDS[name].range for name in values})
        )
    return rows


LOGIT_LENS_TOKENS = 2048


class LogitLensProbe(Probe):
    """From which block on does the model know its prediction?"""

    words = ProbeWords(
        name="logit_lens",
        title="Logit lens",
        group="head",
        sentence="From which block on do the states, read by the model's own final norm and "
        f"head, give its prediction? On the first {LOGIT_LENS_TOKENS:,} tokens.",
        literature="nostalgebraist 2020",
        position="All positions.",
        docs="lenses.md",
        function="headscan.measures.lenses.read",
        expensive=True,
        order=20,
        fields=FIELDS,
    )

    def reason(self, setup: ProbeSetup) -> str | None:
        if not setup.lens.traits.causal:
            return "its output at a token is no prediction of the next"
        return (
            None
            if LensHead.of(setup.lens) is not None
            else "its head is no linear map of its last norm or block"
        )

    def cost(self, setup: ProbeSetup) -> Cost:
        vocabulary = setup.lens.vocabulary_size
        width = setup.lens.width("embedding")
        tokens = min(LOGIT_LENS_TOKENS, setup.tokens or LOGIT_LENS_TOKENS)
        return Cost(8.0 * vocabulary * width * tokens * len(stream_sites(setup)), 4.0 * 3 * 2**23)

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        lens = setup.lens
        sites = stream_sites(setup)
        readout = LensHead.of(lens)
        assert readout is not None
        return reading_rows(
            lens,
            readout,
            sites,
            data.windows[: max(2, LOGIT_LENS_TOKENS // setup.context)].tensor_split(8),
        )
