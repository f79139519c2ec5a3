"""The kinds of findings that an attribution can have."""

from headscan.run.kinds import TEST, declare

FAITHFUL = declare(
    "HS320",
    "FAITHFUL",
    "attribute",
    "Replacing what the map ranks highest lowers the prediction more than chance.",
    "the gain's interval above 0, that of putting back not below",
    TEST,
    "docs/attribution.md has its coverage",
)
UNFAITHFUL = declare(
    "HS321",
    "UNFAITHFUL",
    "attribute",
    "The map ranks tokens no better than chance.",
    "both gains' intervals below a tenth of what random orders leave",
    TEST,
    "as HS320",
)
UNDECIDED = declare(
    "HS322",
    "UNDECIDED",
    "attribute",
    "What was measured cannot tell the map from chance.",
    "neither of both",
    TEST,
)
INCOMPLETE = declare(
    "HS323",
    "INCOMPLETE",
    "attribute",
    "The map's scores miss the sum that they must have.",
    "by more than 1 %",
)
