"""How much of a text is looked at, so that what was not asked for by name ends in minutes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from headscan.inversion.comparing import multiplications
from headscan.leaks.release import Auditing
from headscan.model.slicing import SlicedModel
from headscan.run import BadInput

__all__ = ["MOST", "AuditPlan", "plan_of", "plan_of_whole_rows", "windows_of"]

LIMIT = 6e12
"""Multiplications that the candidates may take, unless their number was asked for: some minutes of two cores."""

MOST = 2048
"""Candidates up to which all are run unasked: their pairs are compared at every position."""


@dataclass(frozen=True)
class AuditPlan:
    """What of the settings is done: tokens of each window, windows, candidates of a position (None: all), budget of a search.

    `whole_texts` are multiplications that are left for the filter of whole texts; notes are what was left out.
    """

    windows: Int[Tensor, "B T"]
    candidates: int | None
    budget: int | None
    passed: float
    notes: tuple[str, ...] = ()


def plan_of(cut: SlicedModel, sites: int, texts: list[list[int]], settings: Auditing) -> AuditPlan:
    """What is done at the sites of a slice: all candidates where that is affordable, else the likeliest, in fewer windows.

    Raises:
        BadInput: a text shorter than one window, windows longer than the model's context.
    """
    context, vocabulary = cut.lens.context_length, cut.vocabulary_size
    if context and settings.length > context:
        raise BadInput(f"--length {settings.length} is more than the {context} tokens that '{cut.lens.name}' takes.")
    windows, passed = settings.windows, multiplications(cut, 1) / vocabulary
    if settings.candidates is not None:
        few = min(settings.candidates, vocabulary)
        return AuditPlan(windows_of(texts, windows, settings.length), few if few < vocabulary else None, few, passed)
    every = min(vocabulary, MOST)
    affordable = LIMIT / (passed * settings.length)
    if every * windows * sites <= affordable and every == vocabulary:
        return AuditPlan(windows_of(texts, windows, settings.length), None, None, passed)
    windows = min(windows, max(1, int(affordable / (256 * sites))))
    candidates = max(64, min(every, int(affordable / (windows * max(sites, 2)))))
    rows = windows_of(texts, windows, settings.length)
    note = (
        f"{len(rows)} windows of {settings.length} tokens were looked at, with the {candidates:,} likeliest candidates of a "
        f"position (--windows, --candidates): the bounds count what the others may add."
    )
    return AuditPlan(rows, candidates, candidates, passed, (note,))


def plan_of_whole_rows(cut: SlicedModel, texts: list[list[int]], settings: Auditing) -> AuditPlan:
    """The same where every candidate costs its whole window, at every position: embeddings."""
    vocabulary, passed = cut.vocabulary_size, multiplications(cut, 1) / cut.vocabulary_size
    affordable, windows = LIMIT / (passed * settings.length**2), settings.windows
    few = min(settings.candidates or MOST // 4, vocabulary)
    if settings.candidates is not None or few * windows <= affordable:
        return AuditPlan(windows_of(texts, windows, settings.length), few, None, passed)
    windows = max(1, min(windows, int(affordable / 64)))
    few = max(16, min(few, int(affordable / windows)))
    rows = windows_of(texts, windows, settings.length)
    note = (
        f"{len(rows)} windows of {settings.length} tokens were looked at, with the {few:,} likeliest candidates of a position "
        "(--windows, --candidates): the bounds count what the others may add."
    )
    return AuditPlan(rows, few, None, passed, (note,))


def windows_of(texts: list[list[int]], windows: int, length: int) -> Int[Tensor, "B T"]:
    """Token ids of windows that are evenly spaced over the text.

    Raises:
        BadInput: the text is shorter than one.
    """
    ids = [token for text in texts for token in text]
    if len(ids) < length:
        raise BadInput(f"The text has {len(ids)} tokens, fewer than one window of {length}.")
    starts = torch.linspace(0, len(ids) - length, min(windows, len(ids) // length)).long()
    return torch.stack([torch.tensor(ids[int(start) : int(start) + length]) for start in starts])
