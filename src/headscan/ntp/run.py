"""From a text to the geometry it predicts, and to models held against it: counting, solving and comparing strung together."""

from __future__ import annotations

import os
import platform
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from headscan.ntp.certificate import certificate
from headscan.ntp.collapse_metrics import collapse_metrics
from headscan.ntp.entropy import describe
from headscan.ntp.features import train_features
from headscan.ntp.findings import findings
from headscan.ntp.labels import SoftLabels
from headscan.ntp.observe import observe, observe_in_text, start_tokens
from headscan.ntp.pictures import Heat, choose_heat, cosines, word_picture
from headscan.ntp.prediction import Prediction, predict
from headscan.ntp.result import NtpResult
from headscan.ntp.semantics import axes
from headscan.ntp.similarity import gram_cosine
from headscan.ntp.support_metrics import support_metrics
from headscan.ntp.svm import estimate_cost
from headscan.ntp.uncertainty import bootstrap, threshold_sweep
from headscan.results import check_writable
from headscan.run.errors import BadInput

__all__ = ["run"]

Progress = Callable[[str, int, int | None], None]
# Float64 multiplications a second of one ordinary core, and iterations of a hard solve: for the estimate told beforehand.
_SPEED, _ITERATIONS = 1.5e10, 100
_AXES = 64


def run(
    text: Any,
    *,
    order: int,
    tokenizer: Any = None,
    model: Any = None,
    prefixes: bool = False,
    documents: str = "whole",
    field: str = "text",
    max_tokens: int | None = None,
    min_count: int = 1,
    memory: str | int = "4GiB",
    engine: str = "sort",
    master: str | None = None,
    gap: float = 1e-6,
    budget: float = 300.0,
    train: int = 0,
    width: int | None = None,
    reading: str = "text",
    max_contexts: int = 20_000,
    groups: int = 20,
    seed: int = 0,
    device: str = "auto",
    dtype: str = "auto",
    out: str | os.PathLike | None = None,
    resume: bool = False,
    command: str | None = None,
    progress: Progress | None = None,
) -> NtpResult:
    """Count a text, predict the geometry that next-token prediction on it reaches, and hold models against it.

    Args:
        text: a file, folder, `-`, `datasets` id, name of an embedded text, or a list of strings.
        order: K, tokens of a context (with `prefixes`: the longest prefix).
        tokenizer: id, folder, `bytes` or object; by default that of the first model.
        model: a model, a Lens, or several (checkpoints in order) to compare: causal models with an output layer.
        prefixes: take for context all that stands before a token in its document, not its last K tokens.
        documents, field, max_tokens: how the text is read; see `headscan.text.documents`.
        min_count: leave out contexts seen fewer times.
        memory, engine, master, resume: see `headscan.text.counts.count`; the count is kept in `out`/counts.
        gap: certified relative gap of the NTP-SVM.
        budget: seconds that the certified solution may take by estimate; if it would take more, the spectral proxy stands
            in, and the result says what the certified one would cost.
        train: steps of gradient descent on unconstrained features of `width` (default: the vocabulary's size), 0 for none.
        reading: "text" reads contexts where they stand in the text (mean embedding over occurrences, the way a model that
            sees more than K tokens is used), "alone" gives the model each context by itself (the way the theory sees it).
        max_contexts: models are compared on at most so many contexts, drawn by frequency with `seed`.
        groups: groups of documents for the bootstrap, 0 for none.
        out, command, progress: as for `headscan.scan`.

    Raises:
        BadInput: an empty text, one shorter than the order, an empty vocabulary, supports that all cover the vocabulary.

    Entropy bound and supports are over all positions that have a full context inside their document.

    >>> import headscan
    >>> result = headscan.ntp(["abab", "abac"], tokenizer="bytes", order=1, documents="whole")
    >>> result.document["contexts"], result.document["supports"]
    (2, 2)
    """
    if reading not in ("text", "alone"):
        raise BadInput(f'Contexts are read in the "text" or "alone", not "{reading}".')
    started, clock = datetime.now(UTC), time.monotonic()
    folder = None if out is None else check_writable(out)
    sources = _sources(model)
    lenses, cutter = _load(sources, tokenizer, device, dtype)
    vocabulary = len(cutter)
    settings = {
        "order": order, "prefixes": prefixes, "documents": documents, "field": field, "max_tokens": max_tokens,
        "min_count": min_count, "memory": memory, "engine": engine, "gap": gap, "budget": budget, "train": train,
        "width": width, "reading": reading, "max_contexts": max_contexts, "groups": groups, "seed": seed,
    }  # fmt: skip
    counted = _count(text, cutter, vocabulary, settings, master, folder, resume, progress)
    labels = SoftLabels.of(counted.matrix)
    if progress is not None:
        progress("predicting", 0, None)
    prediction, notes, cost = _predict(labels, gap, budget, progress)
    heat = choose_heat(prediction, seed=seed)
    data = describe(labels)
    spell = _speller(cutter)
    document: dict[str, Any] = {
        "headscan": version("headscan"),
        "tokens": data["tokens"],
        "order": order,
        **{name: data[name] for name in ("contexts", "supports", "entropy_bound", "single_successor_share")},
        "data": data,
        "cost": cost,
        "certificate": _certificate(prediction),
        "solution": None if prediction.solution is None else prediction.solution.summary() | _against_proxy(prediction),
        "uncertainty": {"thresholds": threshold_sweep(labels), "bootstrap": counted.bootstrap(groups, seed)},
        "axes": _axes(prediction, spell),
        "words": word_picture(prediction, spell),
        "heat": heat.document(counted.context, spell),
        "models": [],
        "training": [],
        "notes": notes,
    }
    arrays = _arrays(prediction, document["words"]["id"], heat)
    if train:
        document["training"] = _train(labels, prediction, train, width, seed)
    for lens in lenses():
        document["models"].append(
            _compare(lens, counted, prediction, heat, arrays, max_contexts, seed, cutter, progress, reading)
        )
    document["findings"] = findings(document)
    names = ("headscan", "torch", "transformers", "numpy", "scipy")
    document["protocol"] = {
        "command": command,
        "text": counted.account,
        **settings,
        "interval": "bootstrap over groups of documents",
        "versions": {name: version(name) for name in names} | {"python": platform.python_version()},
        "started": started.isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - clock, 2),
    }
    result = NtpResult(document, arrays)
    if folder is not None:
        result.save(folder)
        shutil.rmtree(folder / "counts" / "work", ignore_errors=True)
    return result


def _sources(model: Any) -> list[Any]:
    if model is None:
        return []
    return list(model) if isinstance(model, Sequence) and not isinstance(model, str) else [model]


def _load(sources: list[Any], tokenizer: Any, device: str, dtype: str) -> tuple[Callable[[], Any], Any]:
    """The tokenizer at once, the models one by one when asked for: checkpoints need not be in memory together."""
    from headscan.model import Lens
    from headscan.model.tokenizers import load_tokenizer

    def lens_of(source: Any) -> Lens:
        if isinstance(source, Lens):
            return source
        return Lens.load(source, tokenizer=tokenizer, device=device, dtype=dtype)

    first = lens_of(sources[0]) if sources else None
    if first is None and tokenizer is None:
        raise BadInput("Name a tokenizer (an id, a folder or bytes) or a model that has one.")
    cutter = load_tokenizer(tokenizer) if tokenizer is not None or first is None else first.require_tokenizer()
    if not len(cutter):
        raise BadInput("The vocabulary is empty.")

    def each() -> Any:
        for number, source in enumerate(sources):
            yield first if number == 0 else lens_of(source)

    return each, cutter


class _Counted:
    """A count with what is needed to look back at the text."""

    def __init__(self, counts: Any, spool: Any, account: dict[str, Any], prefixes: bool) -> None:
        self.counts, self.spool, self.account, self.prefixes = counts, spool, account, prefixes
        self.matrix = counts.matrix()

    def context(self, row: int) -> list[int]:
        """The tokens of a context."""
        if not self.prefixes:
            return [int(token) for token in self.counts.contexts[row]]
        from headscan.text.counts import prefix_tokens

        return prefix_tokens(self.counts, row)

    def bootstrap(self, groups: int, seed: int) -> dict[str, Any] | None:
        """Spread over groups of documents; None where there is too little text, or too much to count again in memory."""
        if groups < 2 or self.prefixes or not 2 * groups <= len(self.spool.tokens) <= 20_000_000:
            return None
        from headscan.text.counts import grouped_counts

        return bootstrap(grouped_counts(self.spool, self.counts, groups), seed=seed)


def _count(
    text: Any,
    cutter: Any,
    vocabulary: int,
    settings: dict[str, Any],
    master: str | None,
    folder: Path | None,
    resume: bool,
    progress: Progress | None,
) -> _Counted:
    from headscan.text.counts import count_prefixes_of, count_tokens, store_text
    from headscan.text.settings import Counting, Reading

    place = None if folder is None else folder / "counts"
    reading = Reading(documents=settings["documents"], field=settings["field"], max_tokens=settings["max_tokens"])
    counting = Counting(
        order=settings["order"], min_count=settings["min_count"], memory=settings["memory"], engine=settings["engine"],
        master=master,
    )  # fmt: skip
    held, record = store_text(text, cutter, reading, place, vocabulary=vocabulary, resume=resume)
    if settings["prefixes"]:
        counts = count_prefixes_of(held, longest=settings["order"], min_count=settings["min_count"])
    else:
        counts = count_tokens(held, counting, folder=place, resume=resume)
    return _Counted(counts, held, {k: v for k, v in vars(record).items() if v is not None}, settings["prefixes"])


def _predict(
    labels: SoftLabels, gap: float, budget: float, progress: Progress | None
) -> tuple[Prediction, list[str], dict[str, float]]:
    if int(labels.supports.sizes.min()) == labels.vocabulary:
        raise BadInput(
            "Every context is followed by every token of the vocabulary: nothing is sparse, so nothing is predicted to grow."
        )
    cost = estimate_cost(labels.supports)
    seconds = cost["multiplications"] * _ITERATIONS / _SPEED
    cost |= {"seconds": seconds, "iterations": float(_ITERATIONS)}
    if seconds > budget:
        note = (
            f"The certified solution was not computed: about {seconds / 60:.0f} minutes and "
            f"{cost['bytes'] / 2**30:.1f} GiB by estimate, over the budget of {budget:g} seconds; the spectral proxy stands in."
        )
        rank = None if labels.vocabulary <= 4096 else min(256, labels.vocabulary - 2, labels.contexts - 2)
        return predict(labels, exact=False, rank=rank), [note], cost

    def report(record: dict[str, float]) -> None:
        if progress is not None:
            # Progress of a solver is in digits of its gap: from 1 to the gap asked for.
            done = np.log(max(record["gap"], gap)) / np.log(gap)
            progress("solving", round(1000 * max(float(done), 0.0)), 1000)

    rank = None if labels.vocabulary <= 4096 else min(256, labels.vocabulary - 2, labels.contexts - 2)
    prediction = predict(labels, gap=gap, rank=rank, max_seconds=max(2 * budget, 60.0), progress=report)
    assert prediction.solution is not None
    notes = []
    if not prediction.solution.converged:
        notes.append(f"The solver was stopped at a certified relative gap of {prediction.solution.gap:.1e}.")
    return prediction, notes, cost


def _certificate(prediction: Prediction) -> dict[str, Any] | None:
    if prediction.solution is None:
        return None  # it would cost an SVD of the size that the budget ruled out
    return certificate(prediction.labels.supports).__dict__


def _against_proxy(prediction: Prediction) -> dict[str, Any]:
    """How far the cheap proxies are from the certified solution: with and without the square root of the Gram."""
    spectrum = prediction.spectrum
    words, contexts = spectrum.factors()
    root = np.sqrt(spectrum.sigma)
    return {
        "proxy_word_gram_cosine": gram_cosine(words, prediction.words),
        "proxy_context_gram_cosine": gram_cosine(contexts, prediction.contexts),
        "unrooted_word_gram_cosine": gram_cosine(words * root, prediction.words),
        "centred_nuclear_norm_ratio": float(spectrum.sigma.sum() / prediction.solution.primal)  # type: ignore[union-attr]
        if prediction.labels.vocabulary <= 4096
        else None,
    }


def _speller(cutter: Any) -> Callable[[Any], list[str]]:
    from headscan.text import display

    return lambda ids: display(cutter, [int(i) for i in ids])


def _axes(prediction: Prediction, spell: Callable[[Any], list[str]]) -> list[dict[str, Any]]:
    found = []
    for axis in axes(prediction.words, count=8, ends=10):
        ends = {
            name: [{"token": token, "at": at} for token, (_, at) in zip(spell([i for i, _ in side]), side, strict=True)]
            for name, side in (("positive", axis.positive), ("negative", axis.negative))
        }
        found.append({"index": axis.index, "strength": axis.strength, **ends})
    return found


def _arrays(prediction: Prediction, words: list[int], heat: Heat) -> dict[str, np.ndarray]:
    sigma = np.linalg.norm(prediction.words, axis=0) ** 2
    return {
        "words": np.ascontiguousarray(prediction.words[:, :_AXES], dtype=np.float32),
        "word_axes": np.ascontiguousarray(prediction.words[words][:, :6], dtype=np.float32),
        "sigma": sigma,
        "sigma_centred": prediction.spectrum.sigma.copy(),
        "heat/predicted": cosines(prediction.contexts[heat.rows]),
    }


def _train(
    labels: SoftLabels, prediction: Prediction, steps: int, width: int | None, seed: int
) -> list[dict[str, Any]]:
    size = labels.contexts * labels.vocabulary
    if size > 5_000_000:
        raise BadInput(
            f"Training {labels.contexts} free contexts over {labels.vocabulary} words is too large ({size:,} logits); "
            f"raise the minimum count or lower the order."
        )
    done = train_features(labels, width or labels.vocabulary, steps, prediction=prediction, seed=seed)
    return list(done.records)


def _compare(
    lens: Any,
    counted: _Counted,
    prediction: Prediction,
    heat: Heat,
    arrays: dict[str, np.ndarray],
    most: int,
    seed: int,
    cutter: Any,
    progress: Progress | None,
    reading: str,
) -> dict[str, Any]:
    if counted.prefixes:
        raise BadInput("Models are compared on contexts of a fixed order; leave out the prefixes.")
    labels = prediction.labels
    before = start_tokens(cutter)
    if reading == "text":
        found, rows, notes = observe_in_text(
            lens, counted.spool.tokens, counted.spool.starts, counted.counts.contexts, labels.vocabulary, before=before,
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
    arrays[f"heat/{lens.name}"] = shown
    arrays[f"scatter/{lens.name}"] = heat.scatter(found, part, seed)
    return {
        "name": lens.name,
        "compared_contexts": len(rows),
        "reading": reading,
        "before": before,
        "metrics": support_metrics(found, part, seed=seed),
        "collapse": collapse_metrics(found, part.labels, seed=seed),
        "notes": notes,
        "provenance": asdict(lens.provenance()),
    }


def _sample(weight: np.ndarray, most: int, seed: int) -> np.ndarray:
    """All indices, or at most `most` of them drawn by weight without replacement, ascending."""
    if len(weight) <= most:
        return np.arange(len(weight))
    chosen = np.random.default_rng(seed).choice(len(weight), most, replace=False, p=weight / weight.sum())
    return np.sort(chosen)
