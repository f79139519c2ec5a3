"""The four questions joined: one command that examines a model, names what it has and says what
would help.
"""

from headscan.diagnosis.evidence import (
    Grid,
    LeakedBits,
    ModelEvidence,
    PromptRead,
    TokenFlow,
    TriedRemedies,
)
from headscan.diagnosis.plan import CheckupInputs
from headscan.diagnosis.publish import markdown
from headscan.diagnosis.registry import CONDITIONS, Condition, Seen, condition
from headscan.diagnosis.result import CheckupResult, Examination, Observation
from headscan.diagnosis.run import checkup

__all__ = [
    "CONDITIONS",
    "CheckupInputs",
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
    "checkup",
    "condition",
    "markdown",
]


def __dir__() -> list[str]:
    return __all__
