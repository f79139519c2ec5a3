"""Log-probabilities of continuations of texts, as lm-evaluation-harness computes them."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from headscan.statistics.uncertainty import Floats

LOGITS_MEMORY = 2**31  # bytes for a batch's logits and their logarithms


@dataclass(frozen=True)
class _Row:
    """The token ids of a text with its continuation, which begins at the index `first`."""

    ids: list[int]
    first: int


@torch.no_grad()
def log_likelihood(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    pairs: list[tuple[str, str]],
    *,
    context: int | None = None,
    batch: int = 32,
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Return the log-probability of each continuation, and whether greedy decoding finds it.

    The rules are those of lm-evaluation-harness 0.4, and the numbers agree to rounding. Spaces at
    the end of the prefix belong to the continuation. The two are tokenised together, with the
    tokens that the tokenizer puts around a text (Llama's start of text; GPT-2: none), and divided
    where the prefix's own tokens end. An empty prefix is the start (or end) of text alone. Of a row
    longer than `context` tokens, the last of them and the one that they predict remain.

    Args:
        pairs: (prefix, continuation) texts.

    Returns:
        Log-probabilities [n] in nats, and bool [n].
    """
    rows = [_row(tokenizer, prefix, continuation, context) for prefix, continuation in pairs]
    scores = np.zeros(len(rows))
    greedy = np.zeros(len(rows), dtype=bool)
    device = next(model.parameters()).device

    longest = max((len(row.ids) - 1 for row in rows), default=1)
    vocabulary = getattr(model.config, "vocab_size", 1)
    batch = max(1, min(batch, int(LOGITS_MEMORY / (12 * longest * vocabulary))))

    # Rows of like lengths share a batch, so that there is little padding.
    order = sorted(range(len(rows)), key=lambda index: len(rows[index].ids))
    for start in range(0, len(order), batch):
        indices = order[start : start + batch]
        ids, mask = _padded([rows[index] for index in indices])
        # Padding is on the right, where a causal model does not look. The last token predicts
        # nothing.
        inputs = ids[:, :-1].to(device)
        output = model(input_ids=inputs, attention_mask=mask[:, :-1].to(device))
        logits = output.logits.float().log_softmax(-1).cpu()
        for line, index in enumerate(indices):
            row = rows[index]
            span = torch.arange(row.first, len(row.ids))
            predicted = logits[line, span - 1]
            targets = ids[line, span]
            scores[index] = float(predicted.gather(1, targets[:, None]).double().sum())
            greedy[index] = bool((predicted.argmax(-1) == targets).all())
    return scores, greedy


def _row(
    tokenizer: PreTrainedTokenizerBase, prefix: str, continuation: str, context: int | None
) -> _Row:
    """Return a pair's token ids, shortened from the left to the context and one token."""
    ids, prefix_length = _tokenised(tokenizer, prefix, continuation)
    excess = max(0, len(ids) - context - 1) if context else 0
    first = max(1, min(prefix_length, len(ids) - 1) - excess)
    return _Row(ids[excess:], first)


def _padded(rows: list[_Row]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the ids [n, T], padded on the right with zeros, and their mask."""
    width = max(len(row.ids) for row in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for line, row in enumerate(rows):
        ids[line, : len(row.ids)] = torch.tensor(row.ids)
        mask[line, : len(row.ids)] = 1
    return ids, mask


def _tokenised(
    tokenizer: PreTrainedTokenizerBase, prefix: str, continuation: str
) -> tuple[list[int], int]:
    """Return the ids of a prefix with its continuation, and how many of them are the prefix's."""
    start = tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    if not prefix:
        ids: list[int] = tokenizer(continuation, add_special_tokens=False)["input_ids"]
        begins_with_start = start is None or (bool(ids) and ids[0] == start)
        return (ids if begins_with_start else [start, *ids]), 1

    # A prefix of spaces alone keeps them.
    bare = prefix.rstrip() or prefix
    spaces = prefix[len(bare) :]
    # A text that spells its own start gets no second one.
    spells_start = start is not None and bare.startswith(str(tokenizer.decode([start])) or "\0")
    options = {"add_special_tokens": False} if spells_start else {}
    ids = tokenizer(bare + spaces + continuation, **options)["input_ids"]
    return ids, len(tokenizer(bare, **options)["input_ids"])
