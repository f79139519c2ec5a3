"""The ledger: claims of the literature with a protocol, an experiment and a verdict each.

- `CLAIMS`, `Claim`, `enter`: claims by number; plug-ins enter their own
- `EXPERIMENTS`, `Experiment`, `ExperimentOutcome`, `Measurement`: what is measured, and what came of it
- `decide`: the one rule from measurements to a verdict
"""

from headscan_lab.ledger.claim import CLAIMS, Claim, Decision, decide, enter
from headscan_lab.ledger.experiment import (
    DOCUMENTS,
    EXPERIMENTS,
    VERDICTS,
    Experiment,
    ExperimentOutcome,
    ExperimentWords,
    Power,
    Region,
    StandIn,
)
from headscan_lab.ledger.measurement import Measurement

__all__ = [
    "CLAIMS", "DOCUMENTS", "EXPERIMENTS", "VERDICTS", "Claim", "Decision", "Experiment", "ExperimentOutcome", "ExperimentWords",
    "Measurement", "Power", "Region", "StandIn", "decide", "enter",
]  # fmt: skip
