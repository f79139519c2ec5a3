"""The four questions joined: one command that examines a model, names what it has and says what would help."""

from headscan.diagnosis.checkup import checkup
from headscan.diagnosis.condition import CONDITIONS, Condition, Seen
from headscan.diagnosis.evidence import Grid, ModelEvidence, PromptRead
from headscan.diagnosis.result import CheckupResult, Examination, Observation
from headscan.diagnosis.settings import CheckingUp

__all__ = [
    "CONDITIONS",
    "CheckingUp",
    "CheckupResult",
    "Condition",
    "Examination",
    "Grid",
    "ModelEvidence",
    "Observation",
    "PromptRead",
    "Seen",
    "checkup",
]  # fmt: skip
