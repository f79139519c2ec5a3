"""The kinds of findings that a scan can have."""

from headscan.run.kinds import TEST, declare

CONE = declare(
    "HS101",
    "CONE",
    "scan",
    "Tokens point in similar directions on average, so cosines between them say little.",
    "average cosine of the last block without sinks: mentioned from 0.15, a notice from 0.5, an "
    "alarm from 0.7; another site from 0.05 more",
    number="average cosine",
)
ROGUE = declare(
    "HS102",
    "ROGUE",
    "scan",
    "A few coordinates cause most of a cone.",
    "mentioned from 0.3 of the average cosine; a notice where they make an average cosine of 0.5",
    number="share of the average cosine",
)
SINK = declare(
    "HS104",
    "SINK",
    "scan",
    "A few tokens, mostly the first, have norms so large that they carry a layer's energy.",
    "mentioned from a tenth of the energy, a notice from half of it; a sink is longer than three "
    "times the median of its window",
    number="share of the energy",
)
ROUND = declare(
    "HS110",
    "ROUND",
    "scan",
    "There is no cone at any site.",
    "every average cosine below 0.15",
    number="average cosine of the last block",
)
DRIFT = declare(
    "HS111",
    "DRIFT",
    "scan",
    "The mean vector is far from the origin.",
    "norm of the mean vector from half of the mean norm",
    number="of the mean norm",
)
SPIKE = declare(
    "HS112",
    "SPIKE",
    "scan",
    "One direction carries most of the energy.",
    "a notice from half of it, an alarm from 0.8; another site from 0.05 more",
    number="share of the energy",
)
FLAT = declare(
    "HS113",
    "FLAT",
    "scan",
    "The states use few of their dimensions.",
    "effective rank below a tenth of the width",
    number="effective rank",
)
LENGTH = declare(
    "HS114",
    "LENGTH",
    "scan",
    "A number still depends on the length of the text, or little was read.",
    "last block's rank by a tenth, cosine or top share by 0.05 since half, twice that since a "
    "quarter; below 2,048 tokens",
    number="effective rank",
)
UNEQUAL = declare(
    "HS115",
    "UNEQUAL",
    "scan",
    "Models read different numbers of tokens: their spectral numbers are not compared.",
    "lengths differ by more than a tolerance",
    number="fewest tokens read",
)
BUILT = declare(
    "HS116",
    "BUILT",
    "scan",
    "Branches that cause the cone of the last block.",
    "the fewest that cause half of it",
    number="share of the average cosine",
)
SAYS = declare(
    "HS117",
    "SAYS",
    "scan",
    "Correlation of the mean direction's logits with token frequency.",
    "correlation with the log frequency, compared with random directions",
    TEST,
    number="rank correlation",
)
UNKNOWN_TOKENS = declare(
    "HS205",
    "UNKNOWN-TOKENS",
    "scan",
    "The tokenizer does not cover the text: no other finding is made.",
    "a notice from 1 %, an alarm from 5 %",
    number="share of the tokens",
)
