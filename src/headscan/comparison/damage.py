"""`compare --damage`: the damage of each part of a second model (rounded, fine-tuned), measured by
exchanging parts between the two models.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch

from headscan.comparison.alignment import Integers
from headscan.comparison.clusters import Statistic
from headscan.comparison.damage_findings import damage_findings
from headscan.comparison.damage_tail import perplexity_cells, tail_rows, worst_contexts
from headscan.comparison.exchange import (
    Divergences,
    Exchange,
    ExchangeWindows,
    Models,
    Path,
    sweep,
)
from headscan.comparison.keeping import Keeping
from headscan.comparison.result import DamagedContext, DamageResult
from headscan.comparison.subjects import Against, compared_subjects, is_loaded_bits
from headscan.model import Lens
from headscan.model.identity import tokenizer_identity
from headscan.model.load import Preparation
from headscan.model.partwise import PartwiseModel
from headscan.model.rounding import RoundingName
from headscan.run import BadInput, Row, Run
from headscan.run.findings import named
from headscan.scanner.sources import Subject
from headscan.states import ModelSource, SourcesLike, VectorSource
from headscan.states.plan import ReadingPlan
from headscan.statistics.uncertainty import Cells, Floats

DEFAULT_TOKENS = 4096
"""Tokens that are read where --max-tokens is not given."""


@dataclass(frozen=True, kw_only=True)
class DamagePlan:
    """The options of `compare --damage`.

    Attributes:
        sample: tokens of the windows on which parts are exchanged.
        against: the rounding whose damage is measured; None where two models are named.
        keep: bytes to spend on parts that stay as in the first model.
        budget: bytes of the blocks of a mixed recipe.
        formats: those that the recipe chooses from.
        limit: divergence in nats a token that is too much.
        fail_on: globs of codes of findings at which the command line ends with status 3.
    """

    sample: int
    against: Against | None = None
    keep: float | None = None
    budget: float | None = None
    formats: Sequence[str] = ()
    limit: float | None = None
    fail_on: Sequence[str] = ()

    @property
    def holds_out(self) -> bool:
        """Return whether choices are measured on windows that they were not made by."""
        return bool(self.keep or self.budget)


def measure_damage(
    sources: SourcesLike, plan: ReadingPlan, options: DamagePlan, run: Run
) -> DamageResult:
    """Return the damage of the second model: one pass through all parts of both models.

    With `keep`, a second pass measures which parts are best kept as in the first model.
    """
    models, names = _opened_models(sources, plan, options.against, run)
    first, second = models
    source = damage_source(first.lens, names[0], plan)
    text = DamageText.read(source, plan, options)

    exchange = Exchange(models)
    whole = text.windows([exchange.first, exchange.second])
    sample = whole.part(text.sampled, exchange.paths())
    states = _StateDamage(exchange, whole, sample)
    (everywhere, exchanged), cells = sweep(
        models, [whole, sample], run, "damage", states.after_part
    )
    damage = Damage(exchange, sample, exchanged)
    rows = damage.rows(cells)
    everywhere_second = everywhere[exchange.second]
    predicted = len(everywhere_second.table) // len(whole.ids)
    clusters = whole.clusters(predicted)
    totals = {
        "whole": Row(
            whole.means(everywhere_second.columns()) | perplexity_cells(everywhere_second, clusters)
        ),
        "sample": Row(sample.means(damage.total.columns())),
    }
    contexts: list[DamagedContext] = []
    if exchange.changed:
        contexts = worst_contexts(models, exchange.second, whole, everywhere_second)
    choices: list[Row] = []
    if options.keep and exchange.changed:
        held_out = whole.part(text.held_out(sample.documents), [exchange.first])
        gains = {number: damage.gain(number) for number in exchange.changed}
        total = damage.total.table.mean(0)
        choices = Keeping(exchange, gains, total, options.keep, run).rows(held_out)

    findings = damage_findings(rows, totals["whole"], choices, options.limit, names[1])
    records = [first.lens.provenance(), replace(second.record, name=names[1])]
    notes = [
        f"Parts were exchanged on {len(text.sampled)} of {len(text.ids)} windows, drawn with the "
        "seed. Intervals: by documents, or windows."
    ]
    if second.formats:
        notes.append(
            f"Matrices of blocks, {second.matrix_share:.1%} of the weights of blocks, became "
            f"{', '.join(second.formats)}; the rest stays."
        )
    protocol = run.protocol(
        text=source.text(), device=records[0].device, dtype=records[0].dtype, notes=notes
    )
    return DamageResult(
        protocol=protocol,
        models=records,
        damage=rows,
        totals=totals,
        tail=tail_rows(everywhere_second, clusters),
        contexts=contexts,
        shape=[Row(row) for key, row in cells.items() if key.startswith("shape")],
        choices=choices,
        findings=findings,
        tokens=len(everywhere_second.table),
        sampled=len(damage.total.table),
        sums=damage.sums(),
        failed=named(findings, options.fail_on),
    )


def damage_source(lens: Lens, name: str, plan: ReadingPlan) -> ModelSource:
    """Return the text as a model reads it; 4,096 tokens of it where nothing else is planned."""
    max_tokens = plan.reading.max_tokens or DEFAULT_TOKENS
    limited = replace(plan, reading=plan.reading.but(max_tokens=max_tokens))
    return Subject(name, lens, limited, Run.quiet(), renamed=False).reading(lens, plan.text)


@dataclass(frozen=True)
class DamageText:
    """The complete windows of the text, and the order in which they are drawn for the sample.

    Attributes:
        ids, documents: [W, T], of the tokens.
        skipped: positions left out at the beginning of each window.
        added: those of them that stand in front of the text.
        order: the numbers of the windows in the order of the draw.
        count: windows of the sample.
    """

    ids: Integers
    documents: Integers
    skipped: int
    added: int
    order: Integers
    count: int
    device: torch.device

    @classmethod
    def read(cls, source: ModelSource, plan: ReadingPlan, options: DamagePlan) -> "DamageText":
        """Read the text; raise BadInput where it has too few windows."""
        length = source.context
        skipped = plan.windowing.skip_first
        ids, token_documents = source.whole_windows()
        windows = len(ids)
        available = windows // 2 if options.holds_out else windows
        count = min(max(1, options.sample // length), available)
        if not count or skipped > length - 2:
            raise BadInput(
                f"The text has too few windows of {length} tokens, or --skip-first leaves nothing "
                "of them."
            )
        return cls(
            ids=ids,
            documents=token_documents,
            skipped=skipped + len(source.frame.front),
            added=len(source.frame.front),
            order=np.random.default_rng(plan.seed).permutation(windows),
            count=count,
            device=source.lens.device,
        )

    @property
    def sampled(self) -> Integers:
        """Return the windows on which parts are exchanged."""
        return self.order[: self.count]

    def windows(self, paths: list[Path]) -> ExchangeWindows:
        """Return all windows, to be read on these paths."""
        ids = torch.from_numpy(self.ids).to(self.device)
        return ExchangeWindows(
            ids, self.documents, self.skipped, list(dict.fromkeys(paths)), added=self.added
        )

    def held_out(self, documents: Integers) -> Integers:
        """Return as many windows as the sample has, none of them in it.

        They have none of the sample's `documents` where enough such windows are left.
        """
        others = self.order[self.count :]
        sampled_documents = set(documents.ravel().tolist())
        fresh = []
        for window in others:
            if sampled_documents.isdisjoint(self.documents[window].tolist()):
                fresh.append(window)
        enough = len(fresh) >= self.count
        return np.array(fresh if enough else others)[: self.count]


@dataclass
class _StateDamage:
    """The errors and shapes of the states after each part, while they are in memory."""

    exchange: Exchange
    whole: ExchangeWindows
    sample: ExchangeWindows

    def after_part(self, number: int) -> dict[str, Cells]:
        """Return the cells of a part by "MODE NUMBER", and its site's shape by "shape NUMBER"."""
        exchange = self.exchange
        done = number + 1
        first = exchange.first[:done]
        second = exchange.second[:done]
        cells: dict[str, Cells] = {}
        if number in exchange.changed:
            isolated = exchange.isolated(number)[:done]
            cells[f"isolated {number}"] = self.sample.pair(first, isolated).errors()
            cells[f"accumulated {number}"] = self.whole.pair(first, second).errors()
        if any(second):
            site = exchange.models[0].parts[number]
            pair = self.whole.pair(first, second)
            cells[f"shape {number}"] = pair.shape(site) | pair.bits()
        return cells


class Damage:
    """The damage of each changed part, on windows where parts were exchanged.

    Attributes:
        total: the divergences of the second model.
    """

    def __init__(
        self, exchange: Exchange, sample: ExchangeWindows, divergences: dict[Path, Divergences]
    ) -> None:
        self.exchange = exchange
        self.sample = sample
        self.divergences = divergences
        self.total = divergences[exchange.second]

    def isolated(self, number: int) -> Divergences:
        """Return the divergences of the first model with one part of the second."""
        return self.divergences[self.exchange.isolated(number)]

    def accumulated(self, number: int) -> Divergences:
        """Return the divergences of the first model with the second's parts up to this one."""
        return self.divergences[self.exchange.accumulated(number)]

    def restored(self, number: int) -> Divergences:
        """Return the divergences of the second model with one part of the first."""
        return self.divergences[self.exchange.restored(number)]

    def gain(self, number: int) -> Floats:
        """Return the mean divergences [6] that disappear when a part is the first model's."""
        gain: Floats = (self.total.table - self.restored(number).table).mean(0)
        return gain

    def rows(self, state_cells: dict[str, Cells]) -> list[Row]:
        """Return two rows for each part: exchanged alone, and with all parts before it.

        `state_cells`: the errors of states by "MODE NUMBER".
        """
        rows = []
        before = np.zeros_like(self.total.table)
        for number in self.exchange.changed:
            isolated = self.isolated(number)
            accumulated = self.accumulated(number)
            rows.append(
                Row(
                    self._leading(number, "isolated")
                    | self.sample.means(isolated.columns())
                    | self._share(isolated.kl)
                    | self._restored_cells(number)
                    | state_cells.get(f"isolated {number}", {})
                )
            )
            rows.append(
                Row(
                    self._leading(number, "accumulated")
                    | self.sample.means(accumulated.columns())
                    | self._share((accumulated.table - before)[:, 0])
                    | state_cells.get(f"accumulated {number}", {})
                )
            )
            before = accumulated.table
        return rows

    def _leading(self, number: int, mode: str) -> Cells:
        """Return the part of a row, its mode, and its size in both models."""
        first, second = self.exchange.models
        part = self.exchange.changed[number]
        return {
            "block": part,
            "mode": mode,
            "bytes_first": first.bytes[part],
            "bytes_second": second.bytes[part],
        }

    def _share(self, added: Floats) -> Cells:
        """Return the share of the total divergence that a part adds (nats a token)."""
        sums = np.stack([added, self.total.kl], axis=1)
        tokens = len(sums) // len(self.sample.ids)
        return self.sample.clusters(tokens).cells(sums, {"share": Statistic(_ratio)})

    def _restored_cells(self, number: int) -> Cells:
        """Return the divergences that remain when a part is the first model's, and the gain."""
        restored = self.restored(number)
        return self.sample.means(
            {
                "restored_kl": restored.kl,
                "restored_loss_change": restored.loss_change,
                "gain": self.total.kl - restored.kl,
            }
        )

    def sums(self) -> dict[str, float]:
        """Return the sums of the parts' divergences by mode, and the total (nats a token)."""
        numbers = self.exchange.changed
        return {
            "isolated": float(sum(self.isolated(number).kl.mean() for number in numbers)),
            "total": float(self.total.kl.mean()),
            "restored": float(sum(self.gain(number)[0] for number in numbers)),
        }


def _ratio(sums: Floats) -> float | None:
    return float(sums[0] / sums[1]) if sums[1] > 0 else None


def _opened_models(
    sources: SourcesLike, plan: ReadingPlan, against: Against | None, run: Run
) -> tuple[Models, list[str]]:
    """Return both models, checked, and their names.

    The second is read first, and its blocks are put aside before the first is read.
    """
    subjects = compared_subjects(sources, plan, run, against)
    rounding = None
    if against is not None and not is_loaded_bits(against):
        rounding = cast(RoundingName, against)
    _check_subjects(subjects, against, models=1 if rounding else 2)
    names = [subject.name for subject in subjects]
    if rounding:
        names.append(f"{names[0]} ({rounding})")
    spill = rounding is None and isinstance(subjects[-1].ready, Preparation)
    second = PartwiseModel(subjects[-1].load(), rounding=rounding, spill=spill)
    first = PartwiseModel(subjects[0].load())
    _check_exchangeable(first, second)
    return (first, second), names


def _check_subjects(subjects: list[Subject], against: Against | None, *, models: int) -> None:
    """Raise BadInput unless there are so many models, and no stored states.

    A live model cannot be loaded once more in 8 or 4 bits.
    """
    live = is_loaded_bits(against) and not isinstance(subjects[0].ready, Preparation)
    stored = any(isinstance(subject.ready, VectorSource) for subject in subjects)
    if live or stored or len(subjects) != models:
        raise BadInput(
            "Name two models for --damage, or one (by name) and --against; stored states have no "
            "blocks."
        )


def _check_exchangeable(first: PartwiseModel, second: PartwiseModel) -> None:
    """Raise BadInput where parts of two models do not fit together."""
    first_shape = _shape(first)
    second_shape = _shape(second)
    same_tokenizer = tokenizer_identity(first.lens.tokenizer) == tokenizer_identity(
        second.lens.tokenizer
    )
    if first_shape != second_shape or not same_tokenizer:
        raise BadInput(
            f"Tokenizers, or blocks, width and vocabulary ({first_shape}, {second_shape}) differ: "
            "nothing to exchange."
        )


def _shape(model: PartwiseModel) -> tuple[int, int, int]:
    """Return the blocks, width and vocabulary of a model."""
    return len(model.blocks), model.lens.width("embedding"), model.lens.width("head")
