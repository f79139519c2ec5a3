"""How probable a model finds continuations of given texts, as lm-evaluation-harness has it."""

import numpy as np
import numpy.typing as npt
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from headscan.statistics.uncertainty import Floats


@torch.no_grad()
def log_likelihood(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    pairs: list[tuple[str, str]],
    *,
    context: int | None = None,
    batch: int = 32,
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """For (given, continuation) pairs: the continuation's log-probability [n] (nats), and whether
    greedy finds it [n].

    As lm-evaluation-harness 0.4 has it, to rounding: spaces at the end of the given text belong to
    the continuation; the two are tokenised together, with what the tokenizer itself puts around a
    text (Llama's start of text; GPT-2: nothing), and divided where the given text's own tokens end.
    Where nothing is given, the start (or end) of text is, alone. Of what is longer than `context`
    tokens, the last of them and the one that they predict remain.
    """
    rows = []
    first = []
    for given, continuation in pairs:
        whole, known = _divided(tokenizer, given, continuation)
        excess = max(0, len(whole) - context - 1) if context else 0
        rows.append(whole[excess:])
        first.append(max(1, min(known, len(whole) - 1) - excess))
    scores = np.zeros(len(rows))
    greedy = np.zeros(len(rows), dtype=bool)
    device = next(model.parameters()).device
    # like lengths together: little padding
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    # Logits and their logarithms, of a large vocabulary, in less than 2 GiB.
    longest = max((len(row) - 1 for row in rows), default=1)
    batch = max(1, min(batch, int(2**31 / (12 * longest * getattr(model.config, "vocab_size", 1)))))
    for begin in range(0, len(order), batch):
        chosen = order[begin : begin + batch]
        width = max(len(rows[i]) for i in chosen)
        ids = torch.zeros(len(chosen), width, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for line, i in enumerate(chosen):
            ids[line, : len(rows[i])] = torch.tensor(rows[i])
            mask[line, : len(rows[i])] = 1
        # Padding is on the right, where a causal model does not look; the last token predicts
        # nothing.
        seen = {"input_ids": ids[:, :-1].to(device), "attention_mask": mask[:, :-1].to(device)}
        logits = model(**seen).logits.float().log_softmax(-1).cpu()
        for line, i in enumerate(chosen):
            span = torch.arange(first[i], len(rows[i]))
            predicted = logits[line, span - 1]
            wanted = ids[line, span]
            scores[i] = float(predicted.gather(1, wanted[:, None]).double().sum())
            greedy[i] = bool((predicted.argmax(-1) == wanted).all())
    return scores, greedy


def _divided(
    tokenizer: PreTrainedTokenizerBase, given: str, continuation: str
) -> tuple[list[int], int]:
    """The ids of both together, and how many of them are given."""
    start = tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    if not given:
        ids: list[int] = tokenizer(continuation, add_special_tokens=False)["input_ids"]
        begins = start is None or (bool(ids) and ids[0] == start)
        return (ids if begins else [start, *ids]), 1
    bare = given.rstrip()
    bare, rest = (bare, given[len(bare) :]) if bare else (given, "")
    # A text that spells its own start gets no second one.
    named = start is not None and bare.startswith(str(tokenizer.decode([start])) or "\0")
    extra = {"add_special_tokens": False} if named else {}
    ids = tokenizer(bare + rest + continuation, **extra)["input_ids"]
    return ids, len(tokenizer(bare, **extra)["input_ids"])
