"""From a text to the geometry it predicts, and to models held against it: counting, solving and comparing strung together."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt

from headscan.model.opening import ModelsLike
from headscan.model.settings import Device, Dtype, TokenizerName
from headscan.ntp.counted import Predicting, count
from headscan.ntp.entropy import describe, threshold_sweep
from headscan.ntp.features import FeatureCheckpoint, train_features
from headscan.ntp.labels import Floats, SoftLabels
from headscan.ntp.observe import compare, open_compared
from headscan.ntp.prediction import Prediction, gram_cosine, predict
from headscan.ntp.result import (
    HeatMap,
    NtpResult,
    SolutionNumbers,
    SolveCost,
    Uncertainty,
    axis_words,
    choose_heat,
    cosines,
    findings,
    word_picture,
)
from headscan.ntp.svm import SvmStep, certificate, estimate_cost
from headscan.run import BadInput, Run, running, verb
from headscan.run.settings import CommandLine, Option, Out, Progressing, Resume, Seed
from headscan.text.prompts import display
from headscan.text.source import (
    CountingEngine,
    CountingMemory,
    Documents,
    FieldName,
    Master,
    MaxTokens,
    MinCount,
    Order,
    TextLike,
    check_text,
)
from headscan.text.tokens import tokenizer_identity

# Float64 multiplications a second of one ordinary core, and iterations of a hard solve: for the estimate told beforehand.
_SPEED, _ITERATIONS = 1.5e10, 100
_AXES = 64
_FREE_LOGITS = 5_000_000


@verb("ntp")
def run(
    text: TextLike, *,
    model: Annotated[
        ModelsLike | None,
        Option(
            "A causal model to hold against the prediction; give it again for checkpoints, in their order.",
            content=True,
            repeat=True,
        ),
    ] = None,
    prefixes: Annotated[bool, Option("A context is all that stands before a token in its document.")] = False,
    gap: Annotated[float, Option("Certified relative gap of the predicted logits.", above=0)] = 1e-6,
    budget: Annotated[
        float,
        Option(
            "Seconds of the solver: the certified gap reached by then is stated; a proxy stands in for what cannot begin.",
            low=0,
        ),
    ] = 10.0,
    train: Annotated[
        int, Option("Steps of gradient descent on unconstrained features, to see how fast they get there.", low=0)
    ] = 0,
    width: Annotated[int | None, Option("Width of those features. Default: the vocabulary's size.", low=1)] = None,
    reading: Annotated[
        Literal["text", "alone"],
        Option("How models meet the contexts: where they stand in the text, or each one alone."),
    ] = "text",
    max_contexts: Annotated[int, Option("Compare models on at most so many contexts, drawn by frequency.", low=1)] = 20_000,
    groups: Annotated[int, Option("Groups of documents for the bootstrap; 0 for none.", low=0)] = 20, order: Order,
    min_count: MinCount = 1, memory: CountingMemory = "4GiB", engine: CountingEngine = "sort", master: Master = None,
    documents: Documents = "whole", field: FieldName = "text", max_tokens: MaxTokens = None,
    tokenizer: TokenizerName = None, dtype: Dtype = "auto", device: Device = "auto",
    out: Out = None, resume: Resume = False, seed: Seed = 0, progress: Progressing = None, command: CommandLine = None,
) -> NtpResult:  # fmt: skip
    """Count a text, predict the geometry that next-token prediction on it reaches, and hold models against it.

    Args:
        text: a file, folder, `-`, `datasets` id, name of an embedded text, the text itself, or a list of texts.
        Further options: see `headscan ntp --help`. `out`/counts keeps the count.

    Raises:
        BadInput: an empty text, one shorter than the order, an empty vocabulary, supports that all cover the vocabulary, a
            resume on something that changed.

    Entropy bound and supports are over all positions that have a full context inside their document.

    >>> import headscan
    >>> result = headscan.ntp.run(["abab", "abac"], tokenizer="bytes", order=1, documents="whole")
    >>> result.contexts, result.supports
    (2, 2)
    """
    asked, run = running()
    settings = asked.chosen(Predicting)
    check_text(text)
    tokenizer, lenses = open_compared(settings)
    run.identify("the tokenizer", tokenizer_identity(tokenizer))
    counted = count(text, tokenizer, settings, run)
    labels = SoftLabels.of(counted.matrix)
    if settings.train and labels.contexts * labels.vocabulary > _FREE_LOGITS:
        raise BadInput(
            f"Training {labels.contexts} free contexts over {labels.vocabulary} words is too large "
            f"({labels.contexts * labels.vocabulary:,} logits); raise the minimum count or lower the order."
        )
    prediction, notes, cost = _predict(labels, settings, run)
    heat = choose_heat(prediction, seed=settings.seed)
    data = describe(labels)

    def spell(ids: Any) -> list[str]:
        return display(tokenizer, [int(i) for i in ids])

    shown = word_picture(prediction, spell)
    words = prediction.spectrum.classes.tokens(prediction.merged_words[:, :_AXES])
    arrays = _arrays(prediction, words, shown.id, heat)
    training = _train(labels, prediction, settings) if settings.train else []
    comparisons, records = [], []
    for lens in lenses:
        one = compare(lens, counted, prediction, heat, tokenizer, settings, run.progress)
        comparisons.append(one.comparison)
        records.append(one.record)
        arrays |= {f"heat/{lens.name}": one.heat, f"scatter/{lens.name}": one.scatter}
    solution = _solution(prediction)
    return NtpResult(
        protocol=run.protocol(
            text=counted.text, device=settings.place, dtype=settings.dtype,
            notes=[counted.note(settings.groups)],
        ),
        models=records,
        findings=findings(settings.order, data, solution, comparisons),
        arrays=arrays,
        tokens=data.tokens,
        order=settings.order,
        contexts=data.contexts,
        supports=data.supports,
        entropy_bound=data.entropy_bound,
        single_successor_share=data.single_successor_share,
        data=data,
        cost=cost,
        certificate=None if solution is None else certificate(labels.supports),  # else an SVM beyond the budget
        solution=solution,
        uncertainty=Uncertainty(threshold_sweep(labels), counted.bootstrap(settings.groups, settings.seed)),
        axes=axis_words(words[:, :_AXES], spell),
        words=shown,
        heat=heat.in_words(counted.context, spell),
        comparisons=comparisons,
        training=training,
        notes=notes,
    )  # fmt: skip


def _predict(labels: SoftLabels, settings: Predicting, run: Run) -> tuple[Prediction, list[str], SolveCost]:
    if int(labels.supports.sizes.min()) == labels.vocabulary:
        raise BadInput(
            "Every context is followed by every token of the vocabulary: nothing is sparse, so nothing is predicted to grow."
        )
    gap, budget = settings.gap, settings.budget
    estimate = estimate_cost(labels.supports)
    seconds = estimate.multiplications * _ITERATIONS / _SPEED
    cost = SolveCost(**asdict(estimate), seconds=seconds, iterations=float(_ITERATIONS))
    rank = None if cost.columns <= 4096 else min(256, int(cost.columns) - 2, labels.contexts - 2)
    run.progress("predicting", 0, None, "contexts")
    if seconds / _ITERATIONS > budget:
        note = (
            f"The certified solution was not computed: one iteration takes about {seconds / _ITERATIONS:.2g} seconds, the "
            f"solution about {seconds / 60:.0f} minutes and {cost.bytes / 2**30:.1f} GiB by estimate, over the budget of "
            f"{budget:g} seconds (--budget); the spectral proxy stands in."
        )
        return predict(labels, exact=False, rank=rank), [note], cost

    def report(step: SvmStep) -> None:
        # Progress of a solver is in digits of its gap: from 1 to the gap asked for.
        done = np.log(max(step.gap, gap)) / np.log(gap)
        run.progress("solving", round(1000 * max(float(done), 0.0)), 1000, "thousandths")

    prediction = predict(labels, gap=gap, rank=rank, max_seconds=budget, progress=report)
    assert prediction.solution is not None
    notes = []
    if not prediction.solution.converged:
        notes.append(
            f"The solver was stopped at its budget of {budget:g} seconds with a certified relative gap of "
            f"{prediction.solution.gap:.1e}, short of the {gap:g} asked for: about {seconds:.0f} seconds by estimate "
            "(--budget)."
        )
    return prediction, notes, cost


def _solution(prediction: Prediction) -> SolutionNumbers | None:
    """The certified solution in numbers, and how far the cheap proxies are from it."""
    s, spectrum = prediction.solution, prediction.spectrum
    if s is None:
        return None
    words, contexts = spectrum.merged_factors()
    return SolutionNumbers(
        contexts=len(s.inverse), supports=s.distinct.contexts, primal=s.primal, dual=s.dual, gap=s.gap, rank=s.rank,
        iterations=s.iterations, converged=s.converged, seconds=s.seconds, penalty=s.penalty, violation=s.violation,
        proxy_word_gram_cosine=gram_cosine(words, prediction.merged_words),
        proxy_context_gram_cosine=gram_cosine(contexts, prediction.contexts),
        unrooted_word_gram_cosine=gram_cosine(words * np.sqrt(spectrum.sigma), prediction.merged_words),
        centred_nuclear_norm_ratio=float(spectrum.sigma.sum() / s.primal) if spectrum.whole else None,
    )  # fmt: skip


def _arrays(prediction: Prediction, words: Floats, shown: list[int], heat: HeatMap) -> dict[str, npt.NDArray[Any]]:
    return {
        "words": np.ascontiguousarray(words, dtype=np.float32),
        "word_axes": np.ascontiguousarray(words[shown][:, :6], dtype=np.float32),
        "sigma": np.linalg.norm(prediction.merged_words, axis=0) ** 2,
        "sigma_centred": prediction.spectrum.sigma.copy(),
        "heat/predicted": cosines(prediction.contexts[heat.rows]),
    }


def _train(labels: SoftLabels, prediction: Prediction, settings: Predicting) -> list[FeatureCheckpoint]:
    width = settings.width or labels.vocabulary
    done = train_features(labels, width, settings.train, prediction=prediction, seed=settings.seed)
    return list(done.records)
