"""The verbs `flow` and `channel`: from models and prompts to what their tokens know of each other."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Annotated, TypeVar

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int, Num
from torch import Tensor
from typing_extensions import TypeAliasType

from headscan.flow.codebooks import channel_bound, codebook, distances, noise_accuracy
from headscan.flow.influence import (
    affordable,
    computed_tokens,
    leaks,
    multiplications,
    recovery,
    untried,
)
from headscan.flow.result import (
    ChannelPart,
    ChannelResult,
    FlowPart,
    FlowResult,
    FlowSummary,
    MatrixMeans,
)
from headscan.model import Lens
from headscan.model.lens import ModelsLike, open_models
from headscan.model.settings import Device, Dtype, Loading, TokenizerName
from headscan.model.slicing import Slice
from headscan.model.slicing.prefix import can_cache
from headscan.run import BadInput, Finding, Given, ModelRecord, Run, TextRecord, names_in, verb
from headscan.run.settings import (
    Baseline,
    CommandLine,
    Ignore,
    Option,
    Out,
    Overwrite,
    Progressing,
    Resume,
    Seed,
)
from headscan.statistics.uncertainty import clustered
from headscan.text.prompts import PromptsLike, read_prompts
from headscan.text.source import TEXT, TextLike
from headscan.text.spelling import display
from headscan.text.windows import Windows

VARIANTS: dict[str, dict[str, str | bool]] = {
    "whole": {},
    "attention": {"only": "attention"},
    "mlp": {"only": "mlp"},
    "no-residual": {"residual": False},
    "causal": {"causal": True},
    "no-mask": {"causal": False},
    "fresh": {"weights": "fresh:0"},
}
"""Name -> what of the model is left (the attributes of a `Slice`). "fresh" has random weights."""


def variant(name: str, sites: Sequence[str]) -> Slice:
    """The slice of that name, or of several joined with +, which ends at `sites`; BadInput where
    one is none.

    >>> str(variant("attention", ["block.0"]))
    'block.0 only=attention'
    """
    cut = Slice(sites=tuple(sites))
    for part in name.split("+"):
        if part not in VARIANTS:
            raise BadInput(
                f"There is no cut '{part}'; there are: {', '.join(VARIANTS)} (joined with +)."
            )
        cut = cut.but(**VARIANTS[part])
    return cut


# ---- What `headscan flow` and `headscan channel` can be asked for.

WINDOWS = 8
LENGTH = 16

Prompts = TypeAliasType(
    "Prompts",
    Annotated[
        PromptsLike | None,
        Option(
            "A prompt; repeat it to average over several.", content=True, repeat=True, group="Input"
        ),
    ],
)
WindowCount = TypeAliasType(
    "WindowCount",
    Annotated[
        int | None,
        Option(
            f"Windows of --length tokens taken from the text's beginning. Default: {WINDOWS}.",
            low=1,
            group="Limits",
        ),
    ],
)
Length = TypeAliasType(
    "Length",
    Annotated[
        int | None,
        Option(
            f"Tokens of each prompt. Default: those of the shortest; {LENGTH} of a text.",
            low=2,
            group="Limits",
        ),
    ],
)
SiteGlobs = TypeAliasType(
    "SiteGlobs",
    Annotated[str | Sequence[str], Option("Globs of sites, comma-separated.", group="Input")],
)
Cuts = TypeAliasType(
    "Cuts",
    Annotated[
        str | Sequence[str],
        Option(
            f"Parts of the model that are kept: {', '.join(VARIANTS)}; joined with +; several, "
            "comma-separated.",
            name="cut",
        ),
    ],
)
RandomWeights = TypeAliasType(
    "RandomWeights", Annotated[bool, Option("Measure each model with random weights, too.")]
)


def check(asked: Given) -> None:
    """Raise BadInput where options do not fit together."""
    if asked["prompt"] is None and asked["text"] is None:
        raise BadInput("Give a prompt, or a text that prompts are taken from.")
    if asked["windows"] is not None and asked["text"] is None:
        raise BadInput("--windows is not used without --text: prompts are taken as they are.")
    for name in cut_names(asked):
        variant(name, ["block.0"])


def cut_names(asked: Given) -> list[str]:
    names = names_in(asked["cuts"]) + ["fresh"] * asked["null"]
    if not names:
        raise BadInput(f"Name at least one cut: {', '.join(VARIANTS)}.")
    return list(dict.fromkeys(names))


def find_sites(lens: Lens, at: str | Sequence[str]) -> tuple[str, ...]:
    """The sites that the globs match; of an encoder-decoder those of the encoder, which all see the
    same tokens.
    """
    sites = lens.match(at)
    if not lens.traits.encoder_decoder:
        return sites
    encoder = tuple(site for site in sites if site.startswith("encoder."))
    if not encoder:
        raise BadInput(
            f"In an encoder-decoder such as '{lens.name}' the encoder is looked at: choose --at "
            "'encoder.block.*'."
        )
    return encoder


def find_prompts(lens: Lens, asked: Given) -> tuple[Int[Tensor, "N T"], TextRecord | None]:
    """Token ids, each prompt cut to the length of the shortest; and the record of the text they
    come from.
    """
    rows = list[list[int]]()
    record = None
    if asked["prompt"] is not None:
        limits = replace(lens.limits, context=None)  # prompts are cut before their length counts
        rows += [
            list(prompt.ids)
            for prompt in read_prompts(asked["prompt"], lens.tokenizer, limits, special=False)
        ]
    if asked["text"] is not None:
        count = asked["windows"] or WINDOWS
        size = asked["length"] or LENGTH
        windows = Windows(asked["text"], lens.require_tokenizer(), size, max_tokens=count * size)
        rows += [window.ids.tolist() for window in windows]
        record = windows.record()
    least = min(
        [len(row) for row in rows] + ([asked["length"]] if asked["length"] is not None else [])
    )
    if least < 2:
        raise BadInput(
            "A prompt of one token has no two tokens that could know of each other; give at least "
            "two."
        )
    if lens.context_length is not None and least > lens.context_length:
        raise BadInput(
            f"The prompt has {least} tokens, but '{lens.name}' takes at most {lens.context_length}."
        )
    return torch.tensor([row[:least] for row in rows]), record


# ---- What is found.


def flow_findings(parts: Sequence[FlowPart]) -> list[Finding]:
    """Codes: TOLD (earlier tokens that one output gives away, beside random weights), LATER (what
    follows is seen).
    """
    findings = []
    random = {part.model: part.sites[-1] for part in parts if part.cut == "fresh"}
    for part in parts:
        if part.cut != "whole":
            continue
        last = part.sites[-1]
        null = random.get(part.model)
        finding = partial(Finding, level="notice", model=part.model, site=last.site)
        if (recovered := last.recoverable_of_earlier) is not None:
            beside = (
                "" if null is None else f" (with random weights {null.recoverable_of_earlier:.0%})"
            )
            among = "" if part.exhaustive else f" among the {part.candidates} candidates tried"
            text = (
                f"Given all other tokens, a single output of {last.site} identifies "
                f"{recovered:.0%} of the earlier tokens"
            )
            findings.append(
                finding(code="TOLD", sentence=f"{text}{among}{beside}.", value=recovered)
            )
        if (later := last.leak_of_later) > 0:
            text = (
                f"Outputs of {last.site} move with the tokens that follow them, by {later:.2g} of "
                "their norm."
            )
            findings.append(finding(code="LATER", sentence=text, value=later))
    return findings


def channel_findings(parts: Sequence[ChannelPart]) -> list[Finding]:
    """Codes: SHARED (tokens with one output)."""
    alert = partial(Finding, code="SHARED", level="alert")
    text = "tokens share their output with another"
    return [
        alert(
            model=part.model,
            site=part.site,
            value=float(n),
            sentence=f"{n} {text}: no decoder can distinguish them.",
        )
        for part in parts
        if (n := part.distances.duplicates)
    ]


def channel_of(
    lens: Lens,
    name: str,
    sites: tuple[str, ...],
    ids: Int[Tensor, "N T"],
    *,
    asked: Given,
    run: Run,
) -> ChannelPart:
    """The channel of one model and cut, at its deepest site: its codebook is that of the last token
    of the first prompt.
    """
    cut = variant(name, [variant(name, sites).on(lens).sites[-1]])
    tokens = affordable_tokens(lens, cut, ids.shape[1], asked)
    left_out = list[str]()
    rows = 512
    if tokens is not None:
        rows = 64
        left_out.append(
            f"The codebook of {lens.name}, {name} has {len(tokens)} tokens drawn from the "
            f"vocabulary of {lens.vocabulary_size}: distances to the nearest other token are "
            "upper bounds, and so is what is decoded."
        )
        run.announce(left_out[0])
    book = codebook(
        lens, cut, ids[0, :-1].tolist(), tokens=tokens, rows=rows, progress=run.progress
    )
    run.progress(f"{lens.name}, {name} · noise", 1, 2, "steps")
    noisy = noise_accuracy(book, noises=asked["noise"], seed=asked["seed"])
    return ChannelPart(
        model=lens.name,
        cut=name,
        site=cut.sites[0],
        vocabulary=len(book),
        width=book.shape[1],
        distances=distances(book),
        noise=noisy,
        bounds=[channel_bound(book, level) for level in sorted({row.noise for row in noisy})],
        left_out=left_out,
    )


def affordable_tokens(
    lens: Lens, cut: Slice, length: int, asked: Given
) -> Int[Tensor, " C"] | None:
    """The tokens of a codebook that a quarter of the budget has room for, drawn and in order; None:
    all of them. A code word costs a row of `length` tokens, or one token behind a cached prefix;
    all pairs are compared.
    """
    body = multiplications(lens, cut.sites)
    pair = 2.0 * lens.width(cut.sites[0])
    pairs = affordable(lens, pair, 0.25)
    if lens.vocabulary_size <= min(affordable(lens, length * body, 0.25), pairs**0.5):
        return None
    row = 1 if can_cache(cut.but(tokens="-1").on(lens)) else length
    count = max(2, min(affordable(lens, row * body, 0.25), int(pairs**0.5), lens.vocabulary_size))
    return (
        torch.randperm(
            lens.vocabulary_size, generator=torch.Generator().manual_seed(asked["seed"])
        )[:count]
        .sort()
        .values
    )


P = TypeVar("P")


@verb("flow")
def run(
    run: Run,
    models: ModelsLike,
    prompt: Prompts = None,
    *,
    text: Annotated[TextLike | None, TEXT] = None,
    windows: WindowCount = None,
    length: Length = None,
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
    ignore: Ignore = None,
    baseline: Baseline = None,
    out: Out = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    seed: Seed = 0,
    progress: Progressing = None,
    command: CommandLine = None,
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

    Raises BadInput for no prompt, a prompt of one token, a site or cut that is not there.

    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> lens = Lens(GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=2, n_head=2)))
    >>> found = run(lens, [3, 1, 4, 1, 5])
    >>> found.arrays["leak"].shape, bool(found.arrays["leak"][1][4, 0] == 0)
    ((2, 5, 5), True)
    """
    asked = Given(locals())
    if asked["candidates"] is not None and not recover:
        raise BadInput("--candidates is not used without --recover.")
    compared = compare(models, asked, run)
    measured = compared.each(run, MeasuredFlow, partial(measure_flow, asked=asked, run=run))
    arrays = dict[str, Float32[np.ndarray, "sites T T"]]()
    for number, item in enumerate(measured):
        arrays |= {
            f"{name}/{number}": np.array(values, np.float32)
            for name, values in item.matrices.items()
        }
    parts = [item.part for item in measured]
    matrices = measured[0].matrices
    first = parts[0]
    return FlowResult(
        site=first.sites[-1].site,
        sites=[entry.site for entry in first.sites],
        tokens=first.tokens,
        leak=means(np.array(matrices["leak"][-1])),
        recoverable=means(np.array(matrices["recoverable"][-1])) if recover else None,
        prompts=len(compared.ids[0]),
        length=int(compared.ids[0].shape[1]),
        parts=parts,
        findings=flow_findings(parts),
        protocol=run.protocol(
            text=compared.text, device=str(compared.lenses[0].device), notes=upper_bounds(parts)
        ),
        models=compared.records,
        arrays=arrays | {name: arrays[f"{name}/0"] for name in matrices},
    )


@verb("channel")
def channel(
    run: Run,
    models: ModelsLike,
    prompt: Prompts = None,
    *,
    text: Annotated[TextLike | None, TEXT] = None,
    windows: WindowCount = None,
    length: Length = None,
    at: SiteGlobs = "block.*",
    cuts: Cuts = "whole",
    null: RandomWeights = False,
    noise: Annotated[
        float | Sequence[float],
        Option(
            "Standard deviations of the noise, in units of a feature's; comma-separated.", above=0
        ),
    ] = (0.25, 0.5, 1.0, 2.0),
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
) -> ChannelResult:
    """Measure how narrow and noisy the channel from a token to its output may be: width, noise,
    capacity.

    At the deepest site of each model and cut: how far the outputs of all tokens lie apart, and how
    many are decoded through noise from how many features.

    `models`, `prompt` and `text` are as for `run`.

    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> lens = Lens(GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=2, n_head=2)))
    >>> found = channel(lens, [3, 1, 4, 1, 5])
    >>> found.parts[0].vocabulary, found.parts[0].distances.duplicates
    (50, 0)
    """
    asked = Given(locals())
    if not asked["noise"]:
        raise BadInput("Give --noise at least one number.")
    compared = compare(models, asked, run)
    parts = compared.each(run, ChannelPart, partial(channel_of, asked=asked, run=run))
    notes = [note for part in parts for note in part.left_out]
    return ChannelResult(
        prompts=len(compared.ids[0]),
        length=int(compared.ids[0].shape[1]),
        parts=parts,
        findings=channel_findings(parts),
        protocol=run.protocol(
            text=compared.text, device=str(compared.lenses[0].device), notes=notes
        ),
        models=compared.records,
    )


@dataclass(frozen=True)
class FlowComparison:
    """The models that are compared, what is read of each and where, and which cuts are made."""

    lenses: list[Lens]
    ids: list[Int[Tensor, "N T"]]
    sites: list[tuple[str, ...]]
    cuts: list[str]
    text: TextRecord | None
    records: list[ModelRecord]

    def each(
        self, run: Run, kind: type[P], measure: Callable[[Lens, str, tuple[str, ...], Tensor], P]
    ) -> list[P]:
        return [
            run.unit(f"{number} {cut}", kind, partial(measure, lens, cut, sites, ids))
            for number, (lens, sites, ids) in enumerate(
                zip(self.lenses, self.sites, self.ids, strict=True)
            )
            for cut in self.cuts
        ]


def compare(models: ModelsLike, asked: Given, run: Run) -> FlowComparison:
    """Load the models, read the prompts, cut them to the shortest, and name what a resumed run
    depends on.
    """
    check(asked)
    lenses = list(open_models(models, asked.chosen(Loading)))
    sites = [find_sites(lens, asked["at"]) for lens in lenses]
    for lens, at in zip(lenses, sites, strict=True):
        for name in cut_names(asked):
            # a cut that cannot be made is refused before any is measured
            variant(name, at).on(lens)
    read = [find_prompts(lens, asked) for lens in lenses]
    shortest = min(int(ids.shape[1]) for ids, _ in read)
    prompts = [ids[:, :shortest] for ids, _ in read]
    for number, (lens, ids) in enumerate(zip(lenses, prompts, strict=True), 1):
        lens.identify(run, f"model {number}")
        run.identify(f"the prompts of model {number}", ids.tolist())
    return FlowComparison(
        lenses, prompts, sites, cut_names(asked), read[0][1], [lens.provenance() for lens in lenses]
    )


@dataclass(frozen=True)
class MeasuredFlow:
    """A finished part as a run stores it: its summaries, and its matrices as plain numbers."""

    part: FlowPart
    matrices: dict[str, list[list[list[float]]]]


def measure_flow(
    lens: Lens,
    name: str,
    sites: tuple[str, ...],
    ids: Int[Tensor, "N T"],
    *,
    asked: Given,
    run: Run,
) -> MeasuredFlow:
    def progress(stage: str, done: int, total: int | None = None, unit: str = "rows") -> None:
        run.progress(f"{lens.name}, {name}, {stage}", done, total, unit)

    cut = variant(name, sites)
    each = {
        "leak": leaks(lens, cut, ids, trials=asked["trials"], seed=asked["seed"], progress=progress)
    }
    matrices = {"leak": each["leak"].mean(0)}
    again = None
    if asked["recover"]:
        most = asked["candidates"]
        work = multiplications(lens, cut.on(lens).sites)
        room = affordable(lens, len(ids) * computed_tokens(lens, cut, int(ids.shape[1])) * work)
        if most is None and room < lens.vocabulary_size:
            most = max(2, room)
            run.announce(
                f"Recovery tries {most} of {lens.vocabulary_size} tokens in each place, the "
                f"nearest and random ones: all would take {lens.vocabulary_size / most:.0f} times "
                "as long (--candidates)."
            )
        # progress within a minute, and little memory
        rows = 32 if ids.shape[1] * work > 1e9 else 256
        again = recovery(
            lens, cut, ids, most=most, seed=asked["seed"], rows=rows, progress=progress
        )
        each["recoverable"] = again.recovered
        matrices |= {"recoverable": again.recoverable, "margin": again.margin}
    measured = list(cut.on(lens).sites)
    part = FlowPart(
        model=lens.name,
        cut=name,
        slice=str(cut.but(sites=(measured[-1],))),
        tokens=[f"#{k}" for k in range(ids.shape[1])]
        if len(ids) > 1
        else display(lens.tokenizer, ids[0].tolist()),
        sites=[
            summary(site, {key: values[:, k] for key, values in each.items()})
            for k, site in enumerate(measured)
        ],
        noise=None if again is None else again.noise.tolist(),
        candidates=None if again is None else again.candidates,
        exhaustive=None if again is None else again.exhaustive,
    )
    return MeasuredFlow(part, {key: values.tolist() for key, values in matrices.items()})


def upper_bounds(parts: Sequence[FlowPart]) -> list[str]:
    """What has to be said where not every token was tried."""
    return [
        f"{part.model}, {part.cut}: recovery tried {part.candidates} tokens in each place, half "
        "of them nearest to the true one by their input vectors, half drawn, so that the share "
        "recovered is an upper bound. Where a token is recovered in all prompts, at most "
        f"{untried(part.candidates - part.candidates // 2):.2g} of the tokens that are not among "
        "the nearest fit as well (95 %, each place and output by itself)."
        for part in parts
        if part.exhaustive is False and part.candidates is not None
    ]


def means(matrix: Float64[np.ndarray, "T T"]) -> MatrixMeans:
    """The means over own (i = j), earlier (i < j) and later (i > j) tokens."""
    before = np.triu_indices(len(matrix), 1)
    behind = np.tril_indices(len(matrix), -1)
    return MatrixMeans(
        float(np.diag(matrix).mean()), float(matrix[before].mean()), float(matrix[behind].mean())
    )


def summary(site: str, each: dict[str, Num[np.ndarray, "N T T"]]) -> FlowSummary:
    numbers = dict[str, float]()
    intervals = dict[str, list[float] | None]()
    for kind, values in each.items():
        numbers |= {
            f"{kind}_{part}": value for part, value in asdict(means(values.mean(0))).items()
        }
        single = [asdict(means(matrix)) for matrix in values]
        most = 1.0 if kind == "recoverable" else None
        for part in single[0]:
            own = np.array([row[part] for row in single])
            intervals[f"{kind}_{part}_interval"] = clustered(
                partial(_mean, own), len(own), bounds=(0.0, most)
            )
    return FlowSummary(site, **numbers, **intervals)  # type: ignore[arg-type]


def _mean(values: Float64[np.ndarray, " N"], chosen: Int[np.ndarray, " n"]) -> float:
    return float(values[chosen].mean())
