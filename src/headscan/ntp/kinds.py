"""The kinds of findings that a prediction from the data can have."""

from headscan.run.kinds import declare

BOUND = declare(
    "HS210",
    "BOUND",
    "ntp",
    "The least loss of any model that sees so many tokens, on this text.",
    "always given",
    "computed of this text",
)
ONE_SUCCESSOR = declare(
    "HS211",
    "ONE SUCCESSOR",
    "ntp",
    "Most contexts have one successor: their logits have no finite part.",
    "above half of the contexts",
)
UNSETTLED = declare(
    "HS212",
    "UNSETTLED",
    "ntp",
    "More text would bring new successors: the supports are not settled.",
    "above a tenth of next occurrences, by Good and Turing's estimate",
)
LOW_RANK = declare(
    "HS213",
    "LOW RANK",
    "ntp",
    "The growing part of the logits is of low rank.",
    "below half of what the distinct supports allow",
)
RANK = declare(
    "HS214",
    "RANK",
    "ntp",
    "The growing part of the logits is not of low rank.",
    "as HS213",
)
DIRECTION = declare(
    "HS215",
    "DIRECTION",
    "ntp",
    "How far a model's logits point where the text predicts.",
    "cosine; fine above 0.9",
)
COLLAPSE = declare(
    "HS216",
    "COLLAPSE",
    "ntp",
    "Whether contexts of equal supports coincide.",
    "cosine; fine above 0.9",
)
OUTSIDE = declare(
    "HS217",
    "OUTSIDE",
    "ntp",
    "A model gives probability to tokens that never followed.",
    "above 5 % of it",
)
