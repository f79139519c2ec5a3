"""The kinds of findings of `flow` and `channel`."""

from headscan.run.kinds import declare

TOLD = declare(
    "HS310",
    "TOLD",
    "flow",
    "How much of the earlier tokens one output gives away.",
    "always given",
    "counted of these prompts",
)
LATER = declare(
    "HS311",
    "LATER",
    "flow",
    "Outputs move with the tokens that follow: the model is not causal.",
    "above 0",
)
SHARED = declare(
    "HS312",
    "SHARED",
    "channel",
    "Tokens have one output: no decoder can tell them apart.",
    "above 0",
    "of all tokens",
)
