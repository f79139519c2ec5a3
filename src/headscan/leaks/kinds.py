"""The kinds of findings that an examination of a release can have."""

from headscan.run.kinds import declare

READ = declare(
    "HS301",
    "READ",
    "privacy",
    "An attack names the text's tokens from what was released.",
    "the share of tokens that the best attack names is always given; a notice from 0.9",
    number="share of the tokens",
)
POLICY = declare(
    "HS330",
    "POLICY",
    "privacy",
    "The verdict of a policy on the release.",
    "an alarm where a limit is broken, a notice where it cannot be shown to be kept",
    "bounds and attacks, as the policy says",
)
