"""The kinds of findings that a scan can have."""

from headscan.run.kinds import TEST, declare

CONE = declare(
    "HS101",
    "CONE",
    "scan",
    "Two tokens point much the same way on average, so that cosines between them say little.",
    "average cosine of the last block without sinks: mentioned from 0.15, a notice from 0.5, an "
    "alarm from 0.7; another site from 0.05 more on",
)
ROGUE = declare(
    "HS102",
    "ROGUE",
    "scan",
    "A few coordinates make most of a cone.",
    "mentioned from 0.3 of the average cosine; a notice where they make an average cosine of 0.5",
)
SINK = declare(
    "HS104",
    "SINK",
    "scan",
    "A few tokens, mostly the first, are so long that they carry the energy of a layer.",
    "mentioned from a tenth of the energy, a notice from half of it; a sink is longer than three "
    "times the median of its window",
)
ROUND = declare(
    "HS110",
    "ROUND",
    "scan",
    "There is no cone at any site.",
    "every average cosine below 0.15",
)
DRIFT = declare(
    "HS111",
    "DRIFT",
    "scan",
    "The cloud sits off the origin.",
    "mean vector from half of the average length",
)
SPIKE = declare(
    "HS112",
    "SPIKE",
    "scan",
    "One direction carries most of the energy.",
    "a notice from half of it, an alarm from 0.8; another site from 0.05 more on",
)
FLAT = declare(
    "HS113",
    "FLAT",
    "scan",
    "Few of the dimensions are used.",
    "effective rank below a tenth of the width",
)
LENGTH = declare(
    "HS114",
    "LENGTH",
    "scan",
    "A number still changes with the length of the text, or little was read.",
    "last block's rank by a tenth, cosine or top share by 0.05 since half, twice that since a "
    "quarter; below 2,048 tokens",
)
UNEQUAL = declare(
    "HS115",
    "UNEQUAL",
    "scan",
    "Models read texts of unequal lengths: their spectral numbers are not compared.",
    "a length above that of another by more than the tolerance",
)
BUILT = declare(
    "HS116",
    "BUILT",
    "scan",
    "Which branches build the cone of the last block.",
    "the fewest that make half of it",
)
SAYS = declare(
    "HS117",
    "SAYS",
    "scan",
    "Whether the mean direction says how frequent each token is.",
    "correlation with the log frequency, beside random directions",
    TEST,
)
UNKNOWN_TOKENS = declare(
    "HS205",
    "UNKNOWN-TOKENS",
    "scan",
    "The tokenizer does not know the text: nothing else is said of it.",
    "a notice from 1 %, an alarm from 5 %",
)
