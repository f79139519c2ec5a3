"""The families of the monitor that read weights, their updates and their gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributed.tensor import DTensor

from headscan.run import Option
from headscan.training.monitor.families import (
    FAMILIES,
    OUTSIDE,
    Every,
    Family,
    Raw,
    local_part,
)
from headscan.training.monitor.scene import Scene, Store

RANK = 32
"""Leading directions of a matrix whose energies are computed."""

RANK_ROUNDING = 1e-14
"""Share of the energy of columns that is added to each, so that dependent ones have a Cholesky
factor.
"""

MIB = 2**20

TOGETHER = 2**24
"""Entries of matrices of one shape, 64 MiB in float32, that are multiplied together."""


def whole(tensor: Tensor) -> Tensor:
    """Return a tensor with the parts of all processes, detached."""
    if isinstance(tensor, DTensor):
        tensor = tensor.full_tensor()
    return tensor.detach()


def leave_spectra(store: Store, matrices: Mapping[str, Tensor]) -> None:
    """Store the energy of each matrix and the Gram matrix of its leading directions (twice as many
    as are used), from which its stable rank and spectral tail follow.

    Block power iteration from a fixed start (Halko, Martinsson and Tropp 2011, algorithm 4.4): no
    decomposition that waits for the device. Matrices of one shape are multiplied together. Experts
    [E, m, n] count as one tall matrix, a kernel of width one [m, n, 1] as [m, n].
    """
    alike: dict[tuple[torch.Size, torch.device], list[str]] = {}
    for name, matrix in matrices.items():
        alike.setdefault((matrix.shape, matrix.device), []).append(name)
    for (shape, _), names in alike.items():
        size = max(1, TOGETHER // shape.numel())
        for start in range(0, len(names), size):
            group = names[start : start + size]
            rows = [_rows(whole(matrices[name])) for name in group]
            # A large matrix, which is alone, is not copied.
            together = rows[0][None] if len(rows) == 1 else torch.stack(rows)
            _leave_group(store, group, together)


def _rows(matrix: Tensor) -> Float[Tensor, "m n"]:
    matrix = matrix.squeeze(-1) if matrix.ndim > 2 else matrix
    return matrix.reshape(-1, matrix.shape[-1]).float()


def _leave_group(store: Store, names: Sequence[str], rows: Float[Tensor, "G m n"]) -> None:
    """Store what `leave_spectra` does of matrices of one shape."""
    generator = torch.Generator(rows.device).manual_seed(0)
    shape = rows.shape[1:]
    leading = min(RANK, -(-min(shape) // 4))
    directions = min(2 * leading, *shape)
    start = torch.randn(shape[1], directions, generator=generator, device=rows.device)
    basis = rows @ start
    for _ in range(3):
        basis = rows @ (rows.mT @ orthonormal(basis))
    image = orthonormal(basis).mT @ rows
    grams = image @ image.mT
    norms = torch.linalg.vector_norm(rows, dim=2)
    energy = norms.square().sum(1)
    median = norms.median(1).values
    row_numbers = torch.stack([energy, norms.mean(1), norms.amax(1), median], 1)
    for name, gram, numbers in zip(names, grams, row_numbers, strict=True):
        store.mean(f"{name}/gram", gram)
        store.mean(f"{name}/rows", numbers)


def orthonormal(basis: Tensor) -> Tensor:
    """Return an orthonormal basis of the span of columns [..., n, k].

    On an accelerator it comes from two Cholesky decompositions of the k x k products, in float64
    (Yamamoto et al. 2015): a few small steps, where a QR decomposition of tall matrices makes many.
    A direction that columns have by rounding only is shorter than 1 there.
    """
    if basis.device.type in ("cpu", "mps"):
        return torch.as_tensor(torch.linalg.qr(basis).Q)
    vectors = basis.double()
    for _ in range(2):
        gram = vectors.mT @ vectors
        diagonal = gram.diagonal(dim1=-2, dim2=-1)
        diagonal.add_(RANK_ROUNDING * diagonal.sum(-1, keepdim=True))
        factor = torch.linalg.cholesky_ex(gram).L
        vectors = torch.linalg.solve_triangular(factor, vectors.mT, upper=False).mT
    return vectors.to(basis.dtype)


def spectra_of(raw: Raw) -> dict[str, float]:
    """Return four numbers of each matrix.

    `stable_rank` ‖W‖²_F/σ₁², `tail` (energy outside the leading quarter of directions, 32 at most),
    `row_norm` and `row_spread` (the longest row over the median one, where that is not zero).
    """
    numbers: dict[str, float] = {}
    for key, gram in raw.items():
        if not key.endswith("/gram"):
            continue
        name = key.removesuffix("/gram")
        energy, mean, longest, median = raw[f"{name}/rows"].tolist()
        numbers[f"{name}/row_norm"] = mean
        if median != 0:
            numbers[f"{name}/row_spread"] = longest / median
        if energy > 0 and np.isfinite(gram).all():
            energies = np.linalg.eigvalsh(gram)[len(gram) // 2 :]
            tail = 1 - float(energies.sum()) / energy
            numbers[f"{name}/stable_rank"] = energy / float(energies[-1])
            numbers[f"{name}/tail"] = min(1.0, max(0.0, tail))
    return numbers


@FAMILIES.register("weight_stable_rank")
class WeightStableRank(Family):
    """Stable rank, spectral tail and row norms of every matrix of weights."""

    every: Every = 200

    def after(self, scene: Scene, store: Store, _step: int) -> None:
        leave_spectra(store, scene.matrices)

    def finish(self, raw: Raw, _scene: Scene) -> dict[str, float]:
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

    def before(self, scene: Scene, _store: Store, step: int) -> None:
        matrices = list(scene.matrices.items())
        size = sum(weight.numel() * weight.element_size() for _, weight in matrices)
        turns = -(-size // (self.most * MIB))
        turn = (step // self.every) % turns
        scene.copies = {name: whole(weight).clone() for name, weight in matrices[turn::turns]}

    def after(self, scene: Scene, store: Store, _step: int) -> None:
        matrices = scene.matrices
        copies = list(scene.copies.values())
        weight_norms = norms_of(copies, 2, scene.lens.device)
        for name, previous in scene.copies.items():
            previous.sub_(whole(matrices[name]))  # the update, but for its sign
        leave_spectra(store, scene.copies)
        norms = torch.stack([norms_of(copies, 2, scene.lens.device), weight_norms], 1)
        for name, pair in zip(scene.copies, norms, strict=True):
            store.mean(f"{name}/norms", pair)
        scene.copies = {}

    def finish(self, raw: Raw, _scene: Scene) -> dict[str, float]:
        relative: dict[str, float] = {}
        for key, value in raw.items():
            if key.endswith("/norms"):
                update_norm, weight_norm = value
                if weight_norm != 0:
                    relative[key.removesuffix("/norms")] = float(update_norm / weight_norm)
        numbers = spectra_of(raw)
        numbers |= {f"{name}/relative": value for name, value in relative.items()}
        mean = float(np.mean(list(relative.values()))) if relative else 0.0
        if mean > 0:
            numbers |= {f"{name}/against_mean": value / mean for name, value in relative.items()}
        return numbers


@FAMILIES.register("gradient_share")
class GradientShare(Family):
    """The share of the gradient's energy that falls on each block, and on what stands outside of
    blocks, and the gradient's norm there and in each parameter group of the optimizer (`group.0`),
    as the optimizer gets it: after clipping.

    What the head keeps of the logits' gradient is measured with the geometry, and logged beside it.
    """

    def before(self, scene: Scene, store: Store, _step: int) -> None:
        gradients = _by_block(scene, _gradients(scene))
        energies = norms_of([gradient for _, gradient in gradients], 2, scene.lens.device).square()
        for block, part in _split(scene, energies, gradients).items():
            store.mean(f"{block}/share", part)
        energy_of = {
            weight_id: energy for (weight_id, _), energy in zip(gradients, energies, strict=True)
        }
        for number, weights in enumerate(scene.groups):
            known = [energy_of[id(weight)] for weight in weights if id(weight) in energy_of]
            if known:
                store.mean(f"group.{number}/norm", torch.stack(known))

    def finish(self, raw: Raw, _scene: Scene) -> dict[str, float]:
        energies = {name: float(value.sum()) for name, value in raw.items()}
        blocks = [name for name in energies if name.endswith("/share")]
        total = sum(energies[name] for name in blocks)
        if total == 0 or not math.isfinite(total):
            # Gradients that are not finite are counted by the family `nonfinite`.
            return {}
        norms = {
            name.replace("/share", "/norm"): math.sqrt(energy) for name, energy in energies.items()
        }
        return {name: energies[name] / total for name in blocks} | norms


Tensors = list[tuple[int, Tensor]]
"""Weights or their gradients, each behind the id of the weight."""


def _gradients(scene: Scene) -> Tensors:
    weights = scene.lens.model.parameters()
    return [(id(weight), weight.grad) for weight in weights if weight.grad is not None]


def _by_block(scene: Scene, tensors: Tensors) -> Tensors:
    """Return the tensors block by block, and last those that stand outside of blocks."""
    block_of = scene.block_of
    order = {name: number for number, name in enumerate((*scene.blocks, OUTSIDE))}

    def number(item: tuple[int, Tensor]) -> int:
        return order[block_of.get(item[0], OUTSIDE)]

    return sorted(tensors, key=number)


def _split(scene: Scene, numbers: Tensor, tensors: Tensors) -> dict[str, Tensor]:
    """Return the numbers [n] of the n tensors, which stand block by block, of each block."""
    block_of = scene.block_of
    sizes = dict.fromkeys((*scene.blocks, OUTSIDE), 0)
    for weight_id, _ in tensors:
        sizes[block_of.get(weight_id, OUTSIDE)] += 1
    parts = numbers.split(list(sizes.values()))
    return dict(zip(sizes, parts, strict=True))


def norms_of(tensors: Sequence[Tensor], order: int, device: torch.device) -> Float[Tensor, " n"]:
    """Return the norms of n tensors, in few calls of a device: tensors of one kind take one.

    Their powers by `order`, of which the mean over processes is that of the whole tensors, are
    sums over all entries. Sums are in float32 at least.
    """
    parts = [local_part(tensor).detach() for tensor in tensors]
    alike: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for index, part in enumerate(parts):
        alike.setdefault((part.device, part.dtype), []).append(index)

    norms = dict[int, Tensor]()
    common = torch.float32
    for (_, dtype), indices in alike.items():
        precision = torch.promote_types(dtype, torch.float32)
        common = torch.promote_types(common, precision)
        same = [parts[index] for index in indices]
        norms |= zip(indices, torch._foreach_norm(same, order, dtype=precision), strict=True)
    if not norms:
        return torch.zeros(0, device=device)
    joined = torch.stack([norms[index].to(device, common) for index in range(len(parts))])
    shards = [_shards(tensor) ** (1 / order) for tensor in tensors]
    return joined if max(shards) == 1 else joined * torch.tensor(shards, device=device)


def _shards(tensor: Tensor) -> int:
    """Return into how many parts processes have split a tensor."""
    shards = 1
    if isinstance(tensor, DTensor):
        for dimension, placement in enumerate(tensor.placements):
            if placement.is_shard():
                shards *= tensor.device_mesh.size(dimension)
    return shards


@FAMILIES.register("nonfinite")
class FiniteTensors(Family):
    """How many weights and gradients (`BLOCK.weights`, `BLOCK.gradient`) of each block have a NaN
    or infinite entry.

    `tensors`: their number; 0 in a healthy run. Under a gradient scaler (fp16) gradients are left
    out: the scaler drops steps whose gradients are infinite.
    """

    every: Every = 10

    def before(self, scene: Scene, store: Store, _step: int) -> None:
        if not scene.scaled:
            self._look(scene, store, "gradient", _gradients(scene))

    def after(self, scene: Scene, store: Store, _step: int) -> None:
        weights = scene.lens.model.parameters()
        self._look(scene, store, "weights", [(id(weight), weight) for weight in weights])

    def _look(self, scene: Scene, store: Store, kind: str, tensors: Tensors) -> None:
        # A sum of sizes is finite only where every entry is. Bytes have no infinite numbers.
        wide = [
            (weight_id, tensor)
            for weight_id, tensor in tensors
            if tensor.is_floating_point() and tensor.element_size() > 1
        ]
        ordered = _by_block(scene, wide)
        norms = norms_of([tensor for _, tensor in ordered], 1, scene.lens.device)
        infinite = norms.isfinite().logical_not().float()
        for block, part in _split(scene, infinite, ordered).items():
            store.most(f"{block}.{kind}/tensors", part)

    def finish(self, raw: Raw, _scene: Scene) -> dict[str, float]:
        return {name: float(value.sum()) for name, value in raw.items()}
