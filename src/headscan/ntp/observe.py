"""What a trained model does with the contexts of a count: its embeddings of them, and its words."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from headscan.model.lens import Lens
from headscan.ntp.labels import Floats, Ints
from headscan.ntp.prediction import Prediction
from headscan.ntp.result import HeatMap, ModelComparison, cosines
from headscan.ntp.support_metrics import Embeddings, support_metrics
from headscan.run import BadInput, Progress, no_progress
from headscan.text.counts import ContextCounts
from headscan.text.token_store import TokenStore

_TOKENS_A_PASS = 16_384
_WINDOW = 256
_CONTEXTS = 20_000  # a model is compared on at most so many, drawn by their frequency


def start_tokens(tokenizer: Any) -> list[int]:
    """The token with which this model's texts begin, if its tokenizer puts one, else nothing."""
    bos = getattr(tokenizer, "bos_token_id", None)
    if bos is None or not callable(tokenizer):
        return []
    ids = tokenizer("a")["input_ids"]
    return [int(bos)] if len(ids) and ids[0] == bos else []


class _WatchedHead:
    """A model's output layer, opened so that what it is given can be read in any pass."""

    def __init__(self, lens: Lens, vocabulary: int, order: int, before: list[int] | None) -> None:
        module = (
            lens.model.get_output_embeddings()
            if hasattr(lens.model, "get_output_embeddings")
            else None
        )
        weight = lens.output_embeddings
        name = lens.name
        if module is None or weight is None or "head" not in lens.sites:
            raise BadInput(
                f"{name} has no output layer over words, so there is nothing to hold the "
                "prediction against."
            )
        words = len(weight)
        if words < vocabulary:
            raise BadInput(
                f"{name} has {words} words, the count {vocabulary}: count with the model's own "
                "tokenizer."
            )
        self.lens = lens
        self.vocabulary = vocabulary
        self.module = module
        self.weight = weight
        self.prefix = np.array(before or [], dtype=np.int64)
        self.room = (lens.context_length or 1 << 30) - len(self.prefix)
        self.bias = getattr(module, "bias", None)
        self.differs: float | None = None
        if self.room < order:
            raise BadInput(
                f"{name} reads at most {self.room} tokens, less than contexts of {order}."
            )

    def read(self, rows: Ints) -> npt.NDArray[np.float32]:
        """What the output layer is given at each token of rows [n, T], behind the tokens in front:
        float32 [n, T, d].
        """
        import torch

        ids = torch.from_numpy(np.concatenate([np.tile(self.prefix, (len(rows), 1)), rows], axis=1))
        inputs: list[torch.Tensor] = []
        hook = self.module.register_forward_pre_hook(
            lambda module, given: inputs.append(given[0].detach())
        )
        try:
            logits = self.lens.run(ids.to(self.lens.device), sites="head")["head"]
        finally:
            hook.remove()
        if len(inputs) != 1 or inputs[0].shape[:2] != logits.shape[:2]:
            raise BadInput(
                f"The output layer of {self.lens.name} is not called once a pass; it cannot be "
                "compared."
            )
        if self.differs is None:
            bias = None if self.bias is None else self.bias.detach().float()
            own = torch.nn.functional.linear(
                inputs[0][:, -1].float(), self.weight.detach().float(), bias
            )
            rest = own - logits[:, -1].float()
            self.differs = float((rest - rest.mean(1, keepdim=True)).abs().max())
        return inputs[0][:, len(self.prefix) :].float().cpu().numpy()

    def embeddings(self, contexts: npt.NDArray[np.float32]) -> tuple[Embeddings, list[str]]:
        notes = []
        name = self.lens.name
        if self.differs and self.differs > 1e-2:
            notes.append(
                f"The logits of {name} differ from H Wᵀ by up to {self.differs:.3g}: it scales or "
                "caps them."
            )
        if extra := len(self.weight) - self.vocabulary:
            notes.append(
                f"{name} has {extra} output words beyond the tokenizer's; they are left out."
            )
        words = self.weight[: self.vocabulary].detach().float().cpu().numpy()
        bias = (
            None
            if self.bias is None
            else self.bias[: self.vocabulary].detach().float().cpu().numpy()
        )
        return Embeddings(words, contexts, bias), notes


def observe(
    lens: Lens,
    contexts: npt.NDArray[np.integer[Any]],
    vocabulary: int,
    *,
    before: list[int] | None = None,
    progress: Progress = no_progress,
) -> tuple[Embeddings, list[str]]:
    """Run a causal model on each context [m, K] alone and take what its output layer is given at
    the last token.

    `before` is put in front of every context (see `start_tokens`). Returns the embeddings, float32
    on the CPU, with the first `vocabulary` words, and notes. Raises `BadInput` for a model without
    an output layer, with too few words, or too short a context. Cost: one forward pass of m (K + 1)
    tokens.
    """
    count, order = contexts.shape
    head = _WatchedHead(lens, vocabulary, order, before)
    rows_a_pass = max(1, _TOKENS_A_PASS // (len(head.prefix) + order))
    hidden = []
    for start in range(0, count, rows_a_pass):
        hidden.append(
            head.read(np.asarray(contexts[start : start + rows_a_pass], dtype=np.int64))[:, -1]
        )
        progress(lens.name, min(start + rows_a_pass, count), count, "contexts")
    return head.embeddings(np.concatenate(hidden))


def observe_in_text(
    lens: Lens,
    store: TokenStore,
    counts: ContextCounts,
    *,
    before: list[int] | None = None,
    most: int = 200_000,
    progress: Progress = no_progress,
) -> tuple[Embeddings, Ints, list[str]]:
    """Read contexts where they stand in the text: mean over their occurrences of what the output
    layer is given.

    Documents are cut into windows of 256 tokens, `before` in front of each; every position with K
    tokens of its window up to it counts for its context, over the first `most` positions. Since
    logits are linear in embeddings, the mean embedding gives the mean logits. Returns embeddings of
    the contexts met, their rows among those of `counts`, and notes.
    """
    order = counts.order
    done = 0
    head = _WatchedHead(lens, counts.vocabulary, order, before)
    sums = np.zeros((len(counts.contexts), head.weight.shape[1]))
    times = np.zeros(len(counts.contexts))
    waiting: dict[int, list[Ints]] = {}  # windows of equal length are read together

    def read(rows: Ints) -> None:
        hidden = head.read(rows)[:, order - 1 :]
        grams = np.lib.stride_tricks.sliding_window_view(rows, order, axis=1).reshape(-1, order)
        place = counts.rows(grams)
        np.add.at(sums, place[place >= 0], hidden.reshape(-1, hidden.shape[-1])[place >= 0])
        np.add.at(times, place[place >= 0], 1.0)

    for window in _windows(store, min(_WINDOW, head.room)):
        if len(window) < order:
            continue
        same = waiting.setdefault(len(window), [])
        same.append(window)
        done += len(window)
        if len(same) * (len(window) + len(head.prefix)) >= _TOKENS_A_PASS // 4:
            read(np.stack(waiting.pop(len(window))))
            progress(lens.name, min(done, most), most, "tokens")
        if done >= most:
            break
    for _, same in sorted(waiting.items()):
        read(np.stack(same))
    met = np.flatnonzero(times)
    if not len(met):
        raise BadInput("No context of the count was met in the text read by the model.")
    embeddings, notes = head.embeddings((sums[met] / times[met][:, None]).astype(np.float32))
    return embeddings, met, notes


def _windows(store: TokenStore, window: int) -> Iterator[Ints]:
    for start, end in zip(
        store.starts, np.append(store.starts[1:], len(store.tokens)), strict=True
    ):
        for first in range(start, end, window):
            # The last token of a document is no context: nothing follows it.
            yield np.asarray(store.tokens[first : min(first + window, end - 1)], dtype=np.int64)


def compare(
    lens: Lens,
    store: TokenStore,
    counts: ContextCounts,
    prediction: Prediction,
    heat: HeatMap,
    tokenizer: Any,
    reading: str,
    seed: int,
    progress: Progress,
) -> tuple[ModelComparison, dict[str, npt.NDArray[np.float32]]]:
    """How far a model is from the prediction on the contexts of a count, and the arrays of its
    pictures.
    """
    labels = prediction.labels
    before = start_tokens(tokenizer)
    if reading == "text":
        embeddings, rows, notes = observe_in_text(
            lens, store, counts, before=before, progress=progress
        )
        kept = _sample(labels.prior[rows], seed)
        embeddings = replace(embeddings, contexts=embeddings.contexts[kept])
        rows = rows[kept]
    else:
        rows = np.union1d(_sample(labels.prior, seed), heat.rows)
        embeddings, notes = observe(
            lens, counts.contexts[rows], labels.vocabulary, before=before, progress=progress
        )
    part = prediction if len(rows) == labels.contexts else prediction.restricted(rows)
    # Contexts of the heat map that the model did not meet stay blank.
    place = np.minimum(np.searchsorted(rows, heat.rows), len(rows) - 1)
    met = rows[place] == heat.rows
    hidden = embeddings.contexts.astype(np.float64)
    shown = cosines(hidden[place] - hidden.mean(0))
    shown[~met], shown[:, ~met] = np.nan, np.nan
    comparison = ModelComparison(
        name=lens.name,
        compared_contexts=len(rows),
        reading=reading,
        before=before,
        metrics=support_metrics(embeddings, part, seed=seed),
        notes=notes,
    )
    return comparison, {f"heat/{lens.name}": shown}


def _sample(weight: Floats, seed: int) -> Ints:
    if len(weight) <= _CONTEXTS:
        return np.arange(len(weight))
    return np.sort(
        np.random.default_rng(seed).choice(
            len(weight), _CONTEXTS, replace=False, p=weight / weight.sum()
        )
    )
