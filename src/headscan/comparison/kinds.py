"""The kinds of findings that a comparison can have."""

from headscan.run.kinds import TEST, declare

SAME = declare(
    "HS120",
    "SAME",
    "compare",
    "Two models have the same states and the same nearest neighbours.",
    "CKA of 1 to six digits and mutual neighbours of at least 0.99",
    "rounding of float32 and float16",
    number="lowest CKA",
)
PARTING = declare(
    "HS121",
    "PARTING",
    "compare",
    "The layer from which on two models differ.",
    "CKA falls by 0.1 from site to site",
    number="CKA",
)
CLOSENESS = declare(
    "HS122",
    "CLOSENESS",
    "compare",
    "Lowest CKA between matching layers of two models.",
    "fine above 0.9, where mutual neighbours are above 0.9, too",
    number="lowest CKA",
)
PARTLY_ALIGNED = declare(
    "HS123",
    "PARTLY-ALIGNED",
    "compare",
    "Few tokens of two tokenizers end at the same characters.",
    "below half of the tokens",
)
UNTESTED = declare(
    "HS124",
    "UNTESTED",
    "compare",
    "The text is too short to test similarity against chance.",
    "below 19 draws",
    TEST,
    number="draws",
)
BEYOND_NULL = declare(
    "HS125",
    "BEYOND-NULL",
    "compare",
    "All layer pairs are more similar than chance.",
    "adjusted p of 0.05",
    TEST,
    "p-values of 280 halves of one text: 0.025 to 0.065 at 0.05",
    number="share within chance",
)
WITHIN_NULL = declare(
    "HS126",
    "WITHIN-NULL",
    "compare",
    "Layer pairs that are not more similar than chance.",
    "adjusted p above 0.05; an alarm from half of the cells",
    TEST,
    "as HS125",
    number="share within chance",
)
ONE_DIRECTION = declare(
    "HS127",
    "ONE-DIRECTION",
    "compare",
    "CKA and Procrustes measure one dominant direction only.",
    "from 0.9 of a site's variance",
    number="share of the variance",
)
NEIGHBOURS_DIFFER = declare(
    "HS128",
    "NEIGHBOURS-DIFFER",
    "compare",
    "Two models have the same states up to rotation, scale and shift, but other nearest "
    "neighbours by cosine.",
    "CKA of 1 to six digits, mutual neighbours below 0.99",
    "rounding of float32 and float16",
    number="share of equal neighbours",
)
OVER_LIMIT = declare(
    "HS701",
    "OVER-LIMIT",
    "compare",
    "The divergence of a second model's logits is not shown to be below --limit.",
    "upper end of the interval above it",
    TEST,
    number="nats a token",
)
WORST_PART = declare(
    "HS702",
    "WORST-PART",
    "compare",
    "The part whose change hurts most.",
    "always given",
    number="nats a token",
)
KEEPING = declare(
    "HS703",
    "KEEPING",
    "compare",
    "Comparison of the blocks kept with other choices of as many bytes.",
    "paired intervals",
    TEST,
)
RECIPE = declare(
    "HS707",
    "RECIPE",
    "compare",
    "Comparison of a mixed recipe with other choices of as many bytes.",
    "paired intervals",
    TEST,
)
MOVED_TOKENS = declare(
    "HS704",
    "MOVED-TOKENS",
    "compare",
    "Tokens whose log-probability changed further than under control changes of equal size.",
    "a prediction limit of the controls' largest score, exceeded in one of 100 cases",
    "the spread of the control changes of the run",
    number="tokens beyond the controls",
)
MOVED_CONTEXTS = declare(
    "HS705",
    "MOVED-CONTEXTS",
    "compare",
    "Contexts whose prediction changed further than under control changes of equal size.",
    "a prediction limit of the controls' largest divergence, exceeded in one of 100 cases",
    "the spread of the control changes of the run",
    number="contexts beyond the controls",
)
LIKE_CONTROLS = declare(
    "HS706",
    "LIKE-CONTROLS",
    "compare",
    "A fine-tune changed no token and no context further than control changes do.",
    "both limits",
    "the spread of the control changes of the run",
)
