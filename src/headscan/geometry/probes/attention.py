"""The probe `attention`: attention drift."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

from headscan.geometry.attention import attention_drift
from headscan.geometry.explained import Cells, Field, ProbeWords
from headscan.geometry.probe import Probe
from headscan.geometry.probe_setup import ProbeData, ProbeSetup
from headscan.run import BadInput

__all__ = ["AttentionProbe"]


class AttentionProbe(Probe):
    """Mean queries and keys."""

    words = ProbeWords(
        name="attention", title="Attention drift", group="attention",
        sentence="Do a head's queries and keys share directions, and how sharp is its attention? Over the first "
        "4096 tokens.",
        literature="Godey et al. 2024, arXiv:2401.12143",
        position="Positions that see one token only count in drifts and entropy, not in sharpness and the weight on "
        "position 0, which is the measure of position 0 itself.",
        docs="attention.md", function="headscan.geometry.attention.head_rows", picture="heads", order=18, fields={
            "head": Field("head", "Number of the head.", range=(0, None), interval="a number of a head"),
            "query_norm": Field("norm of mean query",
                "Length of the head's mean query; it grows in training where attention sharpens by drift.", "‖q̄‖",
                (0, None), undefined="no position"),
            "key_norm": Field("norm of mean key", "Length of the head's mean key.", "‖k̄‖", (0, None),
                undefined="no position"),
            "query_drift": Field("query drift", "Norm of the mean query over the mean norm.", "‖Σq‖/Σ‖q‖", (0, 1),
                undefined="its queries or keys are zero on average"),
            "key_drift": Field("key drift", "Norm of the mean key over the mean norm.", "‖Σk‖/Σ‖k‖", (0, 1),
                undefined="its queries or keys are zero on average"),
            "drift_cosine": Field("drift cosine", "Cosine between the mean query and the mean key.", "cos(q̄, k̄)",
                (-1, 1), undefined="its queries or keys are zero on average", plotted=True),
            "attention_entropy": Field("attention entropy", "Of the weights, averaged over positions.", "−Σ a log a",
                (0, None), unit="nats"),
            "sharpness": Field("sharpness", "1 − entropy/log(visible positions): 0 uniform, 1 on one position.",
                range=(0, 1), plotted=True),
            "first_share": Field("weight on position 0", "An attention sink where near 1.", range=(0, 1), plotted=True),
        },
    )  # fmt: skip

    def reason(self, setup: ProbeSetup) -> str | None:
        parts = (site.rsplit(".", 1)[-1] for site in setup.lens.sites)
        return None if "attention" in parts else "it has no attention"

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        ids = data.windows[: max(1, TOKENS // setup.context)].to(setup.lens.device)
        try:
            return list(
                attention_drift(setup.lens, ids.tensor_split(max(min(8, len(ids)), len(ids) * setup.context // 2048)))
            )
        except BadInput as error:
            return [{"site": "attention", "notes": [str(error)], **dict.fromkeys(self.fields)}]


TOKENS = 4096
