"""What a search from left to right has found so far, stored so that an interrupted run goes on from there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import torch
from torch import Tensor

from headscan.inversion.candidates import SearchTrace
from headscan.inversion.table_order import Fit
from headscan.run import BadInput
from headscan.run.parts import Parts

__all__ = ["KeptSearch", "Progressed"]


@dataclass(frozen=True)
class Progressed:
    """Where a search stands between two positions.

    Attributes:
        traces: of each prompt, to the same position.
        outlooks: of each prompt the state of its `Outlook`; empty without readouts.
        fits: of each prompt what the table's order was last fitted to.
    """

    traces: list[SearchTrace]
    outlooks: list[tuple[int, list[int]]] = field(default_factory=list)
    fits: Mapping[int, Fit] = field(default_factory=dict)


class KeptSearch:
    """One stored part of a run: a search, position by position.

    Args:
        parts: of the run.
        name: of the part.
    """

    def __init__(self, parts: Parts, name: str) -> None:
        self.parts, self.name = parts, name

    def due(self) -> bool:
        """Whether it is time to store."""
        return self.parts.due()

    def write(self, state: Progressed, key: str) -> None:
        """Store where a search stands; `key` names what the order of its candidates rests on."""
        note = {
            "key": key,
            "traces": [asdict(one) for one in state.traces],
            "outlooks": [[begin, draft] for begin, draft in state.outlooks],
            "shares": {str(index): fit.share for index, fit in state.fits.items()},
        }
        self.parts.write(self.name, {f"{index}": fit.shift for index, fit in state.fits.items()}, note=note)  # type: ignore[arg-type]

    def read(self, key: str, device: torch.device) -> Progressed | None:
        """Where a search stood when it was interrupted, None if nothing was stored.

        Raises:
            BadInput: its candidates came in another order, so that the rest would not be what it would have been.
        """
        part = self.parts.read(self.name)
        if part is None:
            return None
        from pydantic import TypeAdapter

        note = part.note
        assert isinstance(note, dict)
        if note["key"] != key:
            raise BadInput(
                "The run cannot be resumed: what orders the candidates (the text of the fit, or the order) has changed. "
                "Start afresh without --resume, or in another folder."
            )
        shares = TypeAdapter(dict[int, float]).validate_python(note["shares"])
        return Progressed(
            TypeAdapter(list[SearchTrace]).validate_python(note["traces"]),
            TypeAdapter(list[tuple[int, list[int]]]).validate_python(note["outlooks"]),
            {index: Fit(share, _at(part.tensors, index, device)) for index, share in shares.items()},
        )


def _at(tensors: Mapping[str, Tensor], index: int, device: torch.device) -> Tensor:
    return tensors[f"{index}"].to(device)


def copies(traces: Sequence[SearchTrace]) -> list[SearchTrace]:
    """The traces as they are now."""
    found = []
    for one in traces:
        copied = SearchTrace()
        while len(copied.tokens) < len(one.tokens):
            copied.follow(one)
        found.append(copied)
    return found
