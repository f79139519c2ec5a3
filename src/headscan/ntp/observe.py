"""What a trained model does with the contexts of a count: its embeddings of them, and its words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from headscan.model.lens import Lens
from headscan.model.opening import open_models
from headscan.model.tokenizers import load_tokenizer
from headscan.ntp.counted import Counted, Predicting
from headscan.ntp.features import collapse_metrics
from headscan.ntp.labels import Floats, Ints
from headscan.ntp.prediction import Prediction
from headscan.ntp.result import HeatMap, ModelComparison, cosines
from headscan.ntp.support_metrics import Embeddings, support_metrics
from headscan.run import BadInput, ModelRecord, Progress

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
    lens: Lens, contexts: npt.NDArray[np.integer[Any]], vocabulary: int, *, before: list[int] | None = None,
    progress: Progress | None = None,
) -> tuple[Embeddings, list[str]]:  # fmt: skip
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
    lens: Lens, tokens: npt.NDArray[np.integer[Any]], starts: Ints, contexts: npt.NDArray[np.integer[Any]],
    vocabulary: int, *, before: list[int] | None = None, window: int = 256, most: int = 200_000,
    progress: Progress | None = None,
) -> tuple[Embeddings, Ints, list[str]]:  # fmt: skip
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
    big_endian = np.ascontiguousarray(np.asarray(rows).astype(">i4"))
    return big_endian.view(np.dtype((np.void, 4 * big_endian.shape[1]))).ravel()


def open_compared(settings: Predicting) -> tuple[Any, Iterator[Lens]]:
    """The tokenizer at once, the models one by one when asked for: checkpoints need not be in memory together.

    Raises `BadInput` for whatever can be known of any of them before its weights are read.
    """
    lenses: Iterator[Lens] = iter(()) if settings.model is None else open_models(settings.model, settings)
    if settings.tokenizer is None:
        first = next(lenses)
        tokenizer, lenses = first.require_tokenizer(), chain([first], lenses)
    else:
        tokenizer = load_tokenizer(settings.tokenizer, None, settings.trusted)
    if not len(tokenizer):
        raise BadInput("The vocabulary is empty.")
    return tokenizer, lenses


@dataclass(frozen=True, eq=False)
class Compared:
    """What came of one model: its numbers, its record, and the arrays of its pictures."""

    comparison: ModelComparison
    record: ModelRecord
    heat: npt.NDArray[np.float32]
    scatter: npt.NDArray[np.float32]


def compare(
    lens: Lens, counted: Counted, prediction: Prediction, heat: HeatMap, tokenizer: Any, settings: Predicting,
    progress: Progress,
) -> Compared:  # fmt: skip
    """Run a model on the contexts of a count, and measure how far it is from the prediction."""
    labels, most, seed = prediction.labels, settings.max_contexts, settings.seed
    before = start_tokens(tokenizer)
    if settings.reading == "text":
        found, rows, notes = observe_in_text(
            lens, counted.held.tokens, counted.held.starts, counted.counts.contexts, labels.vocabulary, before=before,
            most=most * 10, progress=progress,
        )  # fmt: skip
        kept = _sample(labels.prior[rows], most, seed)
        found, rows = replace(found, contexts=found.contexts[kept]), rows[kept]
    else:
        rows = np.union1d(_sample(labels.prior, most, seed), heat.rows)
        found, notes = observe(lens, counted.counts.contexts[rows], labels.vocabulary, before=before, progress=progress)
    part = prediction if len(rows) == labels.contexts else prediction.restricted(rows)
    # Contexts of the heat map that the model did not meet stay blank.
    at = np.minimum(np.searchsorted(rows, heat.rows), len(rows) - 1)
    met = rows[at] == heat.rows
    hidden = found.contexts.astype(np.float64)
    shown = cosines(hidden[at] - hidden.mean(0))
    shown[~met], shown[:, ~met] = np.nan, np.nan
    comparison = ModelComparison(
        name=lens.name, compared_contexts=len(rows), reading=settings.reading, before=before,
        metrics=support_metrics(found, part, seed=seed), collapse=collapse_metrics(found, part.labels, seed=seed),
        notes=notes,
    )  # fmt: skip
    return Compared(comparison, lens.provenance(), shown, heat.scatter(found, part, seed))


def _sample(weight: Floats, most: int, seed: int) -> Ints:
    """All indices, or at most `most` of them drawn by weight without replacement, ascending."""
    if len(weight) <= most:
        return np.arange(len(weight))
    chosen = np.random.default_rng(seed).choice(len(weight), most, replace=False, p=weight / weight.sum())
    return np.sort(chosen)
