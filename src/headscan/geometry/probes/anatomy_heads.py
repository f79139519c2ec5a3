"""The probe `anatomy_heads`: which heads build the cone at the last block."""

# ruff: noqa: D102  (what the methods do is said once, in Probe)
from __future__ import annotations

import numpy as np
import torch

from headscan.geometry.anatomy import Shares
from headscan.geometry.explained import Cells, Field, ProbeWords
from headscan.geometry.heads import head_maps, head_sums
from headscan.geometry.probe import Probe
from headscan.geometry.probe_setup import ProbeData, ProbeSetup
from headscan.model.sites import is_block

__all__ = ["AnatomyHeadsProbe"]

TOKENS, BLOCKS = 8192, 16


class AnatomyHeadsProbe(Probe):
    """Which heads build the cone?"""

    words = ProbeWords(
        name="anatomy_heads", title="Anatomy by heads", group="anatomy",
        sentence=f"Which heads of attention build the cone at the last block? Each branch of attention of the anatomy cut into "
        f"its heads and its bias; of the first {TOKENS:,} tokens.",
        literature="headscan; heads as terms of a sum: Elhage et al. 2021", position="All positions.", docs="anatomy.md",
        function="headscan.geometry.heads.head_sums", order=3, expensive=True, picture="heads", fields={
            "head": Field("head", "Number of the head; after the last one stands the branch's bias.", range=(0, None),
                interval="a number of a head"),
            "share": Field("share of the cone", "What the head adds to the squared length of the mean unit state.",
                "(W_h Σz_h/‖x‖)·m/n|m|²", interval="three blocks of text are needed", plotted=True),
        },
    )  # fmt: skip

    def reason(self, setup: ProbeSetup) -> str | None:
        stacks = [stack for stack in setup.lens.stacks if setup.deepest in stack.taps]
        if not stacks or not is_block(setup.deepest):
            return "none of its blocks is among the sites"
        if not all(stacks[0].plain):
            return "norms act on its stream, or its branches are not known"
        return None if head_maps(setup.lens, stacks[0]) else "its attention is no linear map of its heads"

    def rows(self, setup: ProbeSetup, data: ProbeData) -> list[Cells]:
        lens = setup.lens
        stack = next(stack for stack in lens.stacks if setup.deepest in stack.taps)
        maps = head_maps(lens, stack)
        assert maps is not None
        depth = int(setup.deepest.rsplit(".", 1)[-1])
        maps = tuple(one for one in maps if int(one.site.rsplit(".", 2)[-2]) <= depth)
        ids = data.windows[: max(1, TOKENS // setup.context)]
        size = max(1, 2048 // setup.context)
        found = [head_sums(lens, maps, part, setup.deepest) for part in ids.split(size)]
        units, weights, sums = (torch.cat(parts) for parts in zip(*found, strict=True))
        number = torch.arange(len(ids)) * min(BLOCKS, len(ids)) // len(ids)
        belongs = torch.nn.functional.one_hot(number).T.double()
        total, weight = belongs @ units, belongs @ weights
        every = torch.einsum("cw,wmk->cmk", belongs, sums)
        tokens = belongs.sum(1).numpy() * ids.shape[1]
        shares = Shares(total.numpy(), tokens)
        if not shares.square > 0:
            return [{"site": setup.deepest, "notes": ["there is no cone: the mean of the unit states is zero"]}]
        rows: list[Cells] = []
        for k, one in enumerate(maps):
            parts = one.parts(every[:, k].to(one.weight.device), weight.to(one.weight.device)).cpu().numpy()
            names = [*(f"{one.site}, head {h}" for h in range(one.heads)), f"{one.site}, bias"]
            made = shares.of("head", names, np.ascontiguousarray(parts))
            rows += [{"site": one.site, **row, "head": head} for head, row in enumerate(made)]
        return rows
