"""From a text to the geometry it predicts, and to models held against it: counting, solving and
comparing strung together.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from headscan.model.lens import Lens, ModelsLike, open_models
from headscan.model.settings import Device, Dtype, Loading, TokenizerName
from headscan.model.tokenizer import load_tokenizer
from headscan.ntp import result as results
from headscan.ntp.entropy import BootstrapSpread, bootstrap, describe, threshold_sweep
from headscan.ntp.labels import SoftLabels
from headscan.ntp.observe import compare
from headscan.ntp.prediction import Prediction, gram_cosine, predict
from headscan.ntp.result import NtpResult, SolutionNumbers, SolveCost, Uncertainty
from headscan.ntp.svm import SvmStep, certificate, estimate_cost
from headscan.run import (
    BadInput,
    Baseline,
    CommandLine,
    Ignore,
    Option,
    Out,
    Progressing,
    Resume,
    Run,
    Seed,
    verb,
)
from headscan.run.memory import within
from headscan.run.settings import Overwrite
from headscan.run.verbs import Given
from headscan.text import display, source, tokenizer_identity
from headscan.text.counts import ContextCounts, TokenStore, count_tokens, grouped_counts, store_text
from headscan.text.source import Counting, Reading, TextLike, check_text, parse_bytes

# Float64 multiplications a second of one ordinary core, and iterations of a hard solve: for the
# estimate told beforehand.
_SPEED = 1.5e10
_ITERATIONS = 100
_AXES = 64
_BOOTSTRAP_TOKENS = 20_000_000  # more are not counted again in memory


@dataclass(frozen=True, kw_only=True)
class Predicting(Loading, Reading, Counting):
    """The options of `headscan.ntp.run`; the tokenizer is by default that of the first model."""

    model: ModelsLike | None
    gap: float
    budget: float
    reading: Literal["text", "alone"]
    groups: int
    seed: int

    def check(self) -> None:
        super().check()
        if self.gap >= 1:
            raise BadInput(f"--gap must be less than 1, not {self.gap:g}.")
        if self.reading != "text" and self.model is None:
            raise BadInput("--reading is not used without --model.")
        if self.tokenizer is None and self.model is None:
            raise BadInput("Name a tokenizer (an id, a folder or bytes) or a model that has one.")


@verb("ntp")
def run(
    run: Run,
    text: TextLike,
    *,
    model: Annotated[
        ModelsLike | None,
        Option(
            "A causal model to hold against the prediction; give it again for checkpoints, in "
            "their order.",
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
            "Seconds of the solver on one core, as estimated: they set its iterations, so that "
            "the result is the same on every "
            "machine; the certified gap reached is stated, and a proxy stands in for what cannot "
            "begin.",
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
    field: source.FieldName = "text",
    max_tokens: source.MaxTokens = None,
    tokenizer: TokenizerName = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    ignore: Ignore = None,
    baseline: Baseline = None,
    out: Out = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    seed: Seed = 0,
    progress: Progressing = None,
    command: CommandLine = None,
) -> NtpResult:
    """Count a text, predict the geometry that next-token prediction on it reaches, and hold models
    against it.

    Args:
        text: a file, folder, `-`, `datasets` id, name of an embedded text, the text itself, or a
        list of texts. `out`/counts keeps the count as
        Parquet and safetensors.

    Raises BadInput: an empty text, one shorter than the order, an empty vocabulary, supports that
    all cover the vocabulary, a resume on something that changed.

    Entropy bound and supports are over all positions that have a full context inside their
    document.

    >>> import headscan
    >>> result = headscan.ntp.run(["abab", "abac"], tokenizer="bytes", order=1, documents="whole")
    >>> result.contexts, result.supports
    (2, 2)
    """
    asked = Given(locals())
    settings = asked.chosen(Predicting)
    check_text(text)
    tokenizer, lenses = _open(settings)
    run.identify("the tokenizer", tokenizer_identity(tokenizer))
    work: Path | None = None if run.parts.folder is None else run.parts.folder / "counts"
    with within(parse_bytes(settings.memory)):
        store, record = store_text(
            text, tokenizer, Reading(**settings.part(Reading)), work, progress=run.progress
        )
    run.identify("the text", record.sha256)
    counts = count_tokens(
        store, Counting(**settings.part(Counting)), work=work, progress=run.progress
    )
    if run.folder is not None:
        counts.save(run.folder / "counts")
    labels = SoftLabels.of(counts.matrix())
    prediction, notes, cost = _predict(labels, settings, run)
    heat = results.choose_heat(prediction, seed=settings.seed)
    data = describe(labels)

    def spell(ids: Any) -> list[str]:
        return display(tokenizer, [int(i) for i in ids])

    shown = results.word_picture(prediction, spell)
    words = prediction.spectrum.classes.tokens(prediction.merged_words[:, :_AXES])
    arrays = {
        "words": np.ascontiguousarray(words, dtype=np.float32),
        "word_axes": np.ascontiguousarray(words[shown.id][:, :6], dtype=np.float32),
        "sigma": np.linalg.norm(prediction.merged_words, axis=0) ** 2,
        "sigma_centred": prediction.spectrum.sigma.copy(),
        "heat/predicted": results.cosines(prediction.contexts[heat.rows]),
    }
    comparisons = []
    records = []
    how = tokenizer, settings.reading, settings.seed, run.progress
    for lens in lenses:
        comparison, pictures = compare(lens, store, counts, prediction, heat, *how)
        comparisons.append(comparison)
        records.append(lens.provenance())
        arrays |= pictures
    spread, note = _spread(store, counts, settings)
    solution = _solution(prediction)
    return NtpResult(
        protocol=run.protocol(
            text=record, device=settings.place, dtype=settings.dtype, notes=[note]
        ),
        models=records,
        findings=results.findings(settings.order, data, solution, comparisons),
        arrays=arrays,
        tokens=data.tokens,
        order=settings.order,
        contexts=data.contexts,
        supports=data.supports,
        entropy_bound=data.entropy_bound,
        single_successor_share=data.single_successor_share,
        data=data,
        cost=cost,
        certificate=None
        if solution is None
        else certificate(labels.supports),  # else an SVM beyond the budget
        solution=solution,
        uncertainty=Uncertainty(threshold_sweep(labels), spread),
        axes=results.axis_words(words, spell),
        words=shown,
        heat=heat.in_words(counts.contexts, spell),
        comparisons=comparisons,
        notes=notes,
    )


def _open(settings: Predicting) -> tuple[Any, Iterator[Lens]]:
    """The tokenizer at once, the models one by one when asked for: checkpoints need not be in
    memory together.
    """
    lenses: Iterator[Lens] = (
        iter(()) if settings.model is None else open_models(settings.model, settings)
    )
    if settings.tokenizer is None:
        first = next(lenses)
        tokenizer = first.require_tokenizer()
        lenses = chain([first], lenses)
    else:
        tokenizer = load_tokenizer(settings.tokenizer, None, settings.trusted)
    if not len(tokenizer):
        raise BadInput("The vocabulary is empty.")
    return tokenizer, lenses


def _predict(
    labels: SoftLabels, settings: Predicting, run: Run
) -> tuple[Prediction, list[str], SolveCost]:
    if int(labels.supports.sizes.min()) == labels.vocabulary:
        raise BadInput(
            "Every context is followed by every token of the vocabulary: nothing is sparse, so "
            "nothing is predicted to grow."
        )
    gap = settings.gap
    budget = settings.budget
    estimate = estimate_cost(labels.supports)
    seconds = estimate.multiplications * _ITERATIONS / _SPEED
    iteration = seconds / _ITERATIONS
    cost = SolveCost(**asdict(estimate), seconds=seconds)
    rank = None if cost.columns <= 4096 else min(256, int(cost.columns) - 2, labels.contexts - 2)
    run.progress("predicting", 0, None, "contexts")
    if iteration > budget:
        note = (
            "The certified solution was not computed: one iteration takes about "
            f"{iteration:.2g} seconds, the "
        )
        note += (
            f"solution about {seconds / 60:.0f} minutes and {cost.bytes / 2**30:.1f} GiB by "
            "estimate, over the budget of "
        )
        note += f"{budget:g} seconds (--budget); the spectral proxy stands in."
        return predict(labels, exact=False, rank=rank), [note], cost

    def report(step: SvmStep) -> None:
        # Progress of a solver is in digits of its gap: from 1 to the gap asked for.
        done = np.log(max(step.gap, gap)) / np.log(gap)
        run.progress("solving", round(100 * max(float(done), 0.0)), 100, "%")

    iterations = round(min(5000.0, max(1.0, budget / iteration)))
    prediction = predict(labels, gap=gap, rank=rank, max_iterations=iterations, progress=report)
    solution = prediction.solution
    assert solution is not None
    note = (
        f"The solver was stopped after {iterations:,} iterations, its budget of {budget:g} "
        "estimated seconds, with a certified "
        f"relative gap of {solution.gap:.1e}, short of the {gap:g} asked for; a larger --budget "
        "brings it nearer."
    )
    return prediction, [] if solution.converged else [note], cost


def _solution(prediction: Prediction) -> SolutionNumbers | None:
    """The certified solution in numbers, and how far the cheap proxy is from it."""
    if (s := prediction.solution) is None:
        return None
    return SolutionNumbers(
        contexts=len(s.inverse),
        supports=s.distinct.contexts,
        primal=s.primal,
        dual=s.dual,
        gap=s.gap,
        rank=s.rank,
        iterations=s.iterations,
        converged=s.converged,
        seconds=s.seconds,
        proxy_word_gram_cosine=gram_cosine(
            prediction.spectrum.merged_factors()[0], prediction.merged_words
        ),
    )


def _spread(
    store: TokenStore, counts: ContextCounts, settings: Predicting
) -> tuple[BootstrapSpread | None, str]:
    """Spread over groups of documents, or of stretches of a text that has fewer; and what it means,
    or why there is none.
    """
    groups = settings.groups
    tokens = len(store.tokens)
    for missing, reason in (
        (groups < 2, "there are no groups to draw"),
        (tokens < 2 * groups, f"the text is too short for {groups} groups"),
        (
            tokens > _BOOTSTRAP_TOKENS,
            f"more than {_BOOTSTRAP_TOKENS:,} tokens are not counted again in memory",
        ),
    ):
        if missing:
            return None, f"No bootstrap: {reason}."
    over = "groups of documents"
    if len(store.starts) < groups:
        over = (
            f"{groups} stretches of text, as if these were independent: there are fewer "
            "documents than groups"
        )
    note = f"Errors are standard errors of a bootstrap over {over}."
    return bootstrap(grouped_counts(store, counts, groups), seed=settings.seed), note
