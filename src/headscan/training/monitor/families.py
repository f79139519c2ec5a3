"""What the monitor reads of a training step, one class a family, each on its own clock.

A family sees the step from inside: what passes the sites, the attention calls, the routers, the
gradients, the weights and their update. It leaves tensors on the device they are on, in a `Store`;
nothing here waits for the device. What they mean is worked out on the CPU one step later
(`finish`), when they have arrived.
"""

from __future__ import annotations

import math
import re
from abc import ABC
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.distributed.tensor import DTensor
from typing_extensions import TypeAliasType

from headscan.model import Lens
from headscan.model.sites import is_block
from headscan.run import BadInput, Option, Registry, Settings
from headscan.statistics.sinks import FACTOR

Raw = dict[str, npt.NDArray[np.float64]]
Every = TypeAliasType("Every", Annotated[int, Option("Steps between readings.", low=1)])
# attention scores held at a time; entries of which a percentile is taken
CELLS = 2**22
SAMPLE = 2**16
# in which pairs of tokens are counted, by a hash; what one that was never read counts as
BUCKETS = 2**16
UNSEEN = 0.01
RANK = 32  # leading directions of a matrix that are looked at


class Store:
    """What a family leaves of a step: tensors on the device, by name; of several micro-batches the
    largest or the mean.
    """

    def __init__(self) -> None:
        self.largest: dict[str, Tensor] = {}
        self.sums: dict[str, Tensor] = {}
        self.counts: dict[str, int] = {}
        self.local: dict[str, Tensor] = {}  # of this process alone

    def most(self, name: str, value: Tensor) -> None:
        """Keep the larger one, entry by entry; NaN stays."""
        value = value.detach().float()
        self.largest[name] = (
            torch.maximum(self.largest[name], value) if name in self.largest else value
        )

    def mean(self, name: str, value: Tensor) -> None:
        """Add to a mean."""
        value = value.detach().float()
        self.sums[name] = self.sums[name] + value if name in self.sums else value
        self.counts[name] = self.counts.get(name, 0) + 1


@dataclass
class Scene:
    """The model in training as the families see it: its blocks, routers and matrices, and what they
    remember.

    held, copies: tensors of the step under way. read: windows since the last look, on the device.
    seen: windows, by their hash, with the step at which they were read last; one that comes back
    within `horizon` steps is repeated. counts: token pairs.
    """

    lens: Lens
    held: dict[str, Tensor] = field(default_factory=dict)
    copies: dict[str, Tensor] = field(default_factory=dict)
    read: list[Tensor] = field(default_factory=list)
    seen: dict[int, int] = field(default_factory=dict)
    horizon: float = 100.0
    counts: Int[Tensor, " buckets"] = field(
        default_factory=lambda: torch.zeros(BUCKETS, dtype=torch.long)
    )

    def __post_init__(self) -> None:
        stacks = [
            (stack.prefix, block) for stack in self.lens.stacks for block in enumerate(stack.blocks)
        ]
        self.blocks = {f"{prefix}block.{number}": block for prefix, (number, block) in stacks}
        self.owner = {
            id(part): name for name, block in self.blocks.items() for part in block.modules()
        }
        routers = [
            part
            for part in self.lens.model.modules()
            if re.search(r"Router|Gate$", type(part).__name__)
        ]
        self.routers = {self.owner[id(part)]: part for part in routers if id(part) in self.owner}

    @property
    def matrices(self) -> dict[str, Tensor]:
        """The matrices of weights as they are now: fully_shard puts others in their place."""
        named = self.lens.model.named_parameters()
        return {
            name: weight for name, weight in named if weight.ndim > 1 and weight.is_floating_point()
        }


class AttentionCall(NamedTuple):
    """What the first window's scores of an attention call say: by head the largest logit, and the
    mean entropy over that of uniform weights; by position the mean weight on it, over heads and the
    queries that see it, and their number. And the mean norms of queries, keys and values.
    """

    maximum: Float[Tensor, " H"]
    entropy: Float[Tensor, " H"]
    received: Float[Tensor, " T"]
    seen: Float[Tensor, " T"]
    norms: dict[str, Tensor]


def look_at(
    query: Float[Tensor, "B H T e"],
    key: Float[Tensor, "B K T e"],
    value: Float[Tensor, "B K T e"],
    mask: Tensor | None,
    scaling: float | None,
    causal: bool,
) -> AttentionCall:
    """Of one attention call (K divides H), in pieces, so that no T x T matrix is held."""
    q, k, v = (each[:1].detach().float() for each in (query, key, value))
    norms = {
        name: torch.linalg.vector_norm(x, dim=-1).mean()
        for name, x in (("query", q), ("key", k), ("value", v))
    }
    heads, length, width = q.shape[1:]
    k = k.repeat_interleave(heads // k.shape[1], dim=1)
    keys = k.shape[2]
    at = torch.arange(keys, device=q.device)
    top = q.new_full((heads,), -torch.inf)
    entropy = q.new_zeros(heads)
    rows = q.new_zeros(())
    received = q.new_zeros(keys)
    seen = q.new_zeros(keys)
    size = max(1, CELLS // (heads * keys))
    for start in range(0, length, size):
        scores = (
            q[:, :, start : start + size]
            @ k.transpose(-1, -2)
            * (width**-0.5 if scaling is None else scaling)
        )
        allowed = torch.ones_like(scores[:, :1], dtype=torch.bool)
        if causal:
            allowed &= (
                at
                <= torch.arange(start, start + scores.shape[2], device=q.device)[:, None]
                + keys
                - length
            )
        if mask is not None and mask.ndim == 4:
            some = mask[:1, :1, start : start + size, :keys]
            allowed &= some if some.dtype == torch.bool else some > -1e4
        elif mask is not None and mask.ndim == 2:
            allowed &= mask[:1, None, None, :keys].bool()
        scores = scores.masked_fill(~allowed, -torch.inf)
        weights = torch.softmax(scores, -1).nan_to_num()
        visible = allowed.float().sum(-1)
        several = (visible > 1).float()
        top = torch.maximum(top, scores.amax((0, 2, 3)))
        entropies = -torch.special.xlogy(weights, weights).sum(-1)
        entropy = entropy + (several * entropies / visible.clamp(min=2).log()).sum((0, 2))
        rows = rows + several.sum()
        received = received + weights.mean(1).sum((0, 1))
        seen = seen + allowed.float().sum((0, 1, 2))
    return AttentionCall(
        top, entropy / rows.clamp(min=1), received / seen.clamp(min=1), seen, norms
    )


@dataclass(frozen=True, kw_only=True)
class Family(Settings, ABC):
    """One family of numbers, read every so many steps; the first step is always read. `unfit` says
    why a model has none of it.

    Of a step on its clock a family is shown: `see` each site, `attend` each attention call, `route`
    each router, `before` the weights move and `after`. Values are named WHERE/WHAT.
    """

    every: Every = 50

    @property
    def name(self) -> str:
        return FAMILIES.name_of(self)

    def unfit(self, scene: Scene) -> str:
        """Why this model has nothing to read; "" where it has."""
        return ""

    def see(self, scene: Scene, store: Store, site: str, states: Tensor) -> None: ...

    def attend(self, store: Store, block: str, call: AttentionCall) -> None: ...

    def route(self, store: Store, block: str, answer: tuple[Tensor, ...]) -> None: ...

    def before(self, scene: Scene, store: Store, step: int) -> None: ...

    def after(self, scene: Scene, store: Store, step: int) -> None: ...

    def finish(self, raw: Raw, scene: Scene) -> dict[str, float]:
        """The numbers of what arrived, on the CPU."""
        return {name: float(value) for name, value in raw.items()}


FAMILIES: Registry[type[Family]] = Registry(
    "family of the monitor", "headscan.training.monitor.families"
)
"""All families by name; `Monitor(families="qk_*,expert_load:every=10")` chooses among them."""


def families_of(given: str | list[Family], scene: Scene) -> list[Family]:
    """Those that globs or NAME:KEY=VALUE name, "" for none; BadInput where one that is named has
    nothing to read.
    """
    found: dict[str, Family] = {}
    for one in re.split(r",(?![^,:]*=)", given) if isinstance(given, str) else given:
        spec = one.strip() if isinstance(one, str) else one.name
        exact = spec.partition(":")[0] in FAMILIES
        names = [] if not spec else [spec] if exact else FAMILIES.match(spec)
        for family in (
            [one] if isinstance(one, Family) else [FAMILIES.build(name) for name in names]
        ):
            reason = family.unfit(scene)
            if reason and exact:
                raise BadInput(
                    f"The family {family.name} is not used by {type(scene.lens.model).__name__}: "
                    f"{reason}."
                )
            found |= {} if reason else {family.name: family}
    return list(found.values())


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
        for what, norm in call.norms.items():
            store.mean(f"{block}/{what}_norm", norm)

    def finish(self, raw: Raw, scene: Scene) -> dict[str, float]:
        return {
            name: float(value.min() if name.endswith("entropy") else value.max())
            for name, value in raw.items()
        }


@FAMILIES.register("branch_ratio")
class BranchRatio(Family):
    """What each branch writes against the stream, and how large entries are at five places of a
    block.

    The places: `input`, the first branch, `middle` (their sum, where a block has two branches), the
    second branch, `output`; the input of a block is the output of the one before and is given once.
    `ratio`: mean over tokens of the branch's norm over that of the block's input. `p99`, `max`: of
    absolute entries. `headroom`: the largest of the block over the largest number of its precision.
    """

    def see(self, scene: Scene, store: Store, site: str, states: Tensor) -> None:
        block = site if is_block(site) else site.rpartition(".")[0]
        if (
            block not in scene.blocks or site == block
        ):  # the stream: what the first block is given, or a block's output
            first = block not in scene.blocks
            self._sizes(
                store,
                next(iter(scene.blocks)) if first else block,
                "input" if first else "output",
                states,
            )
            scene.held = {"stream": states.detach().clone()}
            return
        kind = site.rpartition(".")[2]
        stream = scene.held.get("stream")
        self._sizes(store, block, kind, states)
        if stream is None or stream.shape != states.shape:
            return
        norms = [
            torch.linalg.vector_norm(each.detach().float(), dim=-1) for each in (states, stream)
        ]
        store.mean(f"{block}/{kind}_ratio", (norms[0] / norms[1].clamp(min=1e-12)).mean())
        if (
            "branch" not in scene.held
            and len([one for one in scene.lens.sites if one.startswith(f"{block}.")]) == 2
        ):
            self._sizes(store, block, "middle", stream + states.detach())
        scene.held["branch"] = states

    def _sizes(self, store: Store, block: str, place: str, states: Tensor) -> None:
        sizes = states.detach().abs().flatten()
        some = sizes[:: max(1, -(-len(sizes) // SAMPLE))]
        largest = sizes.amax()
        store.most(f"{block}/{place}_max", largest)
        store.most(
            f"{block}/{place}_p99", some.float().kthvalue(max(1, round(0.99 * len(some)))).values
        )
        store.most(f"{block}/headroom", largest.double() / torch.finfo(states.dtype).max)


@FAMILIES.register("sinks")
class Sinks(Family):
    """Attention sinks at any position, and tokens that are far longer than their window's median.

    `attention`: the mean weight that the most attended position gets from those that see it (of
    positions that half of the window sees); `position`: which that is. `long`: share of tokens
    longer than three times the median, `long_later`: of those behind position 0.
    """

    def attend(self, store: Store, block: str, call: AttentionCall) -> None:
        often = torch.where(call.seen >= call.seen.amax() / 2, call.received, 0.0)
        store.mean(f"{block}/attention", often.amax())
        store.most(f"{block}/position", often.argmax())

    def see(self, scene: Scene, store: Store, site: str, states: Tensor) -> None:
        if is_block(site):
            norms = torch.linalg.vector_norm(states.detach().float(), dim=-1)
            long = (norms > FACTOR * norms.median(-1, keepdim=True).values).float()
            store.mean(f"{site}/long", long.mean())
            store.mean(f"{site}/long_later", long[..., 1:].mean())


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

    def route(self, store: Store, block: str, answer: tuple[Tensor, ...]) -> None:
        chosen = next(
            (one for one in answer if one.ndim == 2 and not one.is_floating_point()), None
        )
        scores = sorted(
            (one.detach().float() for one in answer if one.is_floating_point()),
            key=lambda one: one.shape[-1],
        )
        if chosen is None or not scores:
            return
        # probabilities, no logits
        given = (scores[-1].amin() >= 0) & ((scores[-1].sum(-1) - 1).abs().amax() < 1e-3)
        shares = torch.where(given, scores[-1], scores[-1].softmax(-1))
        gates = scores[0] if scores[0].shape == chosen.shape else shares.gather(1, chosen)
        none = torch.zeros_like(shares[0])
        at = chosen.flatten()
        both = (torch.ones_like(gates), gates)
        load, mass = (none.scatter_add(0, at, each.flatten()) for each in both)
        store.mean(f"{block}/load", load / chosen.numel())
        store.mean(f"{block}/chance", shares.mean(0) * shares.shape[-1])
        store.mean(f"{block}/mass", mass / mass.sum().clamp(min=1e-12))
        entropy = -torch.special.xlogy(shares, shares).sum(-1).mean()
        store.mean(f"{block}/entropy", entropy / math.log(max(shares.shape[-1], 2)))

    def finish(self, raw: Raw, scene: Scene) -> dict[str, float]:
        found = {
            name: float(value.max())
            for name, value in raw.items()
            if not name.endswith(("/load", "/chance"))
        }
        for block, equal in (
            (name[:-5], value * value.size) for name, value in raw.items() if name.endswith("/load")
        ):
            # in 91 healthy runs one without a token had 0.63 or more
            dead = (equal == 0) & (raw[f"{block}/chance"] < 0.1)
            numbers = {"least": equal.min(), "most": equal.max(), "dead": dead.mean()}
            found |= {f"{block}/{what}": float(number) for what, number in numbers.items()}
        return found


def whole(tensor: Tensor) -> Tensor:
    """A tensor that processes share as each of them needs it: with all its parts, detached."""
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach()


def leave_spectrum(store: Store, name: str, matrix: Tensor) -> None:
    """What of a matrix its stable rank and spectral tail follow from: its energy, and the Gram
    matrix of twice as many of its leading directions as are looked at.

    Block power iteration from a fixed start (Halko, Martinsson and Tropp 2011, algorithm 4.4): no
    decomposition that waits for the device. Experts [E, m, n] count as one tall matrix, a kernel of
    one place [m, n, 1] as [m, n].
    """
    matrix = matrix.squeeze(-1) if matrix.ndim > 2 else matrix
    rows = matrix.reshape(-1, matrix.shape[-1]).float()
    start = torch.Generator(rows.device).manual_seed(0)
    leading = min(RANK, -(-min(rows.shape) // 4))
    basis = rows @ torch.randn(
        rows.shape[1], min(2 * leading, *rows.shape), generator=start, device=rows.device
    )
    for _ in range(3):
        basis = rows @ (rows.T @ torch.linalg.qr(basis).Q)
    image = torch.linalg.qr(basis).Q.T @ rows
    norms = torch.linalg.vector_norm(rows, dim=1)
    store.mean(f"{name}/gram", image @ image.T)
    store.mean(
        f"{name}/rows",
        torch.stack([rows.square().sum(), norms.mean(), norms.amax(), norms.median()]),
    )


def spectra_of(raw: Raw) -> dict[str, float]:
    """Of each matrix `stable_rank` ‖W‖²_F/σ₁², `tail` (energy outside the leading quarter of
    directions, 32 at most), `row_norm` and `row_spread` (the longest row over the median one).
    """
    found: dict[str, float] = {}
    for name, gram in ((key[:-5], gram) for key, gram in raw.items() if key.endswith("/gram")):
        energy, mean, most, median = raw[f"{name}/rows"].tolist()
        found[f"{name}/row_norm"], found[f"{name}/row_spread"] = mean, most / max(median, 1e-30)
        if energy > 0 and np.isfinite(gram).all():
            values = np.linalg.eigvalsh(gram)[len(gram) // 2 :]
            found[f"{name}/stable_rank"] = energy / float(values[-1])
            found[f"{name}/tail"] = min(1.0, max(0.0, 1 - float(values.sum()) / energy))
    return found


@FAMILIES.register("weight_stable_rank")
class WeightStableRank(Family):
    """Stable rank, spectral tail and row norms of every matrix of weights."""

    every: Every = 200

    def after(self, scene: Scene, store: Store, step: int) -> None:
        for name, weight in scene.matrices.items():
            leave_spectrum(store, name, whole(weight))

    def finish(self, raw: Raw, scene: Scene) -> dict[str, float]:
        return spectra_of(raw)


@FAMILIES.register("update_stable_rank")
class UpdateStableRank(Family):
    """The same of the last update of every matrix; `relative`: its norm over that of the weights.

    `against_mean`: the relative update over the mean one of all matrices: 0 where a layer is
    frozen. It holds copies of weights for one step; where they are more than `most` MiB, matrices
    take turns.
    """

    every: Every = 200
    most: Annotated[int, Option("Memory for copies of weights, MiB.", low=1)] = 1024

    def before(self, scene: Scene, store: Store, step: int) -> None:
        matrices = list(scene.matrices.items())
        size = sum(weight.numel() * weight.element_size() for _, weight in matrices)
        turns = -(-size // (self.most * 2**20))
        scene.copies = {
            name: whole(weight).clone()
            for name, weight in matrices[(step // self.every) % turns :: turns]
        }

    def after(self, scene: Scene, store: Store, step: int) -> None:
        matrices = scene.matrices
        for name, old in scene.copies.items():
            update = whole(matrices[name]) - old
            leave_spectrum(store, name, update)
            store.mean(
                f"{name}/relative", update.float().norm() / old.float().norm().clamp(min=1e-30)
            )
        scene.copies = {}

    def finish(self, raw: Raw, scene: Scene) -> dict[str, float]:
        moved = {name: float(value) for name, value in raw.items() if name.endswith("/relative")}
        mean = float(np.mean(list(moved.values()))) if moved else 0.0
        shares = {
            name.replace("/relative", "/against_mean"): value / mean
            for name, value in moved.items()
            if mean > 0
        }
        return spectra_of(raw) | moved | shares


@FAMILIES.register("gradient_share")
class GradientShare(Family):
    """The share of the gradient's energy that falls on each block, and on what stands outside of
    blocks.

    What the head keeps of the logits' gradient is measured with the geometry, and logged beside it.
    """

    def before(self, scene: Scene, store: Store, step: int) -> None:
        inside = {
            id(weight): name
            for name, block in scene.blocks.items()
            for weight in block.parameters()
        }
        energies = dict.fromkeys(
            [*scene.blocks, "outside"], torch.zeros((), device=scene.lens.device)
        )
        for weight in scene.lens.model.parameters():
            if (slope := weight.grad) is not None:
                slope = slope.to_local() if isinstance(slope, DTensor) else slope
                place = inside.get(id(weight), "outside")
                energies[place] = energies[place] + slope.detach().float().square().sum()
        for name, energy in energies.items():
            store.mean(f"{name}/share", energy)

    def finish(self, raw: Raw, scene: Scene) -> dict[str, float]:
        total = sum(float(value) for value in raw.values())
        return {name: float(value) / total for name, value in raw.items()} if total > 0 else {}


@FAMILIES.register("repeated")
class Repeated(Family):
    """`windows/share`: of the windows read since the last reading, those that were read before
    within the last 100 steps (a quarter of an epoch, where that is shorter); `windows/surprise`:
    the mean -log of how often their pairs of tokens were read before, nats. Every step is looked
    at; under torch.compile those on the clock.
    """

    every: Every = 10

    def after(self, scene: Scene, store: Store, step: int) -> None:
        store.local |= {"windows": torch.cat(scene.read)} if scene.read else {}
        scene.read = []

    def finish(self, raw: Raw, scene: Scene) -> dict[str, float]:
        windows = raw.get("windows", np.zeros((0, 4))).astype(np.int64).tolist()
        again = 0
        for step, high, low, _ in windows:
            again += step - scene.seen.get(key := (high << 24) + low, -math.inf) <= scene.horizon
            scene.seen[key] = step
        scene.seen = (
            {key: step for key, step in scene.seen.items() if step >= windows[-1][0] - 100}
            if windows
            else scene.seen
        )
        surprise = sum(nats for *_, nats in windows) / 1000 / max(1, len(windows))
        return (
            {"windows/share": again / len(windows), "windows/surprise": surprise} if windows else {}
        )


def hashed(ids: Int[Tensor, "windows T"], step: int, scene: Scene) -> Int[Tensor, "windows 4"]:
    """Of each window the step, a number below 2⁴⁸, in two halves that float32 holds exactly, and
    thousandths of a nat: the mean -log of the share of its pairs of tokens among those counted
    before. They are counted.
    """
    start = torch.Generator(ids.device).manual_seed(0)
    factors = torch.randint(1, 2**62, (ids.shape[1],), generator=start, device=ids.device)
    sums = ((ids.long() + 1) * factors).sum(1)
    mixed = (sums ^ (sums >> 21)) & (2**48 - 1)
    scene.counts = counts = scene.counts.to(ids.device)
    pairs = (ids[:, :-1].long() * 40_503 + ids[:, 1:]) % BUCKETS
    nats = (counts.sum() + UNSEEN * BUCKETS).log() - (counts[pairs] + UNSEEN).log().mean(1)
    counts.index_add_(0, pairs.flatten(), torch.ones_like(pairs).flatten())
    return torch.stack(
        [torch.full_like(mixed, step), mixed >> 24, mixed & (2**24 - 1), (1000 * nats).long()], 1
    )
