"""`headscan ntp`: from a text to the geometry that it predicts, and to models compared with it."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, Unpack

import numpy as np
import numpy.typing as npt

from headscan.model.finding import find_source
from headscan.model.framed import with_beginning
from headscan.model.lens import Lens, ModelsLike, open_models
from headscan.model.settings import Device, Dtype, Loading, TokenizerName
from headscan.model.tokenizer import load_tokenizer
from headscan.ntp.contexts import ModelReading, compare
from headscan.ntp.entropy import BootstrapSpread, bootstrap, describe, threshold_sweep
from headscan.ntp.findings import findings_of
from headscan.ntp.labels import SoftLabels
from headscan.ntp.pictures import HeatMap, axis_words, choose_heat, cosines, word_picture
from headscan.ntp.prediction import Prediction, gram_cosine, predict
from headscan.ntp.result import NtpResult, SolutionNumbers, SolveCost, Uncertainty, WordCounts
from headscan.ntp.svm import SvmSolution, SvmStep, certificate, estimate_cost
from headscan.run import (
    BadInput,
    Option,
    Run,
    Seed,
    verb,
)
from headscan.run.memory import within
from headscan.run.settings import FindingOptions
from headscan.text import display, source, tokenizer_identity
from headscan.text.counts import ContextCounts, count_tokens, grouped_counts
from headscan.text.source import Counting, Reading, TextLike, check_text, parse_bytes
from headscan.text.token_store import TokenStore, store_text
from headscan.text.tokens import frame_of

MULTIPLICATIONS_A_SECOND = 1.5e10
"""Float64 multiplications a second of one ordinary core, for the estimate."""

HARD_ITERATIONS = 100
"""Iterations of a hard solve, for the estimate."""

MOST_ITERATIONS = 5000.0

SPECTRUM_COLUMNS = 4096
"""With more columns than this, only the leading directions of the spectrum are computed."""

MOST_DIRECTIONS = 256

STORED_AXES = 64
"""Axes of the predicted words that the result holds."""

BOOTSTRAP_TOKENS = 20_000_000
"""Longer texts are not counted again in memory."""


@verb("ntp")
def run(
    run: Run,
    text: TextLike,
    *,
    model: Annotated[
        ModelsLike | None,
        Option(
            "Causal model to compare with the prediction; repeat it for checkpoints, in order.",
            content=True,
            repeat=True,
            group="Input",
        ),
    ] = None,
    gap: Annotated[
        float, Option("Certified relative gap of the predicted logits.", above=0)
    ] = 1e-6,
    budget: Annotated[
        float,
        Option(
            "Seconds of the solver on one core, by estimate: they set its number of iterations. "
            "Where they do not suffice for one, a spectral approximation is used.",
            low=0,
            group="Limits",
        ),
    ] = 10.0,
    reading: Annotated[
        Literal["text", "alone"],
        Option(
            "How models read the contexts: at their places in the text, or each context alone.",
            group="Advanced",
        ),
    ] = "text",
    groups: Annotated[
        int, Option("Groups of documents for the bootstrap; 0 for none.", low=0, group="Limits")
    ] = 20,
    order: source.Order,
    min_count: source.MinCount = 1,
    memory: source.CountingMemory = "4GiB",
    engine: source.CountingEngine = "here",
    master: source.Master = None,
    documents: source.Documents = "whole",
    field: source.FieldName = None,
    max_tokens: source.MaxTokens = None,
    start: source.Start = "tokenizer",
    tokenizer: TokenizerName = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    seed: Seed = 0,
    **_run_options: Unpack[FindingOptions],
) -> NtpResult:
    """Count a text, predict the geometry that next-token prediction on it reaches, and compare
    models with it.

    Args:
        text: a file, folder, `-`, `datasets` id, name of an embedded text, the text itself, or a
            list of texts. `out`/counts holds the count as Parquet and safetensors.

    Raises BadInput: an empty text, one shorter than the order, an empty vocabulary, supports that
    all cover the vocabulary, a resume on something that changed.

    Entropy bound and supports are over all positions that have a full context inside their
    document.

    >>> import headscan
    >>> result = headscan.ntp.run(["abab", "abac"], tokenizer="bytes", order=1, documents="whole")
    >>> result.contexts, result.supports
    (2, 2)
    """
    loading = Loading(tokenizer=tokenizer, dtype=dtype, device=device)
    if gap >= 1:
        raise BadInput(f"--gap must be less than 1, not {gap:g}.")
    if model is None:
        run.refuse_changed("without --model", reading=reading, start=start)
        if tokenizer is None:
            raise BadInput("Name a tokenizer (an id, a folder or bytes) or a model that has one.")
    text_reading = Reading(documents=documents, field=field, max_tokens=max_tokens, start=start)
    counting = Counting(
        order=order, min_count=min_count, memory=memory, engine=engine, master=master
    )
    check_text(text)
    words, lenses = _open(model, loading)
    run.identify("the tokenizer", tokenizer_identity(words))

    work = None if run.parts.folder is None else run.parts.folder / "counts"
    with within(parse_bytes(memory)):
        store, record = store_text(text, words, text_reading, work, progress=run.progress)
    run.identify("the text", record.sha256)
    counts = count_tokens(store, counting, work=work, progress=run.progress)
    if run.folder is not None:
        counts.save(run.folder / "counts")

    labels = SoftLabels.of(counts.matrix())
    solved = _predict(labels, gap, budget, run)
    prediction = solved.prediction
    data = describe(labels)
    solution = _solution_numbers(prediction)

    def spell(token_ids: Sequence[int]) -> list[str]:
        return display(words, [int(token_id) for token_id in token_ids])

    heat = choose_heat(prediction)
    frequent = word_picture(prediction, spell)
    word_rows = prediction.spectrum.classes.tokens(prediction.merged_words[:, :STORED_AXES])
    arrays = _arrays(prediction, word_rows, frequent, heat)
    comparisons = []
    records = []
    record = record if model is None else with_beginning(record, words, start)
    model_reading = ModelReading(
        mode=reading, before=list(frame_of(words, start).front), seed=seed, progress=run.progress
    )
    for lens in lenses:
        run.limits.append(lens.limit)
        comparison, heat_map = compare(lens, store, counts, prediction, heat, model_reading)
        comparisons.append(comparison)
        records.append(lens.provenance())
        arrays[f"heat/{lens.name}"] = heat_map

    spread, note = _spread(store, counts, groups, seed)
    return NtpResult(
        protocol=run.protocol(text=record, device=loading.place, dtype=dtype, notes=[note]),
        models=records,
        findings=findings_of(order, data, solution, comparisons),
        arrays=arrays,
        tokens=data.tokens,
        order=order,
        contexts=data.contexts,
        supports=data.supports,
        entropy_bound=data.entropy_bound,
        single_successor_share=data.single_successor_share,
        data=data,
        cost=solved.cost,
        # Without a solution this would be an SVD beyond the budget, too.
        certificate=None if solution is None else certificate(labels.supports),
        solution=solution,
        uncertainty=Uncertainty(threshold_sweep(labels), spread),
        axes=axis_words(word_rows, spell),
        words=frequent,
        heat=heat.in_words(counts.contexts, spell),
        comparisons=comparisons,
        notes=solved.notes,
    )


def _open(model: ModelsLike | None, loading: Loading) -> tuple[Any, Iterator[Lens]]:
    """Return the tokenizer, and the models, each loaded when its turn comes: checkpoints need not
    be in memory together.
    """
    lenses: Iterator[Lens] = iter(()) if model is None else open_models(model, loading)
    if loading.tokenizer is None:
        first = next(lenses)
        tokenizer = first.require_tokenizer()
        lenses = chain([first], lenses)
    else:
        tokenizer = load_tokenizer(loading.tokenizer, None, loading.trusted)
    if not len(tokenizer):
        raise BadInput("The vocabulary is empty.")
    _check_vocabularies(model, tokenizer, loading.trusted)
    return tokenizer, lenses


def _check_vocabularies(model: ModelsLike | None, tokenizer: Any, trusted: bool) -> None:
    """Raise BadInput for a folder whose configuration has fewer words than the count will have, or
    whose tokenizer has others.

    Configurations and tokenizers are read, not the models, so that nothing is counted in vain.
    """
    vocabulary = len(tokenizer)
    names = [model] if isinstance(model, str | Path) else model
    if not isinstance(names, Sequence):
        return
    for name in names:
        if not isinstance(name, str | Path):
            continue
        origin = find_source(str(name))
        folder = origin.folder
        if folder is None or not (folder / "config.json").is_file():
            continue
        own = load_tokenizer(None, origin, trusted)
        if own is not None and _words_of(own) != _words_of(tokenizer):
            raise BadInput(
                f"{name} has a tokenizer of its own with {len(own)} words, which is not that of "
                f"the count with {vocabulary}: models that are compared with one count must share "
                "its tokenizer."
            )
        file = folder / "config.json"
        words = json.loads(file.read_text(encoding="utf-8")).get("vocab_size")
        if isinstance(words, int) and words < vocabulary:
            raise BadInput(
                f"{name} has {words} words, the tokenizer of the count {vocabulary}: models that "
                "are compared with one count must share its tokenizer."
            )


def _words_of(tokenizer: Any) -> object:
    """Return a tokenizer's words with their numbers; where it lists none, how many there are."""
    return tokenizer.get_vocab() if hasattr(tokenizer, "get_vocab") else len(tokenizer)


@dataclass(frozen=True)
class Solved:
    """A prediction, its estimated cost, and notes for a reader of its numbers."""

    prediction: Prediction
    cost: SolveCost
    notes: list[str]


def _predict(labels: SoftLabels, gap: float, budget: float, run: Run) -> Solved:
    """Return the prediction: by the certified solution within the budget, else by the proxy."""
    if int(labels.supports.sizes.min()) == labels.vocabulary:
        raise BadInput(
            "Every context is followed by every token of the vocabulary: nothing is sparse, so "
            "nothing is predicted to grow."
        )
    estimate = estimate_cost(labels.supports)
    seconds = estimate.multiplications * HARD_ITERATIONS / MULTIPLICATIONS_A_SECOND
    iteration_seconds = seconds / HARD_ITERATIONS
    cost = SolveCost(**asdict(estimate), seconds=seconds)
    rank = None
    if cost.columns > SPECTRUM_COLUMNS:
        rank = min(MOST_DIRECTIONS, int(cost.columns) - 2, labels.contexts - 2)
    run.progress("predicting", 0, None, "contexts")
    if iteration_seconds > budget:
        note = (
            "The certified solution was not computed: one iteration takes about "
            f"{iteration_seconds:.2g} seconds, the solution about {seconds / 60:.0f} minutes and "
            f"{cost.bytes / 2**30:.1f} GiB by estimate, over the budget of {budget:g} seconds "
            "(--budget); the spectral approximation is used."
        )
        return Solved(predict(labels, exact=False, rank=rank), cost, [note])

    iterations = round(min(MOST_ITERATIONS, max(1.0, budget / iteration_seconds)))
    prediction = predict(
        labels, gap=gap, rank=rank, max_iterations=iterations, progress=_solver_progress(run, gap)
    )
    assert prediction.solution is not None
    return Solved(prediction, cost, _stopped_early(prediction.solution, iterations, gap, budget))


def _solver_progress(run: Run, gap: float) -> Callable[[SvmStep], None]:
    """Return a function that reports the solver's progress in digits of its gap, down to `gap`."""

    def report(step: SvmStep) -> None:
        done = float(np.log(max(step.gap, gap)) / np.log(gap))
        run.progress("solving", round(100 * max(done, 0.0)), 100, "%")

    return report


def _stopped_early(solution: SvmSolution, iterations: int, gap: float, budget: float) -> list[str]:
    if solution.converged:
        return []
    note = (
        f"The solver was stopped after {iterations:,} iterations, its budget of {budget:g} "
        f"estimated seconds, with a certified relative gap of {solution.gap:.1e}, short of the "
        f"{gap:g} asked for; a larger --budget brings it nearer."
    )
    return [note]


def _solution_numbers(prediction: Prediction) -> SolutionNumbers | None:
    """Return the certified solution in numbers, and how far the cheap proxy is from it."""
    solution = prediction.solution
    if solution is None:
        return None
    proxy_words, _ = prediction.spectrum.merged_factors()
    return SolutionNumbers(
        contexts=len(solution.inverse),
        supports=solution.distinct.contexts,
        primal=solution.primal,
        dual=solution.dual,
        gap=solution.gap,
        rank=solution.rank,
        iterations=solution.iterations,
        converged=solution.converged,
        seconds=solution.seconds,
        proxy_word_gram_cosine=gram_cosine(proxy_words, prediction.merged_words),
    )


def _arrays(
    prediction: Prediction,
    words: npt.NDArray[np.float64],
    frequent: WordCounts,
    heat: HeatMap,
) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of the result, for predicted words [V, axes]."""
    return {
        "words": np.ascontiguousarray(words, dtype=np.float32),
        "word_axes": np.ascontiguousarray(words[frequent.id][:, :6], dtype=np.float32),
        "sigma": np.linalg.norm(prediction.merged_words, axis=0) ** 2,
        "sigma_centred": prediction.spectrum.sigma.copy(),
        "heat/predicted": cosines(prediction.contexts[heat.rows]),
    }


def _spread(
    store: TokenStore, counts: ContextCounts, groups: int, seed: int
) -> tuple[BootstrapSpread | None, str]:
    """Return the spread over groups of documents, or of stretches of a text that has fewer
    documents, and a note that says which, or why there is none.
    """
    reason = _no_bootstrap(groups, len(store.tokens))
    if reason is not None:
        return None, f"No bootstrap: {reason}."
    resampled = "groups of documents"
    if len(store.starts) < groups:
        resampled = (
            f"{groups} stretches of text, as if these were independent: there are fewer documents "
            "than groups"
        )
    note = f"Errors are standard errors of a bootstrap over {resampled}."
    return bootstrap(grouped_counts(store, counts, groups), seed=seed), note


def _no_bootstrap(groups: int, tokens: int) -> str | None:
    """Return why there is no bootstrap; None where there is one."""
    if groups < 2:
        return "there are no groups to draw"
    if tokens < 2 * groups:
        return f"the text is too short for {groups} groups"
    if tokens > BOOTSTRAP_TOKENS:
        return f"more than {BOOTSTRAP_TOKENS:,} tokens are not counted again in memory"
    return None
