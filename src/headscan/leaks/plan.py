"""The part of a text that is examined: a run with default options ends in minutes."""

from dataclasses import dataclass, field

import torch
from jaxtyping import Int
from torch import Tensor

from headscan.inversion.comparisons import multiplications
from headscan.leaks.settings import PrivacySettings
from headscan.model.slicing import SlicedModel
from headscan.run import BadInput, Run

# Multiplications that candidates may take unless their number was asked for: some minutes of two
# cores.
LIMIT = 6e12
# Candidates up to which all are run by default: their pairs are compared at every position.
MOST = 2048


@dataclass(frozen=True)
class AuditPlan:
    """The part of the settings that is carried out.

    Attributes:
        windows: token ids of the windows.
        candidates: of a position; None: all.
        budget: candidates of a search at one position; None: the vocabulary.
        notes: sentences about what was left out.
    """

    windows: Int[Tensor, "B T"]
    candidates: int | None
    budget: int | None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Effort:
    """The effort that candidates of a slice take.

    Attributes:
        positions: token positions that a candidate at every position of a window takes.
        default: candidates that are run by default.
        least: candidates that are run at least.
        smallest: candidates of a window, in the smallest audit.
        repeats: times that a window's candidates are run.
    """

    positions: int
    default: int
    least: int
    smallest: int
    repeats: int


def plan_of(
    cut: SlicedModel,
    texts: list[list[int]],
    settings: PrivacySettings,
    run: Run,
    *,
    sites: int = 1,
    whole_rows: bool = False,
) -> AuditPlan:
    """Return what is done at the sites of a slice.

    All candidates are run where that is affordable, else the likeliest, in fewer windows.

    Args:
        cut: the slice.
        texts: token ids of each document.
        settings: what was asked for.
        run: is told what is left out.
        sites: the number of sites in the slice.
        whole_rows: every candidate costs its whole window, at every position (embeddings).

    Raises:
        BadInput: a text shorter than one window, windows longer than the model's context.
    """
    length = settings.length
    context = cut.lens.context_length
    if context and length > context:
        raise BadInput(
            f"--length {length} is more than the {context} tokens that '{cut.lens.name}' takes."
        )
    if whole_rows:
        # Whole texts are run in small batches, at half the speed of candidates behind one prefix.
        effort = _Effort(2 * length**2, default=MOST // 4, least=16, smallest=64, repeats=1)
    else:
        effort = _Effort(
            length, default=MOST, least=64, smallest=256 * sites, repeats=max(sites, 2)
        )
    rounds = len(settings.defences)  # each defence takes as much again
    one_candidate = multiplications(cut, 1) / cut.vocabulary_size * effort.positions
    affordable = LIMIT / rounds / one_candidate

    candidates = min(settings.candidates or effort.default, cut.vocabulary_size)
    complete = candidates == cut.vocabulary_size
    asked_for = settings.candidates is not None
    fits = candidates * settings.windows * sites <= affordable and (whole_rows or complete)
    if asked_for or fits:
        budget = candidates if asked_for and not whole_rows else None
        windows = windows_of(texts, settings.windows, length)
        return AuditPlan(windows, None if complete and not whole_rows else candidates, budget)

    count = max(1, min(settings.windows, int(affordable / effort.smallest)))
    candidates = min(candidates, int(affordable / (count * effort.repeats)))
    candidates = max(effort.least, candidates)
    windows = windows_of(texts, count, length)
    note = _note(windows, candidates, sites, rounds - 1)
    run.announce(note)
    return AuditPlan(windows, candidates, None if whole_rows else candidates, [note])


def _note(windows: Tensor, candidates: int, sites: int, defences: int) -> str:
    """Return the sentence about what was left out; `defences` are those beside none."""
    parts = [
        f"windows of {windows.shape[1]} tokens: {len(windows)}",
        f"candidates of a position: the {candidates:,} likeliest",
        f"sites: {sites}",
    ]
    if defences > 0:
        parts.append(f"defences beside none: {defences}")
    return (
        f"Reduced to keep the run short: {', '.join(parts)} (--windows, --candidates, --sites). "
        "The bounds include what other candidates may add."
    )


def windows_of(texts: list[list[int]], count: int, length: int) -> Int[Tensor, "B T"]:
    """Return token ids of windows that are evenly spaced over the text, at most `count`.

    Raises:
        BadInput: the text is shorter than one window.
    """
    ids = [token for text in texts for token in text]
    if len(ids) < length:
        raise BadInput(f"The text has {len(ids)} tokens, fewer than one window of {length}.")
    count = min(count, len(ids) // length)
    starts = torch.linspace(0, len(ids) - length, count).long().tolist()
    return torch.stack([torch.tensor(ids[start : start + length]) for start in starts])
