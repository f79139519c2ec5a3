"""One batch of one site as the accumulators see it: what several of them need is computed once."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

__all__ = ["SiteBatch"]


class SiteBatch:
    """States [B, T, width] of a batch of windows at one site, with the ids [B, T] that stood there.

    `windows` are the B windows' global numbers, `documents` [B, T] the numbers of the tokens' documents where known.
    `skip_first` positions of each window are left out of everything here, so `rows`, `ids` and `next_ids` agree; a
    position without a successor in its window has the next id −1.

    >>> batch = SiteBatch("block.0", torch.ones(1, 3, 4), torch.tensor([[7, 8, 9]]), [0])
    >>> batch.next_ids.tolist(), batch.unit.norm(dim=-1).tolist()
    ([[8, 9, -1]], [[1.0, 1.0, 1.0]])
    """

    def __init__(
        self, site: str, states: Tensor, ids: Tensor, windows: list[int], *, skip_first: int = 0,
        documents: Tensor | None = None,
    ):  # fmt: skip
        self.site, self.windows, self.skip_first = site, windows, skip_first
        self._states, self._ids, self._documents = states, ids, documents

    @property
    def states(self) -> Tensor:
        """The states as the model gave them, live [B, T, width]."""
        return self._states.detach()[:, self.skip_first :]

    @property
    def documents(self) -> Tensor | None:
        """The numbers of the tokens' documents [B, T]."""
        return None if self._documents is None else self._documents[:, self.skip_first :]

    @cached_property
    def rows(self) -> Tensor:
        """The states in float64 [B, T, width]."""
        return self.counted.to(dtype=torch.float64)

    @property
    def counted(self) -> Tensor:
        """The states where float64 can be had [B, T, width]: a step that takes few of them at a time needs no `rows`."""
        return self.states.cpu() if self._states.device.type == "mps" else self.states

    @cached_property
    def norms(self) -> Tensor:
        """Their lengths [B, T], float64."""
        lengths: Tensor = torch.linalg.vector_norm(self.counted, dim=-1, dtype=torch.float64)
        return lengths

    @cached_property
    def unit(self) -> Tensor:
        """The states divided by their lengths [B, T, width]; zero where the length is zero."""
        return self.rows * torch.where(self.norms > 0, 1 / self.norms, 0.0)[..., None]

    @cached_property
    def unit_sum(self) -> Tensor:
        """The sum of each window's directions [B, width]."""
        return self.unit.sum(1)

    @property
    def lead(self) -> int:
        """How many positions of `rows` are to be left out where position 0 is: 1, or 0 where it is skipped already."""
        return 1 if self.skip_first == 0 else 0

    @cached_property
    def ids(self) -> Tensor:
        """Token ids [B, T]."""
        device = self._states.device
        return self._ids[:, self.skip_first :].to("cpu" if device.type == "mps" else device)

    @cached_property
    def next_ids(self) -> Tensor:
        """The ids of the tokens that follow [B, T], −1 at the end of a window."""
        return torch.nn.functional.pad(self.ids[:, 1:], (0, 1), value=-1)
