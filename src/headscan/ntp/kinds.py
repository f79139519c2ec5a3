"""The kinds of findings that a prediction from the data can have."""

from headscan.run.kinds import declare

BOUND = declare(
    "HS210",
    "BOUND",
    "ntp",
    "Lowest loss of any model with this context length, on this text.",
    "always given",
    "computed of this text",
    number="nats a token",
)
ONE_SUCCESSOR = declare(
    "HS211",
    "ONE SUCCESSOR",
    "ntp",
    "Most contexts have one successor, so their logits have no finite part.",
    "above half of the contexts",
    number="share of contexts",
)
UNSETTLED = declare(
    "HS212",
    "UNSETTLED",
    "ntp",
    "More text would add successors: the supports are not final.",
    "above a tenth of next occurrences (Good-Turing estimate)",
    number="share of next tokens",
)
LOW_RANK = declare(
    "HS213",
    "LOW RANK",
    "ntp",
    "The growing part of the logits is of low rank.",
    "below half of what the distinct supports allow",
    number="rank",
)
RANK = declare(
    "HS214",
    "RANK",
    "ntp",
    "The growing part of the logits is not of low rank.",
    "as HS213",
    number="rank",
)
DIRECTION = declare(
    "HS215",
    "DIRECTION",
    "ntp",
    "Cosine of a model's logits with those that the text predicts.",
    "fine above 0.9",
    number="cosine",
)
COLLAPSE = declare(
    "HS216",
    "COLLAPSE",
    "ntp",
    "Cosine between contexts of equal supports.",
    "fine above 0.9",
    number="cosine",
)
OUTSIDE = declare(
    "HS217",
    "OUTSIDE",
    "ntp",
    "Probability of tokens that never followed in the text.",
    "above 5 % of it",
    number="probability",
)
