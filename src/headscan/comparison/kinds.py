"""The kinds of findings that a comparison can have."""

from headscan.run.kinds import TEST, declare

SAME = declare(
    "HS120",
    "SAME",
    "compare",
    "Two models have the same states and the same nearest neighbours.",
    "CKA of 1 to six digits and mutual neighbours of at least 0.99",
    "rounding of float32 and float16",
)
PARTING = declare(
    "HS121",
    "PARTING",
    "compare",
    "The layer from which on two models differ.",
    "CKA falls by .1 from site to site",
)
CLOSENESS = declare(
    "HS122",
    "CLOSENESS",
    "compare",
    "How alike the sites of two models are at least.",
    "least CKA; fine above 0.9, where mutual neighbours are above 0.9, too",
)
PARTLY_ALIGNED = declare(
    "HS123",
    "PARTLY-ALIGNED",
    "compare",
    "Two tokenizers share few ends of tokens.",
    "below half of the tokens",
)
UNTESTED = declare(
    "HS124",
    "UNTESTED",
    "compare",
    "The text is too short to tell likeness from chance.",
    "below 19 draws",
    TEST,
)
BEYOND_NULL = declare(
    "HS125",
    "BEYOND-NULL",
    "compare",
    "All sites are more alike than the null makes them.",
    "adjusted p of 0.05",
    TEST,
    "p-values of 280 halves of one text: .025 to .065 at .05",
)
WITHIN_NULL = declare(
    "HS126",
    "WITHIN-NULL",
    "compare",
    "Sites that are no more alike than the null makes them.",
    "adjusted p above 0.05; an alarm from half of the cells",
    TEST,
    "as HS125",
)
ONE_DIRECTION = declare(
    "HS127",
    "ONE-DIRECTION",
    "compare",
    "CKA and Procrustes speak of one direction.",
    "from .9 of a site's variance",
)
NEIGHBOURS_DIFFER = declare(
    "HS128",
    "NEIGHBOURS-DIFFER",
    "compare",
    "Two models have the same states up to rotation, scale and shift, but other nearest "
    "neighbours by cosine.",
    "CKA of 1 to six digits, mutual neighbours below 0.99",
    "rounding of float32 and float16",
)
OVER_LIMIT = declare(
    "HS701",
    "OVER-LIMIT",
    "compare",
    "The divergence of a second model's logits is not shown to be below --limit.",
    "upper end of the interval above it",
    TEST,
)
WORST_PART = declare(
    "HS702",
    "WORST-PART",
    "compare",
    "The part of a second model that costs most alone.",
    "greatest divergence",
)
KEEPING = declare(
    "HS703",
    "KEEPING",
    "compare",
    "Whether the blocks kept beat other choices of as many bytes.",
    "paired intervals",
    TEST,
)
