"""The probe `gradient`: push and pull."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

from headscan.geometry.explained import Cells, Field, ProbeWords
from headscan.geometry.gradient import push_pull_bins
from headscan.geometry.probe import Probe
from headscan.geometry.probe_setup import Cost, ProbeData, ProbeSetup
from headscan.statistics import PushPull, SiteBatch
from headscan.statistics.accumulator import Accumulator

__all__ = ["GradientProbe"]


class GradientProbe(Probe):
    """Push and pull."""

    words = ProbeWords(
        name="gradient", title="Push and pull", group="zipf",
        sentence="How hard does cross-entropy pull each output row to hidden states where its token comes next, and "
        "push it away elsewhere?",
        literature="Gao et al. 2019, arXiv:1907.12009; Yu et al. 2022 (AGG)",
        position="All positions that have a successor: that is where the loss is (--skip-first 1 leaves the first "
        "out).",
        docs="zipf.md", function="headscan.geometry.gradient.push_pull_bins", expensive=True, order=12, fields={
            "from": Field("from count", "Least count as the next token.", range=(0, None),
                interval="an edge of the bin"),
            "to": Field("to count", "Largest count.", range=(0, None), interval="an edge of the bin"),
            "tokens": Field("types", "Rows in the bin.", range=(1, None), interval="a count"),
            "pull": Field("pull",
                "Mean norm of Σ(1 − p)h over the positions where the token comes next, per position of the text.",
                "‖pull_v‖/n", (0, None),
                interval="summed over the whole text: blocks would each take a table of the head's size"),
            "push": Field("push", "Mean norm of Σ p·h over all other positions.", "‖push_v‖/n", (0, None),
                interval="summed over the whole text: blocks would each take a table of the head's size"),
            "ratio": Field("push share",
                "Push over push and pull; ½ at a minimum, 1 for tokens that never come next.", range=(0, 1),
                undefined="no gradient at all",
                interval="summed over the whole text: blocks would each take a table of the head's size"),
            "cosine": Field("push against pull", "Mean cosine between the two.", range=(-1, 1),
                undefined="no row is both pulled and pushed",
                interval="summed over the whole text: blocks would each take a table of the head's size"),
            "net_to_state": Field("net to mean state", "Mean cosine of pull − push to the mean hidden state.",
                range=(-1, 1), undefined="nothing moves",
                interval="summed over the whole text: blocks would each take a table of the head's size"),
        },
    )  # fmt: skip

    def reason(self, setup: ProbeSetup) -> str | None:
        return None if setup.lens.traits.linear_head else "its logits are no linear map of the last site"

    def cost(self, setup: ProbeSetup) -> Cost:
        vocabulary, width = setup.lens.vocabulary_size, setup.lens.width(setup.last)
        return Cost(4.0 * (setup.tokens or 10**6) * vocabulary * (width + 10), 24.0 * vocabulary * width)

    def accumulators(self, setup: ProbeSetup) -> dict[str, Accumulator]:
        head = setup.lens.traits.linear_head
        assert head is not None
        vocabulary, width = head.weight.shape
        return {setup.last: PushPull(vocabulary, width, device=setup.device)}

    def update(self, setup: ProbeSetup, key: str, accumulator: Accumulator, batch: SiteBatch) -> None:
        head = setup.lens.traits.linear_head
        assert head is not None
        assert isinstance(accumulator, PushPull)
        known = batch.next_ids >= 0
        accumulator.update(batch.rows[known], batch.next_ids[known], head.weight, head.bias)

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        sums = next(iter(data.own.values()))
        assert isinstance(sums, PushPull)
        return [{"site": "output embeddings", **row} for row in push_pull_bins(sums)]
