"""The predictions and states of a fine-tune and of control changes, beside those of the base."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headscan.comparison.alignment import Integers
from headscan.comparison.changed_models import ChangedModels
from headscan.comparison.clusters import Clusters
from headscan.comparison.control_changes import sizes_of_change
from headscan.comparison.exchange import (
    LOGITS_AT_ONCE,
    LOGITS_IN_CACHE,
    TOKENS_AT_ONCE,
    divergence,
)
from headscan.comparison.moved_contexts import MovedTokens, moved_tokens
from headscan.comparison.result import LayerChange
from headscan.model.partwise import PartwiseModel
from headscan.run import Run, plain
from headscan.statistics.uncertainty import Floats
from headscan.text.spelling import display

STAGE = "changes"
"""The name under which the states are stored for a resume."""

GROUPS = 16
"""Groups of documents for the intervals of tokens."""

WRITTEN = 5
"""Tokens listed that a direction makes likelier, and less likely."""

WRITING_POSITIONS = 64
"""Positions at which a direction is added to what the head reads."""


@dataclass
class ChangedPredictions:
    """What all models predict at each position, beside the base.

    Attributes:
        divergences: KL(model ‖ base) [1 + controls, N] in nats, of the tuned model first.
        loss_change: rise of the tuned model's loss [N].
        likelihoods: mean log-probability of each token under the base [V].
        rises: mean rise of each token's log-probability [1 + controls, V].
        group_rises: sums of the tuned model's rises by group of documents [groups, V].
        group_sizes: positions of each group.
        moved: the tokens that contribute most to the tuned model's divergence, by position.
    """

    divergences: Floats
    loss_change: Floats
    likelihoods: Floats
    rises: Floats
    group_rises: Floats
    group_sizes: Floats
    moved: MovedTokens


def divergence_and_rise(changed: Tensor, base: Tensor) -> tuple[Tensor, Tensor]:
    """Return KL(changed ‖ base) of log probabilities [n, V], and the sum of their rises [V].

    Both are float64, on the CPU, and computed for as many rows at once as stay in its cache.
    """
    rows_at_once = len(base)
    if base.device.type == "cpu":
        rows_at_once = max(1, LOGITS_IN_CACHE // base.shape[1])
    divergences = []
    rise = torch.zeros(base.shape[1], dtype=torch.float64)
    for after, before in zip(changed.split(rows_at_once), base.split(rows_at_once), strict=True):
        divergences.append(divergence(after, before).cpu())
        rise += (after - before).sum(0).cpu()
    return torch.cat(divergences), rise


class ChangeReader:
    """The windows of the text as the base, the fine-tune and all controls read them.

    Attributes:
        skipped: positions left out at the beginning of each window; the first `added` of them stand
            in front of the text.
        states: [1 + 1 + controls] of [W, T, d], after the last part that was run.
    """

    def __init__(
        self,
        opened: ChangedModels,
        ids: Tensor,
        documents: Integers,
        skipped: int,
        added: int = 0,
    ) -> None:
        self.opened = opened
        self.ids = ids
        self.documents = documents
        self.skipped = skipped
        self.added = added
        self.states: list[Tensor] = []
        self.directions: dict[str, Tensor] = {}
        predicted = documents[:, skipped : documents.shape[1] - 1]
        self.clusters = Clusters.of_documents(predicted)

    def sweep(self, run: Run) -> list[LayerChange]:
        """Run all models through the embedding and all blocks; return the change of each site."""
        base = self.opened.base
        sizes = self._resumed(run)
        for number, part in list(enumerate(base.parts[:-1]))[len(sizes) :]:
            run.progress(f"changes · {part}", number, len(base.parts), "parts")
            with self.opened.tuned.ready(part):
                self._advance(number, part)
            sizes.append((part, *self._difference(part)))
            if run.parts.due():
                run.parts.write(STAGE, self._stored(), note=plain(sizes))
        layers = []
        for part, size, common in sizes:
            up, down = self._written(self.directions[part])
            layers.append(
                LayerChange(
                    site=part,
                    size=size[0],
                    size_controls=float(np.median(size[1:])),
                    common=common[0],
                    common_controls=float(np.median(common[1:])),
                    writes=up,
                    removes=down,
                )
            )
        return layers

    def _stored(self) -> dict[str, Tensor]:
        """Return the states of all models, by number, and the directions, by part."""
        states = {str(number): states for number, states in enumerate(self.states)}
        return states | self.directions

    def _resumed(self, run: Run) -> list[tuple[str, list[float], list[float]]]:
        """Return the sizes of the parts that an earlier run finished, with its states in place."""
        stored = run.parts.read(STAGE) if run.resume else None
        if stored is None:
            return []
        note: Any = stored.note
        tensors = dict(stored.tensors)
        while str(len(self.states)) in tensors:
            states = tensors.pop(str(len(self.states)))
            self.states.append(states.to(self.ids.device))
        self.directions = {part: mean.to(self.ids.device) for part, mean in tensors.items()}
        return [(part, size, common) for part, size, common in note]

    def _advance(self, number: int, part: str) -> None:
        """Run a part of every model; the controls are the base with changed weights."""
        opened = self.opened
        states: Sequence[Tensor | None] = self.states or [None] * (2 + len(opened.controls))
        after = [
            self._after(opened.base, number, states[0]),
            self._after(opened.tuned, number, states[1]),
        ]
        sizes = sizes_of_change(opened.base, opened.tuned, part)
        for control, before in zip(opened.controls, states[2:], strict=True):
            with control.applied(opened.base, part, sizes):
                after.append(self._after(opened.base, number, before))
        self.states = after

    def _after(self, model: PartwiseModel, number: int, states: Tensor | None) -> Tensor:
        """Return what the embedding (part 0) or block `number − 1` of a model returns."""
        windows_at_once = max(1, TOKENS_AT_ONCE // self.ids.shape[1])
        pieces = []
        if states is None:
            for ids in self.ids.split(windows_at_once):
                pieces.append(model.lens.run(ids, sites="embedding")["embedding"].clone())
        else:
            for piece in states.split(windows_at_once):
                pieces.append(model.block(number - 1, piece))
        return torch.cat(pieces)

    def _difference(self, part: str) -> tuple[list[float], list[float]]:
        """Return the size of each model's change at a site, and the share that is common."""
        base = self.states[0][:, self.skipped :].flatten(0, 1).double()
        scale = float(base.square().sum(1).mean().sqrt())
        sizes = []
        common = []
        for number, states in enumerate(self.states[1:]):
            difference = states[:, self.skipped :].flatten(0, 1).double() - base
            energy = float(difference.square().sum(1).mean())
            mean = difference.mean(0)
            if number == 0:
                self.directions[part] = mean
            sizes.append(energy**0.5 / max(scale, 1e-300))
            common.append(float(mean.square().sum()) / max(energy, 1e-300))
        return sizes, common

    @torch.no_grad()
    def _written(self, direction: Tensor) -> tuple[list[str], list[str]]:
        """Return the tokens that a direction makes likelier, and less likely, at the head."""
        base = self.opened.base
        states = self.states[0].flatten(0, 1)
        step = max(1, len(states) // WRITING_POSITIONS)
        sampled = states[::step][:WRITING_POSITIONS][:, None]  # windows of one token
        moved = sampled + direction.to(sampled)
        differences = base.logits(moved) - base.logits(sampled)
        change = differences[:, 0].float().mean(0)
        order = change[: self.opened.shared].argsort(descending=True).tolist()
        tokenizer = base.lens.tokenizer
        return display(tokenizer, order[:WRITTEN]), display(tokenizer, order[::-1][:WRITTEN])

    @torch.no_grad()
    def predictions(self, run: Run) -> ChangedPredictions:
        """Return the predictions of all models at the positions whose next token is read."""
        opened = self.opened
        vocabulary = max(opened.base.lens.width("head"), opened.tuned.lens.width("head"))
        windows, length = self.ids.shape
        at_once = max(1, LOGITS_AT_ONCE // (length * vocabulary))
        groups = self._groups()
        group_rises = np.zeros((int(groups.max()) + 1, opened.shared))
        rises = torch.zeros(1 + len(opened.controls), opened.shared, dtype=torch.float64)
        likelihoods = torch.zeros(opened.shared, dtype=torch.float64)
        parts: list[list[Tensor]] = [[] for _ in range(4)]
        with opened.tuned.ready("head"):
            sizes = sizes_of_change(opened.base, opened.tuned, "head")
            for start in range(0, windows, at_once):
                run.progress("changes · head", start, windows, "windows")
                part = slice(start, start + at_once)
                before = self._log_probabilities(opened.base, 0, part)
                after = self._log_probabilities(opened.tuned, 1, part)
                likelihoods += before.sum(0).cpu()
                divergence_of_tuned, summed_rise = divergence_and_rise(after, before)
                rises[0] += summed_rise
                rise = after - before
                rows = groups[start * (len(groups) // windows) :][: len(rise)]
                for group in np.unique(rows):
                    chosen = torch.from_numpy(rows == group).to(rise.device)
                    group_rises[group] += rise[chosen].sum(0).double().cpu().numpy()
                divergences = [divergence_of_tuned]
                for number, control in enumerate(opened.controls):
                    with control.applied(opened.base, "head", sizes):
                        controlled = self._log_probabilities(opened.base, 2 + number, part)
                    of_control, summed_rise = divergence_and_rise(controlled, before)
                    rises[1 + number] += summed_rise
                    divergences.append(of_control)
                targets = self.ids[part, self.skipped + 1 :].reshape(-1, 1)
                moved = moved_tokens(before, after)
                parts[0].append(torch.stack(divergences))
                rise_of_targets = rise.gather(1, targets)[:, 0]
                parts[1].append(-rise_of_targets.double().cpu())
                parts[2].append(moved.ids)
                parts[3].append(moved.probabilities)
        count = len(groups)
        return ChangedPredictions(
            divergences=torch.cat(parts[0], 1).numpy(),
            loss_change=torch.cat(parts[1]).numpy(),
            likelihoods=(likelihoods / count).numpy(),
            rises=(rises / count).numpy(),
            group_rises=group_rises,
            group_sizes=np.bincount(groups).astype(float),
            moved=MovedTokens(torch.cat(parts[2]), torch.cat(parts[3])),
        )

    def _log_probabilities(self, model: PartwiseModel, number: int, part: slice) -> Tensor:
        """Return log probabilities [n, shared] of the next tokens."""
        states = self.states[number][part, self.skipped : -1]
        logits = model.logits(states).flatten(0, 1)[:, : self.opened.shared]
        return logits.float().log_softmax(1)

    def _groups(self) -> Integers:
        """Return each position's group: of clusters that follow one another, at most 16."""
        of_token = self.clusters.of_token
        count = int(of_token.max()) + 1
        groups: Integers = of_token * min(GROUPS, count) // count
        return groups
