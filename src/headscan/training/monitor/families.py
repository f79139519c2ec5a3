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
from collections.abc import Iterable
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
from headscan.training.monitor.scene import AttentionCall, Scene, Store, mean_of

Raw = dict[str, npt.NDArray[np.float64]]
Every = TypeAliasType("Every", Annotated[int, Option("Steps between readings.", low=1)])
# entries of which a percentile is taken
SAMPLE = 2**16
RANK = 32  # leading directions of a matrix that are looked at


@dataclass(frozen=True, kw_only=True)
class Family(Settings, ABC):
    """One family of numbers, read every so many steps; the first step is always read. `unfit` says
    why a model has none of it.

    Of a step on its clock a family is shown: `see` each site, `attend` each attention call, `route`
    each router, `before` the weights move and `after`. Values are named WHERE/WHAT; one that is not
    finite raises HS517. Padding is in no number.
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

    def route(
        self,
        store: Store,
        block: str,
        answer: tuple[Tensor, ...],
        real: Bool[Tensor, "B T"] | None = None,
    ) -> None: ...

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
        least = {
            name: float(value.min()) for name, value in raw.items() if name.endswith("entropy")
        }
        largest = {name: float(value.max()) for name, value in raw.items() if name not in least}
        # -inf: nothing was attended to
        return least | {name: value for name, value in largest.items() if value != -math.inf}


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
        real = scene.real(site, states.shape[:2])
        if (
            block not in scene.blocks or site == block
        ):  # the stream: what the first block is given, or a block's output
            first = block not in scene.blocks
            self._sizes(
                store,
                next(iter(scene.blocks)) if first else block,
                "input" if first else "output",
                states,
                real,
            )
            scene.held = {"stream": states.detach().clone()}
            return
        kind = site.rpartition(".")[2]
        stream = scene.held.get("stream")
        self._sizes(store, block, kind, states, real)
        if stream is None or stream.shape != states.shape:
            return
        norms = [
            torch.linalg.vector_norm(each.detach().float(), dim=-1) for each in (states, stream)
        ]
        counted = norms[1] != 0  # a stream of norm zero has no ratio
        if real is not None:
            counted &= real
        store.mean(f"{block}/{kind}_ratio", mean_of(norms[0] / norms[1].clamp(min=1e-12), counted))
        if (
            "branch" not in scene.held
            and len([one for one in scene.lens.sites if one.startswith(f"{block}.")]) == 2
        ):
            self._sizes(store, block, "middle", stream + states.detach(), real)
        scene.held["branch"] = states

    def _sizes(
        self, store: Store, block: str, place: str, states: Tensor, real: Tensor | None
    ) -> None:
        sizes = states.detach().abs()
        counted = None
        if real is not None:
            sizes = sizes.masked_fill(~real[..., None], 0.0)
            counted = real[..., None].expand_as(sizes).flatten()
        sizes = sizes.flatten()
        step = max(1, -(-len(sizes) // SAMPLE))
        largest = sizes.amax()
        percentile = percentile_of(
            sizes[::step].float(), None if counted is None else counted[::step]
        )
        store.most(f"{block}/{place}_max", largest)
        store.most(f"{block}/{place}_p99", percentile)
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
    place = (len(values) - number + rank - 1).clamp(max=len(values) - 1)
    return ordered.gather(0, place[None])[0]


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
            real = scene.real(site, norms.shape)
            if real is None:
                long = (norms > FACTOR * norms.median(-1, keepdim=True).values).float()
                later = torch.ones_like(norms, dtype=torch.bool)
                later[..., 0] = False
            else:
                median = torch.where(real, norms, math.nan).nanmedian(-1, keepdim=True).values
                long = (norms > FACTOR * median).float()
                later = real & (real.cumsum(-1) > 1)
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
        counted = torch.ones_like(shares[:, :1], dtype=torch.bool)
        if real is not None and real.numel() == len(shares):
            counted = real.reshape(-1, 1)
        shares = torch.where(counted, shares, 0.0)
        gates = torch.where(counted, gates, 0.0)
        tokens = counted.sum().clamp(min=1)
        none = torch.zeros_like(shares[0])
        at = chosen.flatten()
        load = none.scatter_add(0, at, counted.expand_as(gates).to(gates.dtype).flatten())
        mass = none.scatter_add(0, at, gates.flatten())
        store.mean(f"{block}/load", load / (tokens * chosen.shape[1]))
        store.mean(f"{block}/chance", shares.sum(0) / tokens * shares.shape[-1])
        store.mean(f"{block}/mass", mass / mass.sum().clamp(min=1e-12))
        entropy = -torch.special.xlogy(shares, shares).sum() / tokens
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
    directions, 32 at most), `row_norm` and `row_spread` (the longest row over the median one, where
    that is not zero).
    """
    found: dict[str, float] = {}
    for name, gram in ((key[:-5], gram) for key, gram in raw.items() if key.endswith("/gram")):
        energy, mean, most, median = raw[f"{name}/rows"].tolist()
        found[f"{name}/row_norm"] = mean
        if median != 0:
            found[f"{name}/row_spread"] = most / median
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
    """The same of the last update of every matrix; `relative`: its norm over that of the weights,
    where that is not zero.

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
            store.mean(f"{name}/norms", torch.stack([update.float().norm(), old.float().norm()]))
        scene.copies = {}

    def finish(self, raw: Raw, scene: Scene) -> dict[str, float]:
        norms = {
            name.removesuffix("norms"): value
            for name, value in raw.items()
            if name.endswith("/norms")
        }
        moved = {
            f"{name}relative": float(update / old)
            for name, (update, old) in norms.items()
            if old != 0
        }
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
        inside = scene.block_of
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
        if total == 0 or not math.isfinite(
            total
        ):  # gradients that are not finite are counted by the family `nonfinite`
            return {}
        return {name: float(value) / total for name, value in raw.items()}


@FAMILIES.register("nonfinite")
class FiniteTensors(Family):
    """How many weights and gradients (`WHERE.weights`, `WHERE.gradient`) of each block have a NaN
    or infinite entry.

    `tensors`: their number; 0 in a healthy run. Under a gradient scaler (fp16) gradients are left
    out: the scaler drops steps whose gradients are infinite.
    """

    every: Every = 10

    def before(self, scene: Scene, store: Store, step: int) -> None:
        if not scene.scaled:
            gradients = (
                (id(weight), weight.grad)
                for weight in scene.lens.model.parameters()
                if weight.grad is not None
            )
            self._count(scene, store, "gradient", gradients)

    def after(self, scene: Scene, store: Store, step: int) -> None:
        weights = ((id(weight), weight) for weight in scene.lens.model.parameters())
        self._count(scene, store, "weights", weights)

    def _count(
        self, scene: Scene, store: Store, kind: str, tensors: Iterable[tuple[int, Tensor]]
    ) -> None:
        inside = scene.block_of
        broken = dict.fromkeys(
            [*scene.blocks, "outside"], torch.zeros((), device=scene.lens.device)
        )
        for key, tensor in tensors:
            part = tensor.to_local() if isinstance(tensor, DTensor) else tensor
            if part.is_floating_point() and part.element_size() > 1:
                total = part.detach().sum(dtype=torch.promote_types(part.dtype, torch.float32))
                block = inside.get(key, "outside")
                broken[block] = broken[block] + (~total.isfinite()).float().to(scene.lens.device)
        for block, count in broken.items():
            store.most(f"{block}.{kind}/tensors", count)


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
