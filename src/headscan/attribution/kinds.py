"""The kinds of findings that an attribution can have."""

from headscan.run.kinds import TEST, declare

FAITHFUL = declare(
    "HS320",
    "FAITHFUL",
    "attribute",
    "The attribution beats random orderings.",
    "interval of the deletion gain above 0, that of insertion not below 0",
    TEST,
    "docs/attribution.md has its coverage",
    number="deletion, minus random",
)
UNFAITHFUL = declare(
    "HS321",
    "UNFAITHFUL",
    "attribute",
    "The attribution is not better than random orderings.",
    "both gains' intervals below a tenth of the random orderings' area",
    TEST,
    "as HS320",
    number="deletion, minus random",
)
UNDECIDED = declare(
    "HS322",
    "UNDECIDED",
    "attribute",
    "The test cannot distinguish the attribution from random orderings.",
    "neither HS320 nor HS321",
    TEST,
    number="deletion, minus random",
)
INCOMPLETE = declare(
    "HS323",
    "INCOMPLETE",
    "attribute",
    "The scores do not add up to the total that the method guarantees.",
    "by more than 1 %",
    number="missing share of the total",
)
