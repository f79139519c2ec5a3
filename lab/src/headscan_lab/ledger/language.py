"""A made-up language: a Markov chain of tokens that are equally common, or follow Zipf's law."""

import torch
from torch import Tensor

VOCABULARY = 256
# The exponent of the 256 commonest words of wikitext-2 (0.935 in its test half, 0.920 in its
# validation half).
EXPONENT = 0.93
FOLLOWERS = 8
TABLE_SEED = 12_345


def language(seed: int, rows: int, length: int, *, zipf: bool = False) -> Tensor:
    """Return texts [rows, length] in which each token allows 8 others, some far more often.

    With `zipf` the first tokens and the followers are drawn by Zipf's law over the vocabulary;
    without, all tokens are followers about equally often.
    """
    law = torch.arange(1.0, VOCABULARY + 1) ** -EXPONENT
    followers = _followers(law if zipf else None)
    odds = 1.0 / torch.arange(1, FOLLOWERS + 1)

    generator = torch.Generator().manual_seed(seed)
    if zipf:
        token = torch.multinomial(law, rows, replacement=True, generator=generator)
    else:
        token = torch.randint(VOCABULARY, (rows,), generator=generator)
    columns = [token]
    for _ in range(length - 1):
        pick = torch.multinomial(odds.expand(rows, -1), 1, generator=generator)[:, 0]
        token = followers[token, pick]
        columns.append(token)
    return torch.stack(columns, 1)


def _followers(law: Tensor | None) -> Tensor:
    """Return the tokens [V, 8] that may follow each token, drawn by a law or evenly."""
    generator = torch.Generator().manual_seed(TABLE_SEED)
    rows = []
    for _ in range(VOCABULARY):
        if law is None:
            rows.append(torch.randperm(VOCABULARY, generator=generator)[:FOLLOWERS])
        else:
            rows.append(torch.multinomial(law, FOLLOWERS, generator=generator))
    return torch.stack(rows)
