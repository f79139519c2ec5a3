"""Two models run side by side, part by part, with parts of one put into the other.

A path says of each part which model it is taken from. All paths are run at once, and the states
that several paths share are computed once.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor

from headscan.comparison.alignment import Integers
from headscan.comparison.clusters import NOT_NEGATIVE, SHARE, Bounds, Clusters
from headscan.comparison.state_damage import StatePair
from headscan.model.partwise import PartwiseModel
from headscan.run import Run, plain
from headscan.statistics.uncertainty import Cells, Floats

LOGITS_AT_ONCE = 2**25
"""So many logits are in memory at once."""

LOGITS_IN_CACHE = 2**20
"""A CPU compares so many logits at once: more leave its cache and take five times as long."""

TOKENS_AT_ONCE = 2048
"""The states of so many tokens go through a block at once."""

Models: TypeAlias = tuple[PartwiseModel, ...]
"""The first model, and those that are compared with it."""

Path: TypeAlias = tuple[int, ...]
"""For each part of a model the number of the model that it is taken from, 0 for the first."""

BOUNDS: dict[str, Bounds] = {
    "kl": NOT_NEGATIVE,
    "kl_reverse": NOT_NEGATIVE,
    "top1_agreement": SHARE,
    "restored_kl": NOT_NEGATIVE,
}
"""The ranges of mean divergences by their names; others have no limits."""


class Exchange:
    """The paths on which parts of two models are exchanged.

    Attributes:
        changed: the parts whose weights differ, by their numbers.
        first, second: the paths of the models themselves.
    """

    def __init__(self, models: Models) -> None:
        first, second = models
        self.models = models
        self.depth = len(first.parts)
        self.changed: dict[int, str] = {}
        for number, part in enumerate(first.parts):
            if second.differs(first, part):
                self.changed[number] = part
        self.first = self.path(())
        self.second = self.path(self.changed)

    def path(self, numbers: Iterable[int]) -> Path:
        """Return the path of the first model with these parts of the second."""
        exchanged = set(numbers)
        return tuple(int(number in exchanged) for number in range(self.depth))

    def isolated(self, number: int) -> Path:
        """Return the path of the first model with one part of the second."""
        return self.path([number])

    def accumulated(self, number: int) -> Path:
        """Return the path of the first model with the second's parts up to this one."""
        return self.path(other for other in self.changed if other <= number)

    def restored(self, number: int) -> Path:
        """Return the path of the second model with one part of the first."""
        return self.keeping([number])

    def keeping(self, numbers: Iterable[int]) -> Path:
        """Return the path of the second model with these parts of the first."""
        return self.path(self.changed.keys() - set(numbers))

    def paths(self) -> list[Path]:
        """Return the paths of both models and those with each changed part exchanged."""
        paths = [self.first, self.second]
        for number in self.changed:
            paths += [self.isolated(number), self.restored(number), self.accumulated(number)]
        return list(dict.fromkeys(paths))


@dataclass(frozen=True)
class Divergences:
    """The differences of a model's predictions from the first model's.

    `table` [tokens, 6]: KL of the first model from this one, KL the other way round, the rise of
    the loss (nats a token), whether the likeliest token is the same, the change of the probability
    of the token that follows, and the first model's loss.
    """

    table: Floats

    @property
    def kl(self) -> Floats:
        return self.table[:, 0]

    @property
    def loss_change(self) -> Floats:
        return self.table[:, 2]

    @property
    def probability_change(self) -> Floats:
        return self.table[:, 4]

    @property
    def first_loss(self) -> Floats:
        return self.table[:, 5]

    def columns(self) -> dict[str, Floats]:
        """Return the differences by the names that they have in results."""
        names = ("kl", "kl_reverse", "loss_change", "top1_agreement", "probability_change")
        return dict(zip(names, self.table.T[:5], strict=True))


def divergence(first: Tensor, other: Tensor) -> Tensor:
    """Return KL(first ‖ other) of log probabilities [n, V], float64 [n].

    With δ the difference of the log probabilities, KL = Σ p (δ + e^−δ − 1), because both sum to 1:
    no term is negative, and small sums keep their digits.
    """
    gap = first - other
    terms = first.exp() * (torch.expm1(-gap) + gap)
    return terms.sum(1, dtype=torch.float64).clamp(min=0)


def divergences(first: Tensor, other: Tensor, targets: Tensor) -> Tensor:
    """Return the divergences of log probabilities [n, V], float64 [n, 6] as in `Divergences`."""
    before = first.gather(1, targets[:, None])[:, 0].double()
    after = other.gather(1, targets[:, None])[:, 0].double()
    same_top = first.argmax(1) == other.argmax(1)
    columns = [
        divergence(first, other),
        divergence(other, first),
        before - after,
        same_top.double(),
        after.exp() - before.exp(),
        -before,
    ]
    return torch.stack(columns, dim=1)


@dataclass
class ExchangeWindows:
    """Windows of tokens, the paths that read them, and their states after the last part.

    Attributes:
        ids: token ids [W, T].
        documents: [W, T], the document of each token.
        skipped: positions left out at the beginning of each window.
        states: [W, T, d], by the beginnings of the paths up to the last part that was run.
        added: positions in front of the text, which are among those skipped.
    """

    ids: Tensor
    documents: Integers
    skipped: int
    paths: Sequence[Path] = ()
    states: dict[Path, Tensor] = field(default_factory=dict)
    added: int = 0

    def part(self, numbers: Iterable[int], paths: Iterable[Path]) -> "ExchangeWindows":
        """Return some of the windows, to be read on other paths."""
        index = sorted(map(int, numbers))
        return ExchangeWindows(
            self.ids[index],
            self.documents[index],
            self.skipped,
            list(dict.fromkeys(paths)),
            added=self.added,
        )

    def advance(self, models: Models, number: int) -> None:
        """Run the embedding (part 0) or block `number − 1` on all paths."""
        states: dict[Path, Tensor] = {}
        for bit, model in enumerate(models):
            beginnings = {path[: number + 1] for path in self.paths if path[number] == bit}
            if number == 0:
                for beginning in beginnings:
                    embedded = model.lens.run(self.ids, sites="embedding")["embedding"]
                    states[beginning] = embedded.clone()
            elif beginnings:
                states |= self._after_block(model, number - 1, sorted(beginnings))
        self.states = states

    def _after_block(
        self, model: PartwiseModel, block: int, beginnings: Sequence[Path]
    ) -> dict[Path, Tensor]:
        """Return the states after a block of a model, by the beginnings of the paths."""
        windows_at_once = max(1, TOKENS_AT_ONCE // self.ids.shape[1])
        before = torch.cat([self.states[beginning[:-1]] for beginning in beginnings])
        pieces = [model.block(block, piece) for piece in before.split(windows_at_once)]
        after = torch.cat(pieces).split(len(self.ids))
        return dict(zip(beginnings, after, strict=True))

    def divergences(self, models: Models) -> dict[Path, Divergences]:
        """Return the divergences of each path from the first model.

        They are of the positions whose next token is in the window.
        """
        tables: dict[Path, list[Tensor]] = {path: [] for path in self.paths}
        vocabulary = models[0].lens.width("head")
        on_cpu = self.ids.device.type == "cpu"
        windows_at_once = max(1, LOGITS_AT_ONCE // (self.ids.shape[1] * vocabulary))
        rows_at_once = max(1, (LOGITS_IN_CACHE if on_cpu else LOGITS_AT_ONCE) // vocabulary)
        first_path = (0,) * len(self.paths[0])
        for start in range(0, len(self.ids), windows_at_once):
            part = slice(start, start + windows_at_once)
            targets = self.ids[part, self.skipped + 1 :].flatten().split(rows_at_once)
            first = list(self._log_probabilities(models, first_path, part, rows_at_once))
            for path in self.paths:
                other: Iterable[Tensor] = first
                if any(path):
                    other = self._log_probabilities(models, path, part, rows_at_once)
                for rows in zip(first, other, targets, strict=True):
                    tables[path].append(divergences(*rows).cpu())
        return {path: Divergences(torch.cat(rows).numpy()) for path, rows in tables.items()}

    def _log_probabilities(
        self, models: Models, path: Path, windows: slice, rows_at_once: int
    ) -> Iterator[Tensor]:
        """Yield the log probabilities [n, V] of the next tokens on a path."""
        states = self.states[path[:-1]][windows, self.skipped : -1]
        logits = models[path[-1]].logits(states).flatten(0, 1)
        for rows in logits.split(rows_at_once):
            exact = rows if rows.dtype == torch.float64 else rows.float()
            yield exact.log_softmax(1)

    def log_probabilities_at(self, models: Models, path: Path, numbers: Integers) -> Tensor:
        """Return the log probabilities [n, V] of the next tokens at some positions on a path.

        `numbers` [n] count the positions whose next token is in the window, of all windows.
        """
        states = self.states[path[:-1]][:, self.skipped : -1].flatten(0, 1)
        logits = models[path[-1]].logits(states[torch.from_numpy(numbers)][:, None])[:, 0]
        return logits.float().log_softmax(1)

    def clusters(self, tokens: int) -> Clusters:
        """Return the clusters of the first `tokens` of each window that are not left out."""
        return Clusters.of_documents(self.documents[:, self.skipped :][:, :tokens])

    def means(self, columns: dict[str, Floats]) -> Cells:
        """Return the means of columns [n] over the positions of all windows, with intervals."""
        tokens = len(next(iter(columns.values()))) // len(self.ids)
        return self.clusters(tokens).means(columns, BOUNDS)

    def pair(self, first: Path, other: Path) -> StatePair:
        """Return the states on two paths, given by their beginnings up to the last part."""
        return StatePair(
            self.states[first], self.states[other], self.ids, self.documents, self.skipped
        )


def sweep(
    models: Models,
    groups: Sequence[ExchangeWindows],
    run: Run,
    stage: str,
    after_part: Callable[[int], dict[str, Cells]],
) -> tuple[list[dict[Path, Divergences]], dict[str, Cells]]:
    """Run all windows through all parts of all models.

    Returns the divergences of every group of windows, and the cells that `after_part` returned for
    the parts. States are stored now and then for a resume.
    """
    first, *others = models
    cells: dict[str, Cells] = {}
    next_part = 0
    for model in others:
        model.formats = set()
    stored = run.parts.read(stage) if run.resume else None
    if stored:
        note: Any = stored.note
        next_part, cells, packings = note
        for model, (sizes, formats) in zip(others, packings, strict=True):
            model.bytes = model.bytes | sizes
            model.formats = set(formats)
        for key, states in stored.tensors.items():
            group_number, *beginning = map(int, key)
            groups[group_number].states[tuple(beginning)] = states.to(first.lens.device)

    parts = first.parts
    for number, part in list(enumerate(parts[:-1]))[next_part:]:
        run.progress(f"{stage} · {part}", number, len(parts), "parts")
        with ExitStack() as contexts:
            for model in others:
                contexts.enter_context(model.ready(part))
            for group in groups:
                group.advance(models, number)
        cells |= after_part(number)
        if run.parts.due():
            note = plain([number + 1, cells, [[model.bytes, model.formats] for model in others]])
            run.parts.write(stage, _stored_states(groups), note=note)
    run.progress(f"{stage} · head", len(parts) - 1, len(parts), "parts")
    return [group.divergences(models) for group in groups], cells


def _stored_states(groups: Sequence[ExchangeWindows]) -> dict[str, Tensor]:
    """Return the states of all groups; the digits of a key are the group and a path's beginning."""
    tensors = {}
    for number, group in enumerate(groups):
        for beginning, states in group.states.items():
            digits = "".join(map(str, beginning))
            tensors[f"{number}{digits}"] = states
    return tensors
