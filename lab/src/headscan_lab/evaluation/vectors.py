"""Sentence vectors from any body."""

import numpy as np
import numpy.typing as npt
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from headscan.model.inputs import pooled
from headscan.model.sentence import Pooling
from headscan.run import BadInput
from headscan.training.heads import body_of


@torch.no_grad()
def sentence_vectors(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: list[str],
    *,
    context: int | None = None,
    batch: int = 64,
    pooling: Pooling = "mean",
    special: bool = False,
) -> npt.NDArray[np.float32]:
    """Return the vectors [n, d] of sentences, made of a model's last hidden states.

    Args:
        pooling: the mean over a sentence's tokens, or the state of the "first" or "last" token.
        special: whether the tokens that the tokenizer puts around a text are read, as sentence
            encoders are trained.
    """
    if pooling not in ("mean", "first", "last"):
        raise BadInput(f"The pooling must be mean, first or last, not {pooling!r}.")
    body = body_of(model)
    training = body.training
    body.eval()
    limit = context or getattr(body.config, "max_position_embeddings", None)
    rows = token_rows(tokenizer, sentences, limit, special=special)
    vectors = np.zeros((len(rows), body.config.hidden_size), dtype=np.float32)

    # Sentences of like lengths share a batch, so that there is little padding.
    order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
    for start in range(0, len(order), batch):
        indices = order[start : start + batch]
        states = pooled_states(body, [rows[index] for index in indices], pooling)
        vectors[indices] = states.cpu().numpy()
    body.train(training)
    return vectors


def token_rows(
    tokenizer: PreTrainedTokenizerBase, texts: list[str], limit: int | None, *, special: bool
) -> list[list[int]]:
    """Return the first `limit` token ids of each text; an empty text is the token 0."""
    rows = []
    for text in texts:
        ids = tokenizer(text, add_special_tokens=special)["input_ids"][:limit]
        rows.append(ids or [0])
    return rows


def pooled_states(body: torch.nn.Module, rows: list[list[int]], pooling: Pooling) -> torch.Tensor:
    """Return the vectors float32 [n, d] of rows of token ids, with their gradient."""
    width = max(map(len, rows))
    device = next(body.parameters()).device
    ids = torch.zeros(len(rows), width, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = torch.tensor(row)
        mask[number, : len(row)] = 1
    ids = ids.to(device)
    mask = mask.to(device)
    states = body(input_ids=ids, attention_mask=mask).last_hidden_state.float()
    return pooled(states, pooling, mask)
