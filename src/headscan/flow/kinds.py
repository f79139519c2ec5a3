"""The kinds of findings of `flow` and `channel`."""

from headscan.run.kinds import declare

TOLD = declare(
    "HS310",
    "TOLD",
    "flow",
    "Share of the earlier tokens that one output identifies.",
    "always given",
    "counted of these prompts",
    number="share of earlier tokens",
)
LATER = declare(
    "HS311",
    "LATER",
    "flow",
    "Outputs depend on later tokens: the model is not causal.",
    "above 0",
    number="movement by later tokens",
)
SHARED = declare(
    "HS312",
    "SHARED",
    "channel",
    "Tokens share an output, so no decoder can distinguish them.",
    "above 0",
    "of all tokens",
    number="tokens",
)
