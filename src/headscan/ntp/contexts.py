"""A trained model on the contexts of a count: its embeddings of them, its words, and how far these
are from the prediction.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from headscan.model.lens import Lens
from headscan.model.recording import Kwargs, before_call
from headscan.ntp.labels import Floats, Ints
from headscan.ntp.pictures import HeatMap, cosines
from headscan.ntp.prediction import Prediction
from headscan.ntp.result import ModelComparison
from headscan.ntp.support_metrics import Embeddings, support_metrics
from headscan.run import BadInput, Progress, no_progress
from headscan.text.counts import ContextCounts
from headscan.text.token_store import TokenStore

_TOKENS_A_PASS = 16_384
_WINDOW = 256
_CONTEXTS = 20_000  # a model is compared on at most so many, drawn by their frequency
_LOGIT_TOLERANCE = 1e-2  # by which a model's logits may differ from H Wᵀ without a note


@dataclass(frozen=True)
class ModelReading:
    """The way in which models read the contexts.

    Attributes:
        mode: "text" for contexts at their positions in the text, "alone" for each by itself.
        before: the tokens in front of a context.
        seed: of the sample of contexts.
    """

    mode: Literal["text", "alone"]
    before: list[int]
    seed: int
    progress: Progress


class _HeadReader:
    """Reads the inputs of a model's output layer in any pass.

    Attributes:
        prefix: tokens in front of each row.
        longest: tokens of a row that the model reads behind them.
        difference: the largest difference of the model's logits from H Wᵀ + bias, up to a shift;
            None before the first pass.
    """

    def __init__(self, lens: Lens, vocabulary: int, order: int, before: list[int] | None) -> None:
        module = None
        if hasattr(lens.model, "get_output_embeddings"):
            module = lens.model.get_output_embeddings()
        weight = lens.output_embeddings
        if module is None or weight is None or "head" not in lens.sites:
            raise BadInput(
                f"{lens.name} has no output layer over words, so there is nothing to compare "
                "with the prediction."
            )
        if len(weight) < vocabulary:
            raise BadInput(
                f"{lens.name} has {len(weight)} words, the count {vocabulary}: count with the "
                "model's own tokenizer."
            )
        self.lens = lens
        self.vocabulary = vocabulary
        self.module = module
        self.weight = weight
        self.bias = getattr(module, "bias", None)
        self.prefix = np.array(before or [], dtype=np.int64)
        self.longest = (lens.context_length or 1 << 30) - len(self.prefix)
        self.difference: float | None = None
        if self.longest < order:
            raise BadInput(
                f"{lens.name} reads at most {self.longest} tokens, less than contexts of {order}."
            )

    def read(self, rows: Ints) -> npt.NDArray[np.float32]:
        """Return the inputs of the output layer at each token of rows [n, T], behind the prefix:
        float32 [n, T, d].
        """
        import torch

        with_prefix = np.concatenate([np.tile(self.prefix, (len(rows), 1)), rows], axis=1)
        ids = torch.from_numpy(with_prefix).to(self.lens.device)
        hidden, logits = self._pass(ids)
        if hidden.shape[:2] != logits.shape[:2]:
            # Where memory ran out, rows may have been passed twice; by now it is known how many
            # rows fit.
            hidden, logits = self._pass(ids)
        if hidden.shape[:2] != logits.shape[:2]:
            raise BadInput(
                f"The output layer of {self.lens.name} is not called once a pass; it cannot be "
                "compared."
            )
        if self.difference is None:
            bias = None if self.bias is None else self.bias.detach().float()
            products = torch.nn.functional.linear(
                hidden[:, -1].float(), self.weight.detach().float(), bias
            )
            differences = products - logits[:, -1].float().to(products)
            shift = differences.mean(1, keepdim=True)
            self.difference = float((differences - shift).abs().max())
        states: npt.NDArray[np.float32] = hidden[:, len(self.prefix) :].float().cpu().numpy()
        return states

    def _pass(self, ids: Any) -> tuple[Any, Any]:
        """Return the inputs of the output layer [n, T, d] and its logits [n, T, V]."""
        import torch

        head_inputs: list[torch.Tensor] = []

        def record(_module: Any, args: tuple[Any, ...], _kwargs: Kwargs) -> None:
            head_inputs.append(args[0].detach())

        with before_call(self.module, record):
            logits = self.lens.run(ids, sites="head")["head"]
        return torch.cat(head_inputs) if head_inputs else logits.new_zeros(0, 0, 0), logits

    def embeddings(self, contexts: npt.NDArray[np.float32]) -> tuple[Embeddings, list[str]]:
        """Return the embeddings of contexts [m, d] and of the words, and notes for a reader."""
        notes = []
        name = self.lens.name
        if self.difference and self.difference > _LOGIT_TOLERANCE:
            notes.append(
                f"The logits of {name} differ from H Wᵀ by up to {self.difference:.3g}: it scales "
                "or caps them."
            )
        extra = len(self.weight) - self.vocabulary
        if extra:
            notes.append(
                f"{name} has {extra} output words beyond the tokenizer's; they are left out."
            )
        words = self.weight[: self.vocabulary].detach().float().cpu().numpy()
        bias = None
        if self.bias is not None:
            bias = self.bias[: self.vocabulary].detach().float().cpu().numpy()
        return Embeddings(words, contexts, bias), notes


def observe(
    lens: Lens,
    contexts: npt.NDArray[np.integer[Any]],
    vocabulary: int,
    *,
    before: list[int] | None = None,
    progress: Progress = no_progress,
) -> tuple[Embeddings, list[str]]:
    """Run a causal model on each context [m, K] alone, and return the inputs of its output layer at
    the last token as embeddings.

    `before` is put in front of every context (`Reading.start`). Returns the embeddings, float32 on
    the CPU, with the first `vocabulary` words, and notes. Raises `BadInput` for a model without an
    output layer, with too few words, or too short a context. Cost: one forward pass of m (K + 1)
    tokens.
    """
    count, order = contexts.shape
    head = _HeadReader(lens, vocabulary, order, before)
    rows_a_pass = max(1, _TOKENS_A_PASS // (len(head.prefix) + order))
    hidden = []
    for start in range(0, count, rows_a_pass):
        rows = np.asarray(contexts[start : start + rows_a_pass], dtype=np.int64)
        hidden.append(head.read(rows)[:, -1])
        progress(lens.name, min(start + rows_a_pass, count), count, "contexts")
    return head.embeddings(np.concatenate(hidden))


class _ContextSums:
    """Sums of the inputs of the output layer over the occurrences of each context."""

    def __init__(self, head: _HeadReader, counts: ContextCounts) -> None:
        self.head = head
        self.counts = counts
        self.sums = np.zeros((len(counts.contexts), head.weight.shape[1]))
        self.times = np.zeros(len(counts.contexts))

    def add(self, rows: Ints) -> None:
        """Add the contexts of windows [n, T]."""
        order = self.counts.order
        hidden = self.head.read(rows)[:, order - 1 :]
        hidden = hidden.reshape(-1, hidden.shape[-1])
        grams = np.lib.stride_tricks.sliding_window_view(rows, order, axis=1).reshape(-1, order)
        context = self.counts.rows(grams)
        counted = context >= 0
        np.add.at(self.sums, context[counted], hidden[counted])
        np.add.at(self.times, context[counted], 1.0)


def observe_in_text(
    lens: Lens,
    store: TokenStore,
    counts: ContextCounts,
    *,
    before: list[int] | None = None,
    most: int = 200_000,
    progress: Progress = no_progress,
) -> tuple[Embeddings, Ints, list[str]]:
    """Read contexts at their positions in the text, and return the mean input of the output layer
    over the occurrences of each.

    Documents are cut into windows of 256 tokens, `before` in front of each; every position with K
    tokens of its window up to it counts for its context, over the first `most` positions. Since
    logits are linear in embeddings, the mean embedding gives the mean logits. Returns embeddings of
    the contexts met, their rows among those of `counts`, and notes.
    """
    head = _HeadReader(lens, counts.vocabulary, counts.order, before)
    sums = _ContextSums(head, counts)
    waiting: dict[int, list[Ints]] = defaultdict(list)  # by length: read together
    done = 0
    for window in _windows(store, min(_WINDOW, head.longest)):
        length = len(window)
        if length < counts.order:
            continue
        waiting[length].append(window)
        done += length
        if len(waiting[length]) * (length + len(head.prefix)) >= _TOKENS_A_PASS // 4:
            sums.add(np.stack(waiting.pop(length)))
            progress(lens.name, min(done, most), most, "tokens")
        if done >= most:
            break
    for _, windows in sorted(waiting.items()):
        sums.add(np.stack(windows))

    met = np.flatnonzero(sums.times)
    if not len(met):
        raise BadInput("No context of the count was met in the text read by the model.")
    means = sums.sums[met] / sums.times[met][:, None]
    embeddings, notes = head.embeddings(means.astype(np.float32))
    return embeddings, met, notes


def _windows(store: TokenStore, window: int) -> Iterator[Ints]:
    """Yield the windows of each document."""
    ends = np.append(store.starts[1:], len(store.tokens))
    for start, end in zip(store.starts, ends, strict=True):
        for first in range(start, end, window):
            # The last token of a document is no context: nothing follows it.
            last = min(first + window, end - 1)
            yield np.asarray(store.tokens[first:last], dtype=np.int64)


def compare(
    lens: Lens,
    store: TokenStore,
    counts: ContextCounts,
    prediction: Prediction,
    heat: HeatMap,
    reading: ModelReading,
) -> tuple[ModelComparison, npt.NDArray[np.float32]]:
    """Return how far a model is from the prediction on the contexts of a count, and the cosines of
    the heat map's contexts.
    """
    labels = prediction.labels
    before = reading.before
    if reading.mode == "text":
        embeddings, rows, notes = observe_in_text(
            lens, store, counts, before=before, progress=reading.progress
        )
        sample = _sample(labels.prior[rows], reading.seed)
        embeddings = replace(embeddings, contexts=embeddings.contexts[sample])
        rows = rows[sample]
    else:
        rows = np.union1d(_sample(labels.prior, reading.seed), heat.rows)
        embeddings, notes = observe(
            lens,
            counts.contexts[rows],
            labels.vocabulary,
            before=before,
            progress=reading.progress,
        )
    if len(rows) < labels.contexts:
        prediction = prediction.restricted(rows)
    comparison = ModelComparison(
        name=lens.name,
        compared_contexts=len(rows),
        reading=reading.mode,
        before=before,
        metrics=support_metrics(embeddings, prediction, seed=reading.seed),
        notes=notes,
    )
    return comparison, _heat_map(embeddings, rows, heat)


def _heat_map(embeddings: Embeddings, rows: Ints, heat: HeatMap) -> npt.NDArray[np.float32]:
    """Return the cosines of the heat map's contexts; those that the model did not meet are NaN."""
    index = np.minimum(np.searchsorted(rows, heat.rows), len(rows) - 1)
    missing = rows[index] != heat.rows
    hidden = embeddings.contexts.astype(np.float64)
    heat_map = cosines(hidden[index] - hidden.mean(0))
    heat_map[missing] = np.nan
    heat_map[:, missing] = np.nan
    return heat_map


def _sample(weight: Floats, seed: int) -> Ints:
    """Return the contexts on which a model is compared: all, or a sample drawn by their weights."""
    if len(weight) <= _CONTEXTS:
        return np.arange(len(weight))
    probabilities = weight / weight.sum()
    rng = np.random.default_rng(seed)
    return np.sort(rng.choice(len(weight), _CONTEXTS, replace=False, p=probabilities))
