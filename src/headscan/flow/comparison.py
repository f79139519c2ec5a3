"""Options, cuts and compared models, which the verbs `flow` and `channel` share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, TypeVar

import torch
from jaxtyping import Int
from torch import Tensor
from typing_extensions import TypeAliasType

from headscan.model import Lens
from headscan.model.framed import beginning, refuse_start, with_beginning
from headscan.model.lens import ModelsLike, open_models
from headscan.model.settings import Loading
from headscan.model.slicing import Slice
from headscan.run import BadInput, ModelRecord, Run, TextRecord, names_in
from headscan.run.settings import Option
from headscan.text.prompts import PromptsLike, are_texts, read_prompts
from headscan.text.source import StartName, TextLike
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

WINDOWS = 8
LENGTH = 16
T = TypeVar("T")

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


def variant(name: str, sites: Sequence[str]) -> Slice:
    """Return the slice of a cut, or of several cuts joined with +, that ends at `sites`.

    Raises:
        BadInput: for a name that is no cut.

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


def cut_names(cuts: str | Sequence[str], *, null: bool) -> list[str]:
    """Return the names of the cuts, with the random-weight control where `null` asks for it.

    Raises:
        BadInput: where no cut is named, or one that there is not.

    >>> cut_names("whole,attention", null=True)
    ['whole', 'attention', 'fresh']
    """
    names = names_in(cuts)
    if null:
        names.append("fresh")
    if not names:
        raise BadInput(f"Name at least one cut: {', '.join(VARIANTS)}.")
    for name in names:
        variant(name, ["block.0"])
    return list(dict.fromkeys(names))


def find_sites(lens: Lens, at: str | Sequence[str]) -> tuple[str, ...]:
    """Return the sites that the globs match; of an encoder-decoder those of the encoder.

    All tokens of an encoder see the same tokens, so that outputs can be compared.
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


@dataclass(frozen=True)
class PromptInputs:
    """Where prompts come from.

    Attributes:
        prompt: texts or token ids.
        text: a text whose beginning is cut into prompts, too.
        windows: prompts taken from the text; None: 8.
        length: tokens of each prompt; None: those of the shortest, 16 of a text.
        start: how texts begin; token ids are read as they are.
    """

    prompt: PromptsLike | None
    text: TextLike | None
    windows: int | None
    length: int | None
    start: StartName

    def __post_init__(self) -> None:
        if self.prompt is None and self.text is None:
            raise BadInput("Give a prompt, or a text that prompts are taken from.")
        if self.windows is not None and self.text is None:
            raise BadInput("--windows is not used without --text: prompts are taken as they are.")

    def read(self, lens: Lens) -> tuple[Int[Tensor, "N T"], TextRecord | None]:
        """Return the token ids, each prompt cut to the shortest, and the record of the text.

        Raises:
            BadInput: for a prompt of one token, or one longer than the model reads.
        """
        rows, record = self._rows(lens)
        lengths = [len(row) for row in rows]
        if self.length is not None:
            lengths.append(self.length)
        shortest = min(lengths)
        if shortest < 2:
            raise BadInput(
                "A prompt of one token has no other token that its output could depend on; give at "
                "least two."
            )
        if lens.context_length is not None and shortest > lens.context_length:
            raise BadInput(
                f"The prompt has {shortest} tokens, but '{lens.name}' takes at most "
                f"{lens.context_length}."
            )
        return torch.tensor([row[:shortest] for row in rows]), record

    def _rows(self, lens: Lens) -> tuple[list[list[int]], TextRecord | None]:
        rows: list[list[int]] = []
        record = None
        if self.prompt is not None:
            # prompts are cut before their length counts
            limits = replace(lens.limits, context=None)
            prompts = read_prompts(self.prompt, lens.tokenizer, limits, special=False)
            rows += [list(prompt.ids) for prompt in prompts]
        if self.text is not None:
            count = self.windows or WINDOWS
            size = self.length or LENGTH
            tokenizer = lens.require_tokenizer()
            windows = Windows(self.text, tokenizer, size, max_tokens=count * size)
            rows += [window.ids.tolist() for window in windows]
            record = with_beginning(windows.record(), tokenizer, self.start)
        return rows, record

    def opened(self, models: ModelsLike, loading: Loading) -> list[Lens]:
        """Return the models, which read texts from their start tokens on."""
        lenses = list(open_models(models, loading))
        if self.text is None and not are_texts(self.prompt):
            return lenses
        return [beginning(lens, self.start) for lens in lenses]


@dataclass(frozen=True)
class ComparedModel:
    """A model with the prompts that it reads and the sites that are looked at."""

    lens: Lens
    token_ids: Int[Tensor, "N T"]
    sites: tuple[str, ...]


@dataclass(frozen=True)
class FlowComparison:
    """The models that are compared, the cuts of each, and the text that prompts come from."""

    models: list[ComparedModel]
    cuts: list[str]
    text: TextRecord | None

    @property
    def records(self) -> list[ModelRecord]:
        """Return what each model is."""
        return [model.lens.provenance() for model in self.models]

    @property
    def prompts(self) -> int:
        """Return the number of prompts."""
        return len(self.models[0].token_ids)

    @property
    def length(self) -> int:
        """Return the number of tokens of each prompt."""
        return int(self.models[0].token_ids.shape[1])

    @property
    def device(self) -> str:
        """Return the device of the first model."""
        return str(self.models[0].lens.device)

    def measure_each(
        self, run: Run, kind: type[T], measure: Callable[[ComparedModel, str], T]
    ) -> list[T]:
        """Return `measure(model, cut)` of every model and cut; finished ones come from a resume."""
        results = []
        for number, model in enumerate(self.models):
            for cut in self.cuts:
                results.append(run.unit(f"{number} {cut}", kind, partial(measure, model, cut)))
        return results


def compared_models(
    models: ModelsLike,
    prompts: PromptInputs,
    loading: Loading,
    at: str | Sequence[str],
    cuts: Sequence[str],
    run: Run,
) -> FlowComparison:
    """Load the models, read the prompts, cut them to the shortest, and identify the run's inputs.

    Raises:
        BadInput: for a cut that cannot be made; it is refused before anything is measured.
    """
    lenses = prompts.opened(models, loading)
    sites = [find_sites(lens, at) for lens in lenses]
    for lens, matched in zip(lenses, sites, strict=True):
        refuse_start(run, lens, prompts.start)
        if lens.vocabulary_size < 2:
            raise BadInput(
                f"'{lens.name}' has a vocabulary of one token, which no output can tell from "
                "another."
            )
        for name in cuts:
            variant(name, matched).on(lens)

    read = [prompts.read(lens) for lens in lenses]
    shortest = min(int(token_ids.shape[1]) for token_ids, _ in read)
    compared = []
    for lens, matched, (token_ids, _) in zip(lenses, sites, read, strict=True):
        compared.append(ComparedModel(lens, token_ids[:, :shortest], matched))
    for number, model in enumerate(compared, 1):
        model.lens.identify(run, f"model {number}")
        run.identify(f"the prompts of model {number}", model.token_ids.tolist())
    return FlowComparison(compared, list(cuts), text=read[0][1])
