"""The kinds of findings that a trial of remedies can have."""

from headscan.run.kinds import TEST, declare

HELPS = declare(
    "HS410",
    "HELPS",
    "remedy",
    "A remedy improves retrieval.",
    "interval of the gain above 0",
    TEST,
    number="gain",
)
NO_HELP = declare(
    "HS411",
    "NO_HELP",
    "remedy",
    "No remedy improves retrieval.",
    "no gain's interval above 0",
    TEST,
    number="without a remedy",
)
HARMS = declare(
    "HS412",
    "HARMS",
    "remedy",
    "A remedy lowers retrieval.",
    "interval of the gain below 0",
    TEST,
    number="gain",
)
FEW = declare(
    "HS413",
    "FEW",
    "remedy",
    "Remedies were fitted on few vectors.",
    "below four vectors a dimension",
    number="vectors fitted on",
)
COMPRESSED = declare(
    "HS414",
    "COMPRESSED",
    "remedy",
    "The compression that finds most within a byte budget.",
    "largest nDCG@10, recall@1 or share of neighbours",
    number="found",
)
LOSES = declare(
    "HS415",
    "LOSES",
    "remedy",
    "A compression lowers retrieval.",
    "interval of the gain below 0",
    TEST,
    number="gain",
)
