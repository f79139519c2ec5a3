"""The families of the monitor: the numbers that it reads of a training step, one class a family,
each on its own clock.

A family reads the step from inside: the states at the sites, the attention calls, the routers, the
gradients, the weights and their update. It leaves tensors on their device, in a `Store`; nothing
here waits for the device. The numbers are computed on the CPU one step later (`finish`), when the
tensors have arrived.
"""

from __future__ import annotations

import math
import re
from abc import ABC
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool
from torch import Tensor
from torch.distributed.tensor import DTensor
from typing_extensions import TypeAliasType

from headscan.model.sites import is_block
from headscan.run import BadInput, Option, Registry, Settings
from headscan.statistics.sinks import FACTOR
from headscan.training.monitor.attention import AttentionCall
from headscan.training.monitor.scene import Scene, Store, mean_of

Raw = dict[str, npt.NDArray[np.float64]]
"""The arrays of a family that arrived on the CPU, by name."""

Every = TypeAliasType("Every", Annotated[int, Option("Steps between readings.", low=1)])

SAMPLE = 2**16
"""Entries of which a percentile is taken."""

OUTSIDE = "outside"
"""The name of all weights that belong to no block."""

LOW_CHANCE = 0.1
"""An expert whose router probability is below this share of an equal one has no chance. In 91
healthy runs an expert without a token had 0.63 or more.
"""


@dataclass(frozen=True, kw_only=True)
class Family(Settings, ABC):
    """One family of numbers, read every so many steps; the first step is always read.

    Of a step on its clock a family is shown: `see` each site, `attend` each attention call, `route`
    each router, `before` the weights move and `after`. Values are named SITE/NUMBER; one that is
    not finite raises HS517. Padding is in no number.
    """

    every: Every = 50

    @property
    def name(self) -> str:
        return FAMILIES.name_of(self)

    def unfit(self, _scene: Scene) -> str:
        """Return why this model has nothing to read; "" where it has."""
        return ""

    def see(self, scene: Scene, store: Store, site: str, states: Tensor) -> None: ...

    def attend(self, store: Store, block: str, call: AttentionCall) -> None: ...

    def route(
        self,
        store: Store,
        block: str,
        answer: tuple[Tensor, ...],
        real: Bool[Tensor, "B T"] | None = None,
    ) -> None: ...

    def before(self, scene: Scene, store: Store, step: int) -> None: ...

    def after(self, scene: Scene, store: Store, step: int) -> None: ...

    def finish(self, raw: Raw, _scene: Scene) -> dict[str, float]:
        """Return the numbers from the arrays that arrived on the CPU."""
        return {name: float(value) for name, value in raw.items()}


FAMILIES: Registry[type[Family]] = Registry(
    "family of the monitor",
    "headscan.training.monitor.families",
    "headscan.training.monitor.weight_families",
    "headscan.training.monitor.repeated",
)
"""All families by name; `Monitor(families="qk_*,expert_load:every=10")` chooses among them."""


def families_of(families: str | list[Family], scene: Scene) -> list[Family]:
    """Return the families that globs or NAME:KEY=VALUE name, or that are listed; "" names none.

    Raises:
        BadInput: where a family that is named exactly has nothing to read.
    """
    # A comma before KEY=VALUE belongs to the parameters of the family before it.
    items = re.split(r",(?![^,:]*=)", families) if isinstance(families, str) else families
    fitting: dict[str, Family] = {}
    for item in items:
        if isinstance(item, Family):
            candidates = [item]
            exact = True
        else:
            specification = item.strip()
            exact = specification.partition(":")[0] in FAMILIES
            candidates = _build(specification, exact)
        for family in candidates:
            reason = family.unfit(scene)
            if not reason:
                fitting[family.name] = family
            elif exact:
                model = type(scene.lens.model).__name__
                raise BadInput(f"The family {family.name} is not used by {model}: {reason}.")
    return list(fitting.values())


def _build(specification: str, exact: bool) -> list[Family]:
    if not specification:
        return []
    if exact:
        return [FAMILIES.build(specification)]
    return [FAMILIES.build(name) for name in FAMILIES.match(specification)]


@FAMILIES.register("qk_logit_max")
class QKLogitMax(Family):
    """The largest attention logit of a block, the norms of queries, keys and values, and the least
    entropy of a head.

    `max`: over heads, queries and keys of the first window. `entropy`: of the head that has least,
    over that of uniform weights, in [0, 1]. `query_norm`, `key_norm`, `value_norm`: means. After
    rotary positions, before a soft cap.
    """

    def attend(self, store: Store, block: str, call: AttentionCall) -> None:
        store.most(f"{block}/max", call.maximum)
        store.mean(f"{block}/entropy", call.entropy)
        for vectors, norm in call.norms.items():
            store.mean(f"{block}/{vectors}_norm", norm)

    def finish(self, raw: Raw, _scene: Scene) -> dict[str, float]:
        least = {
            name: float(value.min()) for name, value in raw.items() if name.endswith("entropy")
        }
        largest = {name: float(value.max()) for name, value in raw.items() if name not in least}
        # -inf: nothing was attended to.
        return least | {name: value for name, value in largest.items() if value != -math.inf}


@FAMILIES.register("branch_ratio")
class BranchRatio(Family):
    """The size of each branch against the stream, and of the entries at five points of a block.

    The points: `input`, the first branch, `middle` (their sum, where a block has two branches), the
    second branch, `output`; the input of a block is the output of the one before and is given once.
    `ratio`: mean over tokens of the branch's norm over that of the block's input. `p99`, `max`: of
    absolute entries. `headroom`: the largest of the block over the largest number of its precision.
    """

    def see(self, scene: Scene, store: Store, site: str, states: Tensor) -> None:
        real = scene.real(site, states.shape[:2])
        block = site if is_block(site) else site.rpartition(".")[0]
        if block not in scene.blocks:
            first_block = next(iter(scene.blocks))
            self._sizes(store, first_block, "input", states, real)
            scene.held = {"stream": states.detach().clone()}
        elif site == block:
            self._sizes(store, block, "output", states, real)
            scene.held = {"stream": states.detach().clone()}
        else:
            self._see_branch(scene, store, site, block, states, real)

    def _see_branch(
        self,
        scene: Scene,
        store: Store,
        site: str,
        block: str,
        states: Tensor,
        real: Tensor | None,
    ) -> None:
        branch = site.rpartition(".")[2]
        self._sizes(store, block, branch, states, real)
        stream = scene.held.get("stream")
        if stream is None or stream.shape != states.shape:
            return
        branch_norms = torch.linalg.vector_norm(states.detach().float(), dim=-1)
        stream_norms = torch.linalg.vector_norm(stream.detach().float(), dim=-1)
        counted = stream_norms != 0  # a stream of norm zero has no ratio
        if real is not None:
            counted &= real
        ratios = branch_norms / stream_norms.clamp(min=1e-12)
        store.mean(f"{block}/{branch}_ratio", mean_of(ratios, counted))

        branches = [other for other in scene.lens.sites if other.startswith(f"{block}.")]
        if "branch" not in scene.held and len(branches) == 2:
            self._sizes(store, block, "middle", stream + states.detach(), real)
        scene.held["branch"] = states

    def _sizes(
        self, store: Store, block: str, point: str, states: Tensor, real: Tensor | None
    ) -> None:
        sizes = states.detach().abs()
        counted = None
        if real is not None:
            sizes = sizes.masked_fill(~real[..., None], 0.0)
            counted = real[..., None].expand_as(sizes).flatten()
        sizes = sizes.flatten()
        step = max(1, -(-len(sizes) // SAMPLE))
        sampled = None if counted is None else counted[::step]
        largest = sizes.amax()
        percentile = percentile_of(sizes[::step].float(), sampled)
        store.most(f"{block}/{point}_max", largest)
        store.most(f"{block}/{point}_p99", percentile)
        store.most(f"{block}/headroom", largest.double() / torch.finfo(states.dtype).max)


def percentile_of(values: Tensor, counted: Tensor | None) -> Tensor:
    """Return the 99th percentile of non-negative values [n], of those that are counted; nothing
    waits for the device.
    """
    if counted is None:
        return values.kthvalue(max(1, round(0.99 * len(values)))).values
    ordered = torch.where(counted, values, -1.0).sort().values
    number = counted.sum()
    rank = (0.99 * number).round().long().clamp(min=1)
    index = (len(values) - number + rank - 1).clamp(max=len(values) - 1)
    return ordered.gather(0, index[None])[0]


@FAMILIES.register("sinks")
class Sinks(Family):
    """Attention sinks at any position, and tokens that are far longer than their window's median.

    `attention`: the mean weight that the most attended position gets from those that see it (of
    positions that half of the window sees); `position`: which that is. `long`: share of tokens
    longer than three times the median, `long_later`: of those behind position 0.
    """

    def attend(self, store: Store, block: str, call: AttentionCall) -> None:
        often_seen = call.seen >= call.seen.amax() / 2
        received = torch.where(often_seen, call.received, 0.0)
        store.mean(f"{block}/attention", received.amax())
        store.most(f"{block}/position", received.argmax())

    def see(self, scene: Scene, store: Store, site: str, states: Tensor) -> None:
        if not is_block(site):
            return
        norms = torch.linalg.vector_norm(states.detach().float(), dim=-1)
        real = scene.real(site, norms.shape)
        if real is None:
            median = norms.median(-1, keepdim=True).values
            later = torch.ones_like(norms, dtype=torch.bool)
            later[..., 0] = False
        else:
            median = torch.where(real, norms, math.nan).nanmedian(-1, keepdim=True).values
            later = real & (real.cumsum(-1) > 1)
        long = (norms > FACTOR * median).float()
        store.mean(f"{site}/long", mean_of(long, real))
        store.mean(f"{site}/long_later", mean_of(long, later))


@FAMILIES.register("expert_load")
class ExpertLoad(Family):
    """Load, gate mass and entropy of the experts of a mixture, router by router.

    `least`, `most`: tokens that the least and the most used expert gets, over an equal share.
    `dead`: share of experts that get no token, and so no gradient, and to which the router gives
    less than a tenth of an equal probability. `mass`: the largest share of the gate's weights.
    `entropy`: of the router's probabilities, over that of a uniform choice.
    """

    def unfit(self, scene: Scene) -> str:
        return "" if scene.routers else "it has no router of experts"

    def route(
        self,
        store: Store,
        block: str,
        answer: tuple[Tensor, ...],
        real: Bool[Tensor, "B T"] | None = None,
    ) -> None:
        choices = [part for part in answer if part.ndim == 2 and not part.is_floating_point()]
        scores = [part.detach().float() for part in answer if part.is_floating_point()]
        if not choices or not scores:
            return
        expert_ids = choices[0]
        scores.sort(key=_width)
        narrowest = scores[0]
        shares = _probabilities(scores[-1])
        gates = narrowest
        if narrowest.shape != expert_ids.shape:
            gates = shares.gather(1, expert_ids)

        counted = torch.ones_like(shares[:, :1], dtype=torch.bool)
        if real is not None and real.numel() == len(shares):
            counted = real.reshape(-1, 1)
        shares = torch.where(counted, shares, 0.0)
        gates = torch.where(counted, gates, 0.0)
        tokens = counted.sum().clamp(min=1)
        experts = shares.shape[-1]
        zeros = torch.zeros_like(shares[0])
        flat_ids = expert_ids.flatten()
        uses = counted.expand_as(gates).to(gates.dtype).flatten()
        load = zeros.scatter_add(0, flat_ids, uses)
        mass = zeros.scatter_add(0, flat_ids, gates.flatten())
        entropy = -torch.special.xlogy(shares, shares).sum() / tokens
        store.mean(f"{block}/load", load / (tokens * expert_ids.shape[1]))
        store.mean(f"{block}/chance", shares.sum(0) / tokens * experts)
        store.mean(f"{block}/mass", mass / mass.sum().clamp(min=1e-12))
        store.mean(f"{block}/entropy", entropy / math.log(max(experts, 2)))

    def finish(self, raw: Raw, _scene: Scene) -> dict[str, float]:
        numbers = {
            name: float(value.max())
            for name, value in raw.items()
            if not name.endswith(("/load", "/chance"))
        }
        for name, load in raw.items():
            if name.endswith("/load"):
                block = name.removesuffix("/load")
                over_equal = load * load.size
                dead = (over_equal == 0) & (raw[f"{block}/chance"] < LOW_CHANCE)
                numbers[f"{block}/least"] = float(over_equal.min())
                numbers[f"{block}/most"] = float(over_equal.max())
                numbers[f"{block}/dead"] = float(dead.mean())
        return numbers


def _width(tensor: Tensor) -> int:
    return tensor.shape[-1]


def _probabilities(scores: Tensor) -> Tensor:
    """Return the probabilities of a router, whose scores are probabilities or logits."""
    in_range = scores.amin() >= 0
    sums_to_one = (scores.sum(-1) - 1).abs().amax() < 1e-3
    return torch.where(in_range & sums_to_one, scores, scores.softmax(-1))


def local_part(tensor: Tensor) -> Tensor:
    """Return the part of a tensor that this process holds."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
