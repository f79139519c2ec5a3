"""What a trained model does with the contexts of a count: its embeddings of them, and its words."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from headscan.errors import BadInput
from headscan.ntp.support_metrics import Embeddings

if TYPE_CHECKING:
    from headscan.model import Lens

__all__ = ["observe", "start_tokens"]

Progress = Callable[[str, int, int | None], None]
_TOKENS_A_PASS = 16_384


def start_tokens(tokenizer: Any) -> list[int]:
    """The token with which this model's texts begin, if its tokenizer puts one, else nothing."""
    bos = getattr(tokenizer, "bos_token_id", None)
    if bos is None or not callable(tokenizer):
        return []
    ids = tokenizer("a")["input_ids"]
    return [int(bos)] if len(ids) and ids[0] == bos else []


def observe(
    lens: Lens,
    contexts: np.ndarray,
    vocabulary: int,
    *,
    before: list[int] | None = None,
    progress: Progress | None = None,
) -> tuple[Embeddings, list[str]]:
    """Run a causal model on each context [m, K] alone and take what its output layer is given at the last token.

    `before` is put in front of every context (see `start_tokens`). Returns the embeddings, float32 on the CPU, with the
    first `vocabulary` words, and notes on anything that keeps logits from being H Wᵀ + bias exactly. Raises `BadInput` for
    a model without an output layer, with too few words, or too short a context. Cost: one forward pass of m (K + 1) tokens.
    """
    import torch

    head = lens.model.get_output_embeddings() if hasattr(lens.model, "get_output_embeddings") else None
    weight = lens.output_embeddings
    if head is None or weight is None or "head" not in lens.sites:
        raise BadInput(
            f"{lens.name} has no output layer over words, so there is nothing to hold the prediction against."
        )
    if len(weight) < vocabulary:
        raise BadInput(
            f"{lens.name} has {len(weight)} words, the count {vocabulary}: count with the model's own tokenizer."
        )
    prefix = before or []
    length = len(prefix) + contexts.shape[1]
    if lens.context_length is not None and length > lens.context_length:
        raise BadInput(f"{lens.name} reads at most {lens.context_length} tokens, less than contexts of {length}.")
    taken: list[torch.Tensor] = []
    differs = 0.0

    def keep(module: Any, inputs: tuple[Any, ...]) -> None:
        taken.append(inputs[0][:, -1].detach().float().cpu())

    bias = getattr(head, "bias", None)
    hook = head.register_forward_pre_hook(keep)
    rows_a_pass = max(1, _TOKENS_A_PASS // length)
    try:
        for start in range(0, len(contexts), rows_a_pass):
            rows = np.asarray(contexts[start : start + rows_a_pass], dtype=np.int64)
            ids = np.concatenate([np.tile(np.array(prefix, dtype=np.int64), (len(rows), 1)), rows], axis=1)
            before_count = len(taken)
            logits = lens.run(torch.from_numpy(ids).to(lens.device), sites="head")["head"][:, -1].float().cpu()
            if len(taken) != before_count + 1:
                raise BadInput(f"The output layer of {lens.name} is not called once a pass; it cannot be compared.")
            if start == 0:
                own = taken[-1] @ weight.detach().float().cpu().T
                own = own if bias is None else own + bias.detach().float().cpu()
                differs = float(((own - logits) - (own - logits).mean(1, keepdim=True)).abs().max())
            if progress is not None:
                progress(lens.name, min(start + rows_a_pass, len(contexts)), len(contexts))
    finally:
        hook.remove()
    notes = []
    if differs > 1e-2:
        notes.append(f"The logits of {lens.name} differ from H Wᵀ by up to {differs:.3g}: it scales or caps them.")
    if len(weight) > vocabulary:
        notes.append(
            f"{lens.name} has {len(weight) - vocabulary} output words beyond the tokenizer's; they are left out."
        )
    words = weight[:vocabulary].detach().float().cpu().numpy()
    shift = None if bias is None else bias[:vocabulary].detach().float().cpu().numpy()
    return Embeddings(words, torch.cat(taken).numpy(), shift), notes
