"""The probe `frequency`: embedding rows by frequency."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

from headscan.geometry.explained import Cells, Field, ProbeWords
from headscan.geometry.frequency import frequency_bins
from headscan.geometry.probe import Probe
from headscan.geometry.probe_setup import ProbeData, ProbeSetup, tables

__all__ = ["FrequencyProbe"]


class FrequencyProbe(Probe):
    """Rare and frequent rows."""

    words = ProbeWords(
        name="frequency", title="Embedding rows by frequency", group="zipf",
        sentence="Do rare tokens live elsewhere? Rows of the embedding tables by how often their token occurs in "
        "this text.",
        literature="Gao et al. 2019, arXiv:1907.12009; Biś et al. 2021",
        position="Tables and counts know no position; the mean state is that of all positions counted (--skip-first "
        "1 leaves the first out).",
        docs="zipf.md", function="headscan.geometry.frequency.frequency_bins", order=10, fields={
            "from": Field("from count", "Least count of the bin.", range=(0, None), interval="an edge of the bin"),
            "to": Field("to count", "Largest count of the bin.", range=(0, None), interval="an edge of the bin"),
            "tokens": Field("types", "Rows in the bin.", range=(1, None), interval="a count"),
            "share": Field("share of the text", "Of all tokens of the text.", range=(0, 1),
                interval="a sum of counts", percent=True),
            "mean_norm": Field("mean norm", "Mean length of the rows.", range=(0, None),
                interval="fewer than ten rows"),
            "drift": Field("drift", "Norm of the mean row over the mean norm.", "‖Σw‖/Σ‖w‖", (0, 1),
                undefined="all rows are zero", interval="fewer than 64 rows"),
            "cosine_to_state": Field("cosine to mean state",
                "Mean cosine to the mean hidden state that the head reads; negative: pushed away.", "mean cos(w, h̄)",
                (-1, 1), undefined="the table and the last site differ in width", interval="fewer than ten rows"),
            "average_cosine": Field("average cosine", "Over pairs inside the bin.", "(‖Σŵ‖² − n)/(n(n − 1))", (-1, 1),
                undefined="one row only", interval="fewer than 64 rows"),
            "log_partition_range": Field("log I(W)", "Partition isotropy of the bin's rows, nats.", range=(None, 0),
                interval="a property of the weights alone"),
        },
    )  # fmt: skip

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        rows: list[Cells] = []
        last = data.clouds.get(setup.last)
        for name, table in tables(setup).items():
            mean = last.mean if last is not None and last.width == table.shape[1] else None
            rows += [{"site": name, **bin_} for bin_ in frequency_bins(table, data.counts, mean_state=mean)]
        return rows
