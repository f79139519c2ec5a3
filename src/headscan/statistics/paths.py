"""What a window's states do as they go from token to token: angles, lengths and entropy of each window, summed."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headscan.statistics.site_batch import SiteBatch
from headscan.statistics.tally import BlockedTally

__all__ = ["PathTally", "turns", "window_entropy"]


def turns(states: Tensor) -> tuple[Tensor, Tensor]:
    """Of paths [B, T, d] with steps v: Σ of the angles between steps and Σ of those that are defined [B]; and the straightness
    ‖z_T − z_1‖/Σ‖v‖ [B], NaN for a path that does not move.

    >>> angles, straight = turns(torch.tensor([[[0.0], [1.0], [2.0]]]).double())
    >>> angles.tolist(), straight.tolist()
    ([[0.0, 1.0]], [1.0])
    """
    steps = states.diff(dim=1)
    lengths = torch.linalg.vector_norm(steps, dim=-1)
    scale = lengths[:, 1:] * lengths[:, :-1]
    cosines = torch.where(scale > 0, (steps[:, 1:] * steps[:, :-1]).sum(-1) / scale, 0.0).clamp(-1, 1)
    angles = torch.where(scale > 0, torch.arccos(cosines), 0.0)
    straight = torch.linalg.vector_norm(states[:, -1] - states[:, 0], dim=-1) / lengths.sum(1)
    return torch.stack([angles.sum(1), (scale > 0).double().sum(1)], dim=1), straight


def window_entropy(states: Tensor) -> Tensor:
    """Shannon's entropy of the eigenvalues' shares of each window's Gram matrix [B], nats, over log min(T, d): in [0, 1].

    >>> window_entropy(torch.eye(4).double()[None]).tolist()
    [1.0]
    """
    _, length, width = states.shape
    wide = length <= width
    gram = states @ states.transpose(1, 2) if wide else states.transpose(1, 2) @ states
    values = torch.linalg.eigvalsh(gram).clamp(min=0)
    shares = values / values.sum(-1, keepdim=True)
    entropy = -torch.where(shares > 0, shares * shares.clamp(min=1e-300).log(), 0.0).sum(-1)
    return entropy / math.log(max(2, min(length, width)))


class PathTally(BlockedTally):
    """Sums over windows of `turns` and `window_entropy`, and of the same with each window's tokens shuffled (`_shuffled`): the
    null, for which the order is the same one in every window of a length."""

    def shapes(self, width: int) -> dict[str, tuple[int, ...]]:
        """Angles and how many, straightness, entropy, windows."""
        names = ("angles", "turns", "straight", "moving", "angles_shuffled", "turns_shuffled", "straight_shuffled")
        return dict.fromkeys((*names, "entropy", "tokens"), ())

    def measure(self, batch: SiteBatch) -> dict[str, Tensor]:
        """See `BlockedTally`."""
        rows = batch.rows
        order = torch.randperm(rows.shape[1], generator=torch.Generator().manual_seed(0)).to(rows.device)
        found = {"entropy": window_entropy(rows).nan_to_num(), "tokens": torch.ones(len(rows), dtype=torch.float64)}
        for end, states in (("", rows), ("_shuffled", rows[:, order])):
            angles, straight = turns(states)
            found |= {
                f"angles{end}": angles[:, 0],
                f"turns{end}": angles[:, 1],
                f"straight{end}": straight.nan_to_num(),
            }
            if not end:
                found["moving"] = torch.isfinite(straight).double()
        return found
