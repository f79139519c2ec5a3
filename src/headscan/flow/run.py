"""The verb `flow`: what one token's output knows of another token."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated, Unpack

import numpy as np
from jaxtyping import Float32, Float64, Int, Num

from headscan.flow.comparison import (
    ComparedModel,
    Cuts,
    Length,
    PromptInputs,
    Prompts,
    RandomWeights,
    SiteGlobs,
    WindowCount,
    compared_models,
    cut_names,
    variant,
)
from headscan.flow.cost import affordable, computed_tokens, multiplications, untried
from headscan.flow.influence import Recovery, leaks, recovery
from headscan.flow.kinds import LATER, TOLD
from headscan.flow.result import FlowPart, FlowResult, FlowSummary, MatrixMeans
from headscan.model.lens import ModelsLike
from headscan.model.settings import Device, Dtype, Loading, TokenizerName
from headscan.run import Finding, Run, verb
from headscan.run.settings import (
    FindingOptions,
    Option,
    Progress,
    Seed,
)
from headscan.statistics.uncertainty import clustered
from headscan.text.source import TEXT, Start, TextLike
from headscan.text.spelling import display

MUCH_WORK = 1e9
"""Multiplications of a row from which on fewer rows are tried at once, so that progress shows."""


@verb("flow")
def run(
    run: Run,
    models: ModelsLike,
    prompt: Prompts = None,
    *,
    text: Annotated[TextLike | None, TEXT] = None,
    windows: WindowCount = None,
    length: Length = None,
    start: Start = "tokenizer",
    at: SiteGlobs = "block.*",
    cuts: Cuts = "whole",
    null: RandomWeights = False,
    trials: Annotated[
        int,
        Option(
            "Random replacement tokens at each position, for the leak.",
            low=1,
            high=2**20,
            group="Limits",
        ),
    ] = 4,
    recover: Annotated[
        bool, Option("Search the vocabulary at each position; otherwise only the leak is measured.")
    ] = True,
    candidates: Annotated[
        int | None,
        Option(
            "Tokens tried for recovery at each position. Default: the vocabulary, or as many as "
            "take some minutes.",
            low=2,
            group="Limits",
        ),
    ] = None,
    tokenizer: TokenizerName = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    seed: Seed = 0,
    **_run_options: Unpack[FindingOptions],
) -> FlowResult:
    """Measure which outputs move with which tokens, and which tokens a single output gives away.

    For every input token i and output position j of each site: how far j moves with i, and whether
    j gives i away. Of encoder-decoders the encoder is looked at.

    Args:
        models: a name, a folder, a live model or a `Lens`, or several: trained and untrained,
            narrow and wide, transformer and mixer, or checkpoints in their order, are compared part
            by part.
        prompt: a text, token ids (a list, tensor or array), or several of either.
        text: take prompts from this text instead (or as well): what `headscan.scan` takes.

    Returns:
        A `FlowResult`; its arrays `leak` and `recoverable` have the shape [sites, T, T].

    Raises:
        BadInput: for no prompt, a prompt of one token, a site or cut that is not there.

    >>> from headscan.model import Lens
    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> config = GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=2, n_head=2)
    >>> result = run(Lens(GPT2LMHeadModel(config)), [3, 1, 4, 1, 5])
    >>> result.arrays["leak"].shape, bool(result.arrays["leak"][1][4, 0] == 0)
    ((2, 5, 5), True)
    """
    if not recover:
        run.refuse_changed("without --recover", candidates=candidates)
    prompts = PromptInputs(prompt, text, windows, length, start)
    loading = Loading(tokenizer=tokenizer, dtype=dtype, device=device)
    names = cut_names(cuts, null=null)
    compared = compared_models(models, prompts, loading, at, names, run)

    search = Search(recover=recover, candidates=candidates, trials=trials, seed=seed)
    measured = compared.measure_each(
        run, MeasuredFlow, partial(measure_flow, search=search, run=run)
    )

    arrays: dict[str, Float32[np.ndarray, "sites T T"]] = {}
    for number, item in enumerate(measured):
        for name, values in item.matrices.items():
            arrays[f"{name}/{number}"] = np.array(values, np.float32)
    matrices = measured[0].matrices
    arrays |= {name: arrays[f"{name}/0"] for name in matrices}

    parts = [item.part for item in measured]
    first = parts[0]
    return FlowResult(
        site=first.sites[-1].site,
        sites=[entry.site for entry in first.sites],
        tokens=first.tokens,
        leak=means(np.array(matrices["leak"][-1])),
        recoverable=means(np.array(matrices["recoverable"][-1])) if recover else None,
        prompts=compared.prompts,
        length=compared.length,
        parts=parts,
        findings=flow_findings(parts),
        protocol=run.protocol(
            text=compared.text, device=compared.device, notes=upper_bounds(parts)
        ),
        models=compared.records,
        arrays=arrays,
    )


@dataclass(frozen=True)
class Search:
    """How flow is measured: `trials` replacements a position for the leak; whether tokens are
    recovered, from how many candidates (None: as many as are affordable).
    """

    recover: bool
    candidates: int | None
    trials: int
    seed: int


@dataclass(frozen=True)
class MeasuredFlow:
    """A finished part as a run stores it: its summaries, and its matrices as plain numbers."""

    part: FlowPart
    matrices: dict[str, list[list[list[float]]]]


def measure_flow(model: ComparedModel, cut_name: str, *, search: Search, run: Run) -> MeasuredFlow:
    """Return what the outputs of one model and cut know of its tokens."""
    lens = model.lens
    token_ids = model.token_ids

    def progress(stage: str, done: int, total: int | None = None, unit: str = "rows") -> None:
        run.progress(f"{lens.name}, {cut_name}, {stage}", done, total, unit)

    cut = variant(cut_name, model.sites)
    leak = leaks(lens, cut, token_ids, trials=search.trials, seed=search.seed, progress=progress)
    by_prompt = {"leak": leak}
    matrices = {"leak": leak.mean(0)}
    recovered = None
    if search.recover:
        recovered = _recovery(model, cut_name, search, run, progress)
        by_prompt["recoverable"] = recovered.recovered
        matrices["recoverable"] = recovered.recoverable
        matrices["margin"] = recovered.margin

    if len(token_ids) > 1:
        tokens = [f"#{position}" for position in range(token_ids.shape[1])]
    else:
        tokens = display(lens.tokenizer, token_ids[0].tolist())
    sites = list(cut.on(lens).sites)
    summaries = []
    for position, site in enumerate(sites):
        at_site = {kind: values[:, position] for kind, values in by_prompt.items()}
        summaries.append(summary(site, at_site))
    part = FlowPart(
        model=lens.name,
        cut=cut_name,
        slice=str(cut.but(sites=(sites[-1],))),
        tokens=tokens,
        sites=summaries,
        noise=None if recovered is None else recovered.noise.tolist(),
        candidates=None if recovered is None else recovered.candidates,
        exhaustive=None if recovered is None else recovered.exhaustive,
    )
    return MeasuredFlow(part, {kind: values.tolist() for kind, values in matrices.items()})


def _recovery(
    model: ComparedModel, cut_name: str, search: Search, run: Run, progress: Progress
) -> Recovery:
    """Return which tokens a single output gives away, tried with as many as are affordable."""
    lens = model.lens
    token_ids = model.token_ids
    cut = variant(cut_name, model.sites)
    work = multiplications(lens, cut.on(lens).sites)
    computed = computed_tokens(lens, cut, int(token_ids.shape[1]))
    room = affordable(lens, len(token_ids) * computed * work)
    candidates = search.candidates
    if candidates is None and room < lens.vocabulary_size:
        candidates = max(2, room)
        factor = lens.vocabulary_size / candidates
        run.announce(
            f"Recovery tries {candidates} of {lens.vocabulary_size} tokens in each place, the "
            f"nearest and random ones: all would take {factor:.0f} times as long (--candidates)."
        )
    # Fewer rows show progress within a minute and take little memory.
    rows = 32 if token_ids.shape[1] * work > MUCH_WORK else 256
    return recovery(
        lens, cut, token_ids, most=candidates, seed=search.seed, rows=rows, progress=progress
    )


def flow_findings(parts: Sequence[FlowPart]) -> list[Finding]:
    """Return the findings of the whole models.

    TOLD: earlier tokens that one output gives away, beside random weights. LATER: outputs that move
    with tokens that follow.
    """
    controls = {part.model: part.sites[-1] for part in parts if part.cut == "fresh"}
    findings = []
    for part in parts:
        if part.cut != "whole":
            continue
        last = part.sites[-1]
        where = {"model": part.model, "site": last.site}
        recovered = last.recoverable_of_earlier
        if recovered is not None:
            text = _told(part, recovered, controls.get(part.model))
            findings.append(TOLD.finding("notice", text, value=recovered, **where))
        if last.leak_of_later > 0:
            text = (
                f"Outputs of {last.site} move with the tokens that follow them, by "
                f"{last.leak_of_later:.2g} of their norm."
            )
            findings.append(LATER.finding("notice", text, value=last.leak_of_later, **where))
    return findings


def _told(part: FlowPart, recovered: float, control: FlowSummary | None) -> str:
    """Return the sentence of a TOLD finding."""
    among = "" if part.exhaustive else f" among the {part.candidates} candidates tried"
    beside = ""
    if control is not None:
        beside = f" (with random weights {control.recoverable_of_earlier:.0%})"
    return (
        f"Given all other tokens, a single output of {part.sites[-1].site} identifies "
        f"{recovered:.0%} of the earlier tokens{among}{beside}."
    )


def upper_bounds(parts: Sequence[FlowPart]) -> list[str]:
    """Return the notes on parts in which not every token was tried."""
    notes = []
    for part in parts:
        if part.exhaustive is not False or part.candidates is None:
            continue
        drawn = part.candidates - part.candidates // 2
        notes.append(
            f"{part.model}, {part.cut}: recovery tried {part.candidates} tokens in each place, "
            "half of them nearest to the true one by their input vectors, half drawn, so that the "
            "share recovered is an upper bound. Where a token is recovered in all prompts, at most "
            f"{untried(drawn):.2g} of the tokens that are not among the nearest fit as well (95 %, "
            "each place and output by itself)."
        )
    return notes


def means(matrix: Float64[np.ndarray, "T T"]) -> MatrixMeans:
    """Return the means over own (i = j), earlier (i < j) and later (i > j) tokens."""
    earlier = np.triu_indices(len(matrix), 1)
    later = np.tril_indices(len(matrix), -1)
    return MatrixMeans(
        float(np.diag(matrix).mean()), float(matrix[earlier].mean()), float(matrix[later].mean())
    )


def summary(site: str, by_prompt: dict[str, Num[np.ndarray, "N T T"]]) -> FlowSummary:
    """Return the means of a site's matrices over prompts, with intervals over prompts."""
    numbers: dict[str, float] = {}
    intervals: dict[str, list[float] | None] = {}
    for kind, matrices in by_prompt.items():
        for part, value in asdict(means(matrices.mean(0))).items():
            numbers[f"{kind}_{part}"] = value
        rows = [asdict(means(matrix)) for matrix in matrices]
        upper = 1.0 if kind == "recoverable" else None
        for part in rows[0]:
            values = np.array([row[part] for row in rows])
            intervals[f"{kind}_{part}_interval"] = clustered(
                partial(_mean, values), len(values), bounds=(0.0, upper)
            )
    return FlowSummary(site, **numbers, **intervals)  # type: ignore[arg-type]


def _mean(values: Float64[np.ndarray, " N"], indices: Int[np.ndarray, " n"]) -> float:
    return float(values[indices].mean())
