"""The models of `compare --changes`: a base, a fine-tune of it, and control changes of the base."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headscan.comparison.control_changes import (
    Control,
    ModelChange,
    RandomChange,
    control_fine_tunes,
)
from headscan.comparison.subjects import compared_subjects
from headscan.model import Lens
from headscan.model.adapters import is_adapter, with_adapter
from headscan.model.load import Preparation
from headscan.model.partwise import PartwiseModel
from headscan.run import BadInput, Run
from headscan.scanner.sources import Subject
from headscan.states import SourceLike, SourcesLike, VectorSource, given_sources
from headscan.states.plan import ReadingPlan
from headscan.text import Windows
from headscan.text.source import TextLike
from headscan.text.spelling import display

DEFAULT_CONTROLS = 9
"""Control changes where --draws is not given."""

FEWEST_CONTROLS = 4
"""Fewer controls give no limit."""

GIVEN = "control fine-tunes"
TRAINED = "fine-tunes on --control-text"
RANDOM = "random changes"

TRAINED_BYTES = 2 * 2**30
"""Control fine-tunes may take so much memory together."""

TRAINED_TOKENS = 2**18
"""Tokens of the control text that are read at most."""


@dataclass(frozen=True, kw_only=True)
class ChangesPlan:
    """The options of `compare --changes`.

    Attributes:
        controls: control fine-tunes of the base; none: random changes.
        control_text: a text on which control fine-tunes are made.
        draws: the number of control changes that are drawn or made.
    """

    controls: SourcesLike | None = None
    control_text: TextLike | None = None
    draws: int = DEFAULT_CONTROLS


@dataclass(frozen=True)
class ChangedModels:
    """The base, the fine-tune and the control changes."""

    base: PartwiseModel
    tuned: PartwiseModel
    controls: list[Control]
    kind: str
    shared: int
    notes: list[str]

    @classmethod
    def models(
        cls, sources: SourcesLike, plan: ReadingPlan, options: ChangesPlan, run: Run
    ) -> "ChangedModels":
        """Open the models; the base is read last, so that only one is in memory as a whole.

        Raises:
            BadInput: where there are not two models, or one is no fine-tune of the other.
        """
        given = [] if options.controls is None else given_sources(options.controls)
        listed = given_sources(sources)
        if len(listed) != 2:
            raise BadInput("Name two models for --changes: the base, and its fine-tune.")
        if given and options.control_text is not None:
            raise BadInput("Give --controls or --control-text, and not both.")
        base_subject, others = _opened([*listed, *given], plan, run)
        base = PartwiseModel(base_subject.load())
        for other in others:
            _check_related(base, other)
        tuned, *control_models = others

        controls: list[Control] = [ModelChange(model) for model in control_models]
        kind = GIVEN
        if options.control_text is not None:
            control_models = _trained(base.lens, plan, options, run)
            controls = [ModelChange(model) for model in control_models]
            kind = TRAINED
        elif not controls:
            seeds = range(options.draws)
            controls = [RandomChange(plan.seed * 1000 + number) for number in seeds]
            kind = RANDOM
        if len(controls) < FEWEST_CONTROLS:
            raise BadInput(
                f"Limits need {FEWEST_CONTROLS} control changes at least, not {len(controls)}."
            )
        sizes = (base.lens.width("head"), tuned.lens.width("head"))
        notes = []
        if sizes[0] != sizes[1]:
            notes.append(
                f"The vocabularies have {sizes[0]:,} and {sizes[1]:,} tokens: the first "
                f"{min(sizes):,} are compared, and their probabilities add up to 1."
            )
        return cls(base, tuned, controls, kind, min(sizes), notes)


def _opened(
    sources: Sequence[SourceLike], plan: ReadingPlan, run: Run
) -> tuple[Subject, list[PartwiseModel]]:
    """Return the base, not read yet, and the other models; adapters are those of the base."""
    models = [sources[0] if is_adapter(source) else source for source in sources]
    base, *subjects = compared_subjects(models, plan, run)
    for subject in [base, *subjects]:
        if isinstance(subject.ready, VectorSource):
            raise BadInput("Stored states have no predictions: --changes is for models.")
    others = []
    for subject, source in zip(subjects, sources[1:], strict=True):
        others.append(_spilled(subject, source if is_adapter(source) else None))
    return base, others


def _spilled(subject: Subject, adapter: SourceLike | None) -> PartwiseModel:
    """Return a model whose blocks are in memory only while they run, unless the caller holds it.

    `adapter`: the folder of an adapter of the subject, which is merged into it.
    """
    lens = subject.load()
    ours = isinstance(subject.ready, Preparation)
    if adapter is None:
        return PartwiseModel(lens, spill=ours)
    merged = with_adapter(lens, Path(str(adapter)), copy=not ours)
    return PartwiseModel(merged, spill=True)


def _check_related(base: PartwiseModel, other: PartwiseModel) -> None:
    """Raise BadInput where a model is no fine-tune of the base."""
    shapes = []
    for model in (base, other):
        shapes.append((len(model.blocks), model.lens.width("embedding")))
    if shapes[0] != shapes[1]:
        raise BadInput(
            f"{other.lens.name} is no fine-tune of {base.lens.name}: they have {shapes[1][0]} and "
            f"{shapes[0][0]} blocks of width {shapes[1][1]} and {shapes[0][1]}."
        )


def check_tokens(base: Lens, tuned: Lens, token_ids: list[int], shared: int) -> None:
    """Raise BadInput where an id of the text is not the same token in both models."""
    same = max(token_ids) < shared
    if same and base.tokenizer is not None and tuned.tokenizer is not None:
        before = display(base.tokenizer, token_ids)
        same = before == display(tuned.tokenizer, token_ids)
    if not same:
        raise BadInput(
            f"{base.name} and {tuned.name} have different tokens for the ids of this text: their "
            "predictions cannot be compared."
        )


def _trained(lens: Lens, plan: ReadingPlan, options: ChangesPlan, run: Run) -> list[PartwiseModel]:
    """Return control fine-tunes that are made here on the control text."""
    size = sum(weight.nbytes for weight in lens.model.parameters())
    if size * (options.draws + 3) > TRAINED_BYTES:
        raise BadInput(
            f"{options.draws} fine-tunes of {lens.name} take more than 2 GiB: make them "
            "elsewhere and name them with --controls, or leave out --control-text for random "
            "changes."
        )
    assert options.control_text is not None
    context = plan.windowing.context or 128
    windows = Windows(
        options.control_text,
        lens.require_tokenizer(),
        context,
        documents=plan.reading.documents,
        field=plan.reading.field,
        max_tokens=TRAINED_TOKENS,
    )
    rows = np.stack([window.ids for window in windows])
    fine_tunes = control_fine_tunes(lens, rows, options.draws, plan.seed, run.progress)
    return [PartwiseModel(fine_tune) for fine_tune in fine_tunes]
