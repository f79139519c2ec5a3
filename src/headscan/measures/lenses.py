"""Lenses: the predictions that the head reads from the states of an early block, and how far they
are from the model's own.

The logit lens (nostalgebraist 2020) gives the states to the final norm and the head as they are.
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
from headscan.run import Json
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
        "The divergence where the lens reads another token of the same batch: the null.",
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
        """Return the final norm and the head of a model.

        None where the head is no linear map, or reads what no norm at the end gives.
        """
        head = lens.traits.linear_head
        if head is None or len(lens.stacks) != 1:
            return None
        last = f"block.{lens.depth - 1}"
        if head.site == last:
            return cls(None, head, last)
        tap = lens.tap(head.site)
        if head.site != "final_norm" or tap.where != "output":
            return None
        return cls(tap.module, head, last)

    @torch.no_grad()
    def __call__(self, states: Float[Tensor, "... d"]) -> Float[Tensor, "... V"]:
        states = states.to(self.head.weight)
        if self.norm is not None:
            states = self.norm(states)
        logits: Tensor = self.head.logits(states).float()
        return logits.log_softmax(-1)


def stream_sites(setup: ProbeSetup) -> tuple[str, ...]:
    """Return the blocks among the scan's sites, and the embedding."""
    return tuple(site for site in setup.sites if site == "embedding" or is_block(site))


def read(readout: LensHead, final: Tensor, states: Tensor, following: Tensor) -> Tally:
    """Return sums over tokens of how far the readout of states [n, d] is from the model's output.

    The output is the readout of the last block's states, `final` [n, d]; `following` [n] are the
    next ids, or −1. The null pairs each token with the one half of the batch away. Cost 4·n·d·V
    operations.
    """
    tally = Tally(dict.fromkeys(SUMS, ()))
    step = max(2, CHUNK // len(readout.head.weight))
    for start in range(0, len(states), step):
        part = slice(start, start + step)
        output = readout(final[part])
        through = readout(states[part])
        shuffled = through.roll(len(through) // 2, 0)
        for ending, logs in (("", through), ("_shuffled", shuffled)):
            divergence = (output.exp() * (output - logs)).sum(-1)
            agrees = output.argmax(-1) == logs.argmax(-1)
            tally[f"kl{ending}"] += divergence.double().sum().cpu()
            tally[f"agree{ending}"] += agrees.double().sum().cpu()
        next_ids = following[part].to(states.device)
        known = next_ids >= 0
        next_logs = through[known].gather(1, next_ids[known][:, None])
        tally["loss"] -= next_logs.double().sum().cpu()
        tally["predicted"] += known.double().sum().cpu()
        tally["tokens"] += float(len(output))
    return tally


def _numbers(tally: Tally) -> dict[str, float | None]:
    """Return the means from the sums of `read`."""
    tokens = float(tally["tokens"])
    predicted = float(tally["predicted"])
    # Rounding makes the divergence of equal distributions a little negative.
    return {
        "kl": max(0.0, float(tally["kl"]) / tokens),
        "agreement": float(tally["agree"]) / tokens,
        "kl_shuffled": max(0.0, float(tally["kl_shuffled"]) / tokens),
        "agreement_shuffled": float(tally["agree_shuffled"]) / tokens,
        "lens_loss": float(tally["loss"]) / predicted if predicted else None,
    }


def reading_rows(
    lens: Lens, readout: LensHead, sites: Sequence[str], parts: Sequence[Tensor]
) -> list[Cells]:
    """Return one row for each site with the numbers of `FIELDS`.

    `parts` are ids [B, T] of parts of the text; for the intervals they are left out by turns.
    """
    tallies: dict[str, list[Tally]] = {site: [] for site in sites}
    read_sites = tuple(dict.fromkeys([*sites, readout.last]))
    for ids in parts:
        if not len(ids):
            continue
        states = lens.run(ids.to(lens.device), sites=read_sites)
        final = states[readout.last].flatten(0, 1)
        following = torch.nn.functional.pad(ids[:, 1:], (0, 1), value=-1).flatten()
        for site in sites:
            site_states = states[site].flatten(0, 1)
            tallies[site].append(read(readout, final, site_states, following))
    rows: list[dict[str, Json]] = []
    for site, site_tallies in tallies.items():
        rows.append({"site": site, **_site_cells(site_tallies)})
    return rows


def _site_cells(tallies: Sequence[Tally]) -> Cells:
    """Return the numbers of one site from the sums of parts of the text, with their intervals."""
    total = Tally.restore(tallies[0].state())
    for part in tallies[1:]:
        total.merge(part)
    values = _numbers(total)
    left_out = []
    if len(tallies) > 2:
        left_out = [_numbers(total.without(part)) for part in tallies]
    sizes = [float(part["tokens"]) for part in tallies]
    bounds = {name: FIELDS[name].range for name in values}
    return with_intervals(values, left_out, sizes, bounds)


LOGIT_LENS_TOKENS = 2048


class LogitLensProbe(Probe):
    """The predictions that the logit lens reads at every block."""

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
        if LensHead.of(setup.lens) is None:
            return "its head is no linear map of its last norm or block"
        return None

    def cost(self, setup: ProbeSetup) -> Cost:
        vocabulary = setup.lens.vocabulary_size
        width = setup.lens.width("embedding")
        tokens = min(LOGIT_LENS_TOKENS, setup.tokens or LOGIT_LENS_TOKENS)
        operations = 8.0 * vocabulary * width * tokens * len(stream_sites(setup))
        return Cost(operations, 4.0 * 3 * CHUNK)

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        readout = LensHead.of(setup.lens)
        assert readout is not None
        windows = data.windows[: max(2, LOGIT_LENS_TOKENS // setup.context)]
        return reading_rows(setup.lens, readout, stream_sites(setup), windows.tensor_split(8))
