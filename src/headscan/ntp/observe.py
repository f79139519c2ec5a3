"""What a trained model does with the contexts of a count: its embeddings of them, and its words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from headscan.ntp.arrays import Ints
from headscan.ntp.support_metrics import Embeddings
from headscan.run import BadInput, Progress

if TYPE_CHECKING:
    from headscan.model import Lens

__all__ = ["observe", "observe_in_text", "start_tokens"]

_TOKENS_A_PASS = 16_384


def start_tokens(tokenizer: Any) -> list[int]:
    """The token with which this model's texts begin, if its tokenizer puts one, else nothing."""
    bos = getattr(tokenizer, "bos_token_id", None)
    if bos is None or not callable(tokenizer):
        return []
    ids = tokenizer("a")["input_ids"]
    return [int(bos)] if len(ids) and ids[0] == bos else []


class _WatchedHead:
    """A model's output layer, opened so that what it is given can be read in any pass."""

    def __init__(self, lens: Lens, vocabulary: int) -> None:
        module = lens.model.get_output_embeddings() if hasattr(lens.model, "get_output_embeddings") else None
        weight = lens.output_embeddings
        if module is None or weight is None or "head" not in lens.sites:
            raise BadInput(
                f"{lens.name} has no output layer over words, so there is nothing to hold the prediction against."
            )
        if len(weight) < vocabulary:
            raise BadInput(
                f"{lens.name} has {len(weight)} words, the count {vocabulary}: count with the model's own tokenizer."
            )
        self.lens, self.vocabulary, self.module, self.weight = lens, vocabulary, module, weight
        self.bias = getattr(module, "bias", None)
        self.differs: float | None = None

    def read(self, ids: Ints) -> npt.NDArray[np.float32]:
        """What the output layer is given for ids [B, T]: float32 [B, T, d]."""
        import torch

        taken: list[torch.Tensor] = []
        hook = self.module.register_forward_pre_hook(lambda module, inputs: taken.append(inputs[0].detach()))
        try:
            logits = self.lens.run(torch.from_numpy(ids).to(self.lens.device), sites="head")["head"]
        finally:
            hook.remove()
        if len(taken) != 1 or taken[0].shape[:2] != logits.shape[:2]:
            raise BadInput(f"The output layer of {self.lens.name} is not called once a pass; it cannot be compared.")
        if self.differs is None:
            own = taken[0][:, -1].float() @ self.weight.detach().float().T
            own = own if self.bias is None else own + self.bias.detach().float()
            rest = own - logits[:, -1].float()
            self.differs = float((rest - rest.mean(1, keepdim=True)).abs().max())
        return taken[0].float().cpu().numpy()

    def embeddings(self, contexts: npt.NDArray[np.float32]) -> tuple[Embeddings, list[str]]:
        """Contexts and words together, with notes on what keeps the logits from being H Wᵀ + bias."""
        notes = []
        name = self.lens.name
        if self.differs and self.differs > 1e-2:
            notes.append(f"The logits of {name} differ from H Wᵀ by up to {self.differs:.3g}: it scales or caps them.")
        if len(self.weight) > self.vocabulary:
            extra = len(self.weight) - self.vocabulary
            notes.append(f"{name} has {extra} output words beyond the tokenizer's; they are left out.")
        words = self.weight[: self.vocabulary].detach().float().cpu().numpy()
        bias = None if self.bias is None else self.bias[: self.vocabulary].detach().float().cpu().numpy()
        return Embeddings(words, contexts, bias), notes


def observe(
    lens: Lens,
    contexts: npt.NDArray[np.integer[Any]],
    vocabulary: int,
    *,
    before: list[int] | None = None,
    progress: Progress | None = None,
) -> tuple[Embeddings, list[str]]:
    """Run a causal model on each context [m, K] alone and take what its output layer is given at the last token.

    `before` is put in front of every context (see `start_tokens`). Returns the embeddings, float32 on the CPU, with the
    first `vocabulary` words, and notes. Raises `BadInput` for a model without an output layer, with too few words, or too
    short a context. Cost: one forward pass of m (K + 1) tokens.
    """
    head = _WatchedHead(lens, vocabulary)
    prefix = np.array(before or [], dtype=np.int64)
    length = len(prefix) + contexts.shape[1]
    if lens.context_length is not None and length > lens.context_length:
        raise BadInput(f"{lens.name} reads at most {lens.context_length} tokens, less than contexts of {length}.")
    rows_a_pass = max(1, _TOKENS_A_PASS // length)
    found = []
    for start in range(0, len(contexts), rows_a_pass):
        rows = np.asarray(contexts[start : start + rows_a_pass], dtype=np.int64)
        ids = np.concatenate([np.tile(prefix, (len(rows), 1)), rows], axis=1)
        found.append(head.read(ids)[:, -1])
        if progress is not None:
            progress(lens.name, min(start + rows_a_pass, len(contexts)), len(contexts), "contexts")
    return head.embeddings(np.concatenate(found))


def observe_in_text(
    lens: Lens,
    tokens: npt.NDArray[np.integer[Any]],
    starts: Ints,
    contexts: npt.NDArray[np.integer[Any]],
    vocabulary: int,
    *,
    before: list[int] | None = None,
    window: int = 256,
    most: int = 200_000,
    progress: Progress | None = None,
) -> tuple[Embeddings, Ints, list[str]]:
    """Read contexts where they stand in the text: mean over their occurrences of what the output layer is given.

    Documents (`tokens` [n] with `starts`) are cut into windows of `window` tokens, `before` in front of each; every
    position with K tokens of its window up to it counts for its context, over the first `most` positions. Since logits
    are linear in embeddings, the mean embedding gives the mean logits. Returns embeddings of the contexts met, their
    rows among `contexts` (which must be in lexicographic order), and notes. Cost: one forward pass of `most` tokens.
    """
    head = _WatchedHead(lens, vocabulary)
    prefix = np.array(before or [], dtype=np.int64)
    order = contexts.shape[1]
    longest = (lens.context_length or window + len(prefix)) - len(prefix)
    window = min(window, longest)
    if window < order:
        raise BadInput(f"{lens.name} reads at most {longest} tokens, less than contexts of {order}.")
    table = _as_bytes(contexts)
    sums = np.zeros((len(contexts), head.weight.shape[1]))
    times = np.zeros(len(contexts))
    done = 0
    by_length: dict[int, list[Ints]] = {}

    def flush(length: int) -> None:
        rows = np.stack(by_length.pop(length))
        ids = np.concatenate([np.tile(prefix, (len(rows), 1)), rows], axis=1)
        hidden = head.read(ids)[:, len(prefix) + order - 1 :]
        grams = np.lib.stride_tricks.sliding_window_view(rows, order, axis=1).reshape(-1, order)
        wanted = _as_bytes(grams)
        at = np.minimum(np.searchsorted(table, wanted), len(table) - 1)
        known = table[at] == wanted
        np.add.at(sums, at[known], hidden.reshape(-1, hidden.shape[-1])[known])
        np.add.at(times, at[known], 1.0)

    ends = np.append(starts[1:], len(tokens))
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        for first in range(start, end, window):
            # The last token of a document is no context: nothing follows it.
            piece = np.asarray(tokens[first : min(first + window, end - 1)], dtype=np.int64)
            if len(piece) < order:
                continue
            waiting = by_length.setdefault(len(piece), [])
            waiting.append(piece)
            done += len(piece)
            if len(waiting) * (len(piece) + len(prefix)) >= _TOKENS_A_PASS // 4:
                flush(len(piece))
                if progress is not None:
                    progress(lens.name, min(done, most), most, "tokens")
        if done >= most:
            break
    for length in sorted(by_length):
        flush(length)
    met = np.flatnonzero(times)
    if not len(met):
        raise BadInput("No context of the count was met in the text read by the model.")
    found, notes = head.embeddings((sums[met] / times[met][:, None]).astype(np.float32))
    return found, met, notes


def _as_bytes(rows: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.void]:
    """Each row of tokens as one byte string; big-endian, so that their order is lexicographic."""
    big_endian = np.ascontiguousarray(np.asarray(rows).astype(">i4"))
    return big_endian.view(np.dtype((np.void, 4 * big_endian.shape[1]))).ravel()
