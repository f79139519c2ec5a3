"""How probable a model finds a text: nats a token, perplexity, bits a byte."""

import math
from contextlib import suppress

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from headscan.run import BadInput
from headscan.statistics.uncertainty import Floats, StandardError, enough_documents
from headscan.training.objective import Likelihood


@torch.no_grad()
def token_losses(
    model: PreTrainedModel, ids: Int[Tensor, "batch time"], *, attention_mask: Int[Tensor, "batch time"] | None = None
) -> Float[Tensor, "batch time-1"]:
    """-log p(token t + 1 | tokens 0 ... t), nats, float32, of a causal model."""
    extra = {} if attention_mask is None else {"attention_mask": attention_mask}
    logits = model(input_ids=ids, **extra).logits[:, :-1].float()
    losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    return losses.view(len(ids), -1)


def perplexity(
    model: PreTrainedModel, rows: npt.NDArray[np.integer], tokenizer: PreTrainedTokenizerBase | None = None, *,
    begins: npt.NDArray[np.int64] | None = None, batch: int = 16,
) -> Likelihood:  # fmt: skip
    """Held-out likelihood over windows int [n, T]: every token but each window's first is predicted.

    With a tokenizer there are bits_per_byte: the same nats over the UTF-8 bytes of the predicted tokens, comparable across
    tokenizers. The error is that of documents, which begin at the places `begins` of the n·T tokens, or of a text that runs on
    where there are fewer than three (`headscan.statistics.uncertainty`). Raises BadInput for no windows.
    """
    if len(rows) == 0:
        raise BadInput("There are no windows to measure the perplexity on.")
    device, sums = next(model.parameters()).device, []
    # Logits and their logarithms, of a large vocabulary, in less than 2 GiB.
    batch = max(1, min(batch, int(2**31 / (12 * rows.shape[1] * getattr(model.config, "vocab_size", 1)))))
    training = model.training
    model.eval()
    for start in range(0, len(rows), batch):
        ids = torch.from_numpy(np.ascontiguousarray(rows[start : start + batch])).long().to(device)
        sums.append(token_losses(model, ids).double().cpu())
    model.train(training)
    nats = torch.cat(sums).numpy()
    tokens = nats.size
    mean = float(nats.sum()) / tokens
    deviation = _deviation(nats, np.ones(nats.shape), begins) if tokens else None
    interval = None if deviation is None else list(deviation.interval(mean, bounds=(0.0, None)))
    lengths, bits, spread = np.zeros(0), None, None
    with suppress(BadInput):  # tokens that do not say how many bytes they are
        lengths = lengths if tokenizer is None else bytes_of_tokens(tokenizer)[rows[:, 1:]].astype(np.float64)
    if length := float(lengths.sum()):
        bits, spread = float(nats.sum()) / math.log(2) / length, _deviation(nats / math.log(2), lengths, begins)
    return Likelihood(
        nats_per_token=mean, standard_error=None if deviation is None else deviation.error, interval=interval,
        perplexity=math.exp(min(mean, 700.0)), bits_per_byte=bits, tokens=tokens,
        perplexity_interval=None if interval is None else [math.exp(min(end, 700.0)) for end in interval],
        bits_per_byte_interval=None if bits is None or spread is None else list(spread.interval(bits, bounds=(0.0, None))),
    )  # fmt: skip


def _deviation(values: Floats, weights: Floats, begins: npt.NDArray[np.int64] | None) -> StandardError | None:
    """Of the ratio of the sums of values and weights of tokens 1, 2, ... of each window [n, T − 1]."""
    windows, length = values.shape[0], values.shape[1] + 1
    owners = np.zeros(windows * length, dtype=np.int64)
    owners[begins if begins is not None else []] = 1
    owners = owners.cumsum().reshape(windows, length)[:, 1:].ravel()
    counts, sums = (np.bincount(owners, weights=each.ravel()).astype(np.float64) for each in (weights, values))
    if enough_documents(counts):
        return StandardError.of_documents(sums, counts)
    return StandardError.of_text(values.sum(1), weights.sum(1))


def bytes_of_tokens(tokenizer: PreTrainedTokenizerBase) -> npt.NDArray[np.int64]:
    """UTF-8 bytes each token stands for, int64 [V]; special tokens stand for none.

    Exact for byte-level BPE (one character of the token's name is one byte) and for SentencePiece names. Raises BadInput
    for tokenizers whose tokens do not hold the spaces between words (WordPiece, of BERT).

    >>> from headscan.training.recipes import fit_tokenizer
    >>> tokenizer = fit_tokenizer(["aé aé aé"], 300)
    >>> int(bytes_of_tokens(tokenizer)[tokenizer.encode(" aé")].sum())
    4
    >>> from headscan.model import ByteTokenizer
    >>> int(bytes_of_tokens(ByteTokenizer()).sum())
    256
    """
    names = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    special = set(tokenizer.all_special_ids)
    backend = getattr(tokenizer, "backend_tokenizer", None)  # slow tokenizers and that of bytes have none
    level = backend is not None and "ByteLevel" in backend.to_str()
    if backend is not None and not level and not any(name and ("▁" in name or " " in name) for name in names):
        raise BadInput("Bits a byte need a tokenizer whose tokens hold the spaces between words; WordPiece's do not.")
    lengths = np.zeros(len(names), dtype=np.int64)
    for index, name in enumerate(names):
        if index in special or name is None:
            continue
        byte = name.startswith("<0x") and name.endswith(">")
        plain = len(name.replace("▁", " ").removeprefix("##").encode())
        lengths[index] = len(name) if level else 1 if byte else plain
    return lengths
