"""The family of the monitor that reads the windows: which come back, how rare their tokens are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from headscan.training.monitor.families import FAMILIES, Every, Family, Raw
from headscan.training.monitor.scene import BUCKETS, ReadWindows, Scene, Store

UNSEEN = 0.01
"""The count of a pair of tokens that was never read."""

WHOLE = 2**48
"""Hashes of windows lie below this number."""

HALF = 2**24
"""The halves of a hash lie below this number: float32 holds them exactly."""

REMEMBERED_STEPS = 100
"""Steps for which windows are remembered."""


def settle(scene: Scene) -> None:
    """Hash the windows that were read, and count their pairs of tokens, in few calls of the
    device: those of several forward passes together.
    """
    for _, passes in groupby(scene.pending, key=lambda windows: windows.kind):
        scene.read.append(_hashed(list(passes), scene))
    scene.pending = []


def _hashed(passes: Sequence[ReadWindows], scene: Scene) -> Int[Tensor, "windows 4"]:
    """Return four numbers of each window of P forward passes of one kind, and count its pairs of
    tokens.

    They are the step, a hash below 2⁴⁸ in two halves that float32 holds exactly, and thousandths of
    a nat: the mean -log of the share of its pairs of tokens among those counted in earlier passes.
    """
    ids = torch.stack([windows.ids for windows in passes]).long()  # [P, B, T]
    device = ids.device
    masks = [windows.real for windows in passes if windows.real is not None]
    real = torch.stack(masks) if masks else torch.ones_like(ids, dtype=torch.bool)

    generator = torch.Generator(device).manual_seed(0)
    factors = torch.randint(1, 2**62, ids.shape[-1:], generator=generator, device=device)
    sums = ((ids + 1) * factors * real).sum(-1)
    hashes = (sums ^ (sums >> 21)) & (WHOLE - 1)

    pairs = (ids[..., :-1] * 40_503 + ids[..., 1:]) % BUCKETS
    both_real = (real[..., :-1] & real[..., 1:]).long()
    added = torch.zeros(len(passes), BUCKETS, dtype=torch.long, device=device)
    added.scatter_add_(1, pairs.flatten(1), both_real.flatten(1))
    after = scene.counts.to(device, non_blocking=True) + added.cumsum(0)
    counts = after - added  # of each pass: those before it
    scene.counts = after[-1].clone()

    pair_counts = counts.gather(1, pairs.flatten(1)).view_as(pairs)
    log_counts = (pair_counts + UNSEEN).log() * both_real
    mean_log_count = log_counts.sum(-1) / both_real.sum(-1).clamp(min=1)
    totals = counts.sum(1, keepdim=True) + UNSEEN * BUCKETS
    nats = totals.log() - mean_log_count
    steps = torch.stack([torch.full_like(hashes[0], windows.step) for windows in passes])
    columns = [steps, hashes >> 24, hashes & (HALF - 1), (1000 * nats).long()]
    return torch.stack([column.flatten() for column in columns], 1)


@FAMILIES.register("repeated")
class Repeated(Family):
    """Windows that come back, and tokens that are unlike those before.

    `windows/share`: of the windows read since the last reading, those that were read before within
    the last 100 steps (a quarter of an epoch, where that is shorter); `windows/surprise`: the mean
    -log of how often their pairs of tokens were read before, nats. Every step is looked at; under
    torch.compile those on the clock.
    """

    every: Every = 10

    def after(self, scene: Scene, store: Store, _step: int) -> None:
        settle(scene)
        if scene.read:
            store.local["windows"] = torch.cat(scene.read)
        scene.read = []

    def finish(self, raw: Raw, scene: Scene) -> dict[str, float]:
        windows = raw.get("windows", np.zeros((0, 4))).astype(np.int64).tolist()
        if not windows:
            return {}
        repeated = 0
        total_nats = 0  # in thousandths
        for step, high, low, nats in windows:
            window = (high << 24) + low
            repeated += step - scene.seen.get(window, -math.inf) <= scene.horizon
            scene.seen[window] = step
            total_nats += nats
        last_step = windows[-1][0]
        scene.seen = {
            window: step
            for window, step in scene.seen.items()
            if step >= last_step - REMEMBERED_STEPS
        }
        return {
            "windows/share": repeated / len(windows),
            "windows/surprise": total_nats / 1000 / len(windows),
        }
