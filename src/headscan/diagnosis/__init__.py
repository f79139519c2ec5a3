"""The four questions joined: one command that examines a model, names what it has and says what would help."""

from headscan.diagnosis.card import markdown
from headscan.diagnosis.checkup import checkup
from headscan.diagnosis.condition import CONDITIONS, Condition, Seen
from headscan.diagnosis.evidence import Grid, LeakedBits, ModelEvidence, PromptRead, TokenFlow, TriedRemedies
from headscan.diagnosis.pushing import check_push, push
from headscan.diagnosis.result import CheckupResult, Examination, Observation
from headscan.diagnosis.settings import CheckingUp

__all__ = [
    "CONDITIONS",
    "CheckingUp",
    "CheckupResult",
    "Condition",
    "Examination",
    "Grid",
    "LeakedBits",
    "ModelEvidence",
    "Observation",
    "PromptRead",
    "Seen",
    "TokenFlow",
    "TriedRemedies",
    "check_push",
    "checkup",
    "markdown",
    "push",
]  # fmt: skip
