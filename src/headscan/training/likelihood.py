"""The likelihood of a text under a model with a head: held-out nats, perplexity and bits a byte."""

import math
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from headscan.run import BadInput
from headscan.run.exhaustion import FittingSize
from headscan.statistics.uncertainty import Floats, StandardError, enough_documents
from headscan.training.records import Likelihood

LOGIT_BYTES = 2**31
"""Bytes that the logits of a batch and their logarithms may take."""

LARGEST_EXPONENT = 700.0
"""A mean loss above this many nats is cut before exp, which would overflow."""


@torch.no_grad()
def token_losses(
    model: PreTrainedModel, ids: Int[Tensor, "batch time"]
) -> Float[Tensor, "batch time-1"]:
    """Return -log p(token t + 1 | tokens 0 ... t) of a causal model, in nats, float32."""
    logits = model(input_ids=ids).logits[:, :-1].float()
    losses = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none"
    )
    return losses.view(len(ids), -1)


def perplexity(
    model: PreTrainedModel,
    rows: npt.NDArray[np.integer],
    tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    begins: npt.NDArray[np.int64] | None = None,
    batch: int = 16,
    limit: FittingSize | None = None,
) -> Likelihood:
    """Return the held-out likelihood over windows int [n, T]: every token but each window's first
    is predicted.

    With a tokenizer there are bits_per_byte: the same nats over the UTF-8 bytes of the predicted
    tokens, comparable across tokenizers. The error is that of documents, which begin at the
    positions `begins` of the n·T tokens, or of a text that runs on where there are fewer than three
    (`headscan.statistics.uncertainty`).

    Args:
        limit: the rows that fit into memory; where it runs out, passes have fewer.

    Raises:
        BadInput: for no windows.
    """
    if len(rows) == 0:
        raise BadInput("There are no windows to measure the perplexity on.")
    nats = _window_losses(model, rows, batch, limit or FittingSize())
    tokens = nats.size
    mean = float(nats.sum()) / tokens
    error = _standard_error(nats, np.ones(nats.shape), begins) if tokens else None
    interval = None if error is None else list(error.interval(mean, bounds=(0.0, None)))

    bits = None
    bits_interval = None
    byte_lengths = _byte_lengths(rows, tokenizer)
    total_bytes = float(byte_lengths.sum())
    if total_bytes:
        bits = float(nats.sum()) / math.log(2) / total_bytes
        bits_error = _standard_error(nats / math.log(2), byte_lengths, begins)
        if bits_error is not None:
            bits_interval = list(bits_error.interval(bits, bounds=(0.0, None)))

    return Likelihood(
        nats_per_token=mean,
        standard_error=None if error is None else error.error,
        interval=interval,
        perplexity=_exponential(mean),
        bits_per_byte=bits,
        tokens=tokens,
        perplexity_interval=None if interval is None else _exponentials(interval),
        bits_per_byte_interval=bits_interval,
    )


def _exponential(nats: float) -> float:
    return math.exp(min(nats, LARGEST_EXPONENT))


def _exponentials(interval: Sequence[float]) -> list[float]:
    return [_exponential(end) for end in interval]


def _window_losses(
    model: PreTrainedModel, rows: npt.NDArray[np.integer], batch: int, limit: FittingSize
) -> npt.NDArray[np.float64]:
    """Return the losses [n, T - 1] of all windows; the model's mode is restored."""
    device = next(model.parameters()).device
    vocabulary = getattr(model.config, "vocab_size", 1)
    affordable = int(LOGIT_BYTES / (12 * rows.shape[1] * vocabulary))
    batch = max(1, min(batch, affordable))
    losses: list[Tensor] = []

    def add(begin: int, end: int) -> None:
        windows = np.ascontiguousarray(rows[begin:end])
        ids = torch.from_numpy(windows).long().to(device)
        losses.append(token_losses(model, ids).double().cpu())

    training = model.training
    model.eval()
    limit.run(len(rows), add, most=batch)
    model.train(training)
    return torch.cat(losses).numpy()


def _byte_lengths(
    rows: npt.NDArray[np.integer], tokenizer: PreTrainedTokenizerBase | None
) -> Floats:
    """Return the bytes of each predicted token [n, T - 1]; empty where the tokens do not say how
    many bytes they are.
    """
    if tokenizer is not None:
        with suppress(BadInput):
            sizes: Floats = bytes_of_tokens(tokenizer)[rows[:, 1:]].astype(np.float64)
            return sizes
    return np.zeros(0)


def _standard_error(
    values: Floats, weights: Floats, begins: npt.NDArray[np.int64] | None
) -> StandardError | None:
    """Return the standard error of the sum of values over the sum of weights, for tokens 1, 2, ...
    of each window [n, T - 1].
    """
    windows = values.shape[0]
    length = values.shape[1] + 1
    starts = np.zeros(windows * length, dtype=np.int64)
    starts[begins if begins is not None else []] = 1
    documents = starts.cumsum().reshape(windows, length)[:, 1:].ravel()
    counts = np.bincount(documents, weights=weights.ravel()).astype(np.float64)
    sums = np.bincount(documents, weights=values.ravel()).astype(np.float64)
    if enough_documents(counts):
        return StandardError.of_documents(sums, counts)
    return StandardError.of_text(values.sum(1), weights.sum(1))


def bytes_of_tokens(tokenizer: PreTrainedTokenizerBase) -> npt.NDArray[np.int64]:
    """Return the number of UTF-8 bytes of each token, int64 [V]; 0 for special tokens.

    Exact for byte-level BPE (one character of the token's name is one byte) and for SentencePiece
    names.

    Raises:
        BadInput: for tokenizers whose tokens do not hold the spaces between words (WordPiece, of
            BERT).

    >>> from headscan.training.recipes import fit_tokenizer
    >>> tokenizer = fit_tokenizer(["aé aé aé"], 300)
    >>> int(bytes_of_tokens(tokenizer)[tokenizer.encode(" aé")].sum())
    4
    >>> from headscan.model import ByteTokenizer
    >>> int(bytes_of_tokens(ByteTokenizer()).sum())
    256
    """
    names = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    special_ids = set(tokenizer.all_special_ids)
    # Slow tokenizers and the one of bytes have no backend.
    backend = getattr(tokenizer, "backend_tokenizer", None)
    byte_level = backend is not None and "ByteLevel" in backend.to_str()
    holds_spaces = any(name and ("▁" in name or " " in name) for name in names)
    if backend is not None and not byte_level and not holds_spaces:
        raise BadInput(
            "Bits a byte need a tokenizer whose tokens hold the spaces between words; WordPiece's "
            "do not."
        )
    lengths = np.zeros(len(names), dtype=np.int64)
    for token_id, name in enumerate(names):
        if token_id not in special_ids and name is not None:
            lengths[token_id] = _byte_length(name, byte_level)
    return lengths


def _byte_length(name: str, byte_level: bool) -> int:
    if byte_level:
        return len(name)
    if name.startswith("<0x") and name.endswith(">"):
        return 1
    return len(name.replace("▁", " ").removeprefix("##").encode())
