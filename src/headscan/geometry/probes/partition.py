"""The probe `partition`: partition isotropy."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

from headscan.geometry.explained import Cells, Field, ProbeWords
from headscan.geometry.partition import partition_isotropy
from headscan.geometry.probe import Probe
from headscan.geometry.probe_setup import ProbeData, ProbeSetup, tables

__all__ = ["PartitionProbe"]


class PartitionProbe(Probe):
    """I(W) of the tables."""

    words = ProbeWords(
        name="partition", title="Partition isotropy", group="head",
        sentence="Does Σ exp(c·w) over the vocabulary depend on the direction c? I(W) with both signs of every "
        "eigenvector, and its approximations.",
        literature="Mu and Viswanath 2018, arXiv:1702.01417; Wang et al. 2020",
        position="Tables of weights know no position.", docs="partition.md",
        function="headscan.geometry.partition.partition_isotropy", order=9, fields={
            "partition": Field("I(W)", "min Z/max Z over ±eigenvectors; 1 is isotropic.", "min Z(c)/max Z(c)", (0, 1),
                interval="a property of the weights alone"),
            "log_partition_range": Field("log I(W)", "The same in nats, which does not round to 0.",
                "log min Z − log max Z", (None, 0), unit="nats", interval="a property of the weights alone"),
            "partition_first": Field("first order", "Its first-order approximation in the length of the rows.",
                "(V − ‖Σw‖)/(V + ‖Σw‖)", (-1, 1), interval="a property of the weights alone"),
            "partition_second": Field("second order", "Its second-order approximation.",
                "(V − ‖Σw‖ + σ²_min/2)/(V + ‖Σw‖ + σ²_max/2)", (-1, 1), interval="a property of the weights alone"),
            "partition_spread": Field("I₂(W)", "Relative spread of Z; 0 is isotropic.", "sd(Z)/mean(Z)", (0, None),
                interval="a property of the weights alone"),
        },
    )  # fmt: skip

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        return [{"site": name, **partition_isotropy(table)} for name, table in tables(setup).items()]
