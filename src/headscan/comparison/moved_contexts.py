"""Contexts whose prediction differs between two models, in their text."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headscan.comparison.alignment import Integers
from headscan.comparison.result import MovedContext, MovedToken
from headscan.text.spelling import display

LISTED_CONTEXTS = 20

MOVED = 3
"""Tokens listed for a context in each direction."""

SHOWN_TOKENS = 24
"""Tokens of a context that are shown."""


class MovedTokens(NamedTuple):
    """The tokens that contribute most to the divergence of two predictions.

    Attributes:
        ids: [..., 2, 3], of those that rose and those that fell.
        probabilities: [..., 2, 3, 2], of these tokens before and after.
    """

    ids: Tensor
    probabilities: Tensor

    def at(self, number: int) -> "MovedTokens":
        """Return those of one prediction."""
        return MovedTokens(self.ids[number], self.probabilities[number])

    def listed(self, tokenizer: Any, direction: int) -> list[MovedToken]:
        """Return the tokens of one prediction that rose (0) or fell (1)."""
        words = display(tokenizer, self.ids[direction].tolist())
        pairs = self.probabilities[direction].tolist()
        return [
            MovedToken(token=word, before=before, after=after)
            for word, (before, after) in zip(words, pairs, strict=True)
        ]


def moved_tokens(before: Tensor, after: Tensor) -> MovedTokens:
    """Return the tokens that moved most between log probabilities [n, V]; all is on the CPU."""
    gap = after - before
    count = min(MOVED, gap.shape[1])
    risen = (after.exp() * gap).topk(count, 1).indices
    fallen = (before.exp() * -gap).topk(count, 1).indices
    ids = torch.stack([risen, fallen], 1)
    probabilities = []
    for tokens in (risen, fallen):
        pair = [before.gather(1, tokens).exp(), after.gather(1, tokens).exp()]
        probabilities.append(torch.stack(pair, -1))
    return MovedTokens(ids.cpu(), torch.stack(probabilities, 1).cpu())


@dataclass(frozen=True)
class PredictionText:
    """The windows of a text whose predictions are numbered one after another.

    Attributes:
        ids: token ids [W, T].
        documents: [W, T], the document of each token.
        skipped: positions left out at the beginning of each window.
        tokenizer: that of the text.
        added: positions in front of the text, which are among those skipped.
    """

    ids: Tensor
    documents: Integers
    skipped: int
    tokenizer: Any
    added: int = 0

    def context(self, number: int, divergence: float, moved: MovedTokens) -> MovedContext:
        """Return the context of a prediction whose next token is in the window."""
        predicted = self.ids.shape[1] - 1 - self.skipped
        window, offset = divmod(number, predicted)
        position = offset + self.skipped
        shown = self.ids[window, max(0, position + 1 - SHOWN_TOKENS) : position + 1].tolist()
        return MovedContext(
            document=int(self.documents[window, position]),
            window=window,
            position=position - self.added,
            text=str(self.tokenizer.decode(shown)),
            following=display(self.tokenizer, int(self.ids[window, position + 1])),
            divergence=divergence,
            risen=moved.listed(self.tokenizer, 0),
            fallen=moved.listed(self.tokenizer, 1),
        )
