"""The families of the monitor that read weights, their updates and their gradients."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from headscan.run import Option
from headscan.training.monitor.families import (
    FAMILIES,
    OUTSIDE,
    Every,
    Family,
    Raw,
    block_sums,
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


def whole(tensor: Tensor) -> Tensor:
    """Return a tensor with the parts of all processes, detached."""
    if isinstance(tensor, DTensor):
        tensor = tensor.full_tensor()
    return tensor.detach()


def leave_spectrum(store: Store, name: str, matrix: Tensor) -> None:
    """Store the energy of a matrix and the Gram matrix of its leading directions (twice as many as
    are used), from which its stable rank and spectral tail follow.

    Block power iteration from a fixed start (Halko, Martinsson and Tropp 2011, algorithm 4.4): no
    decomposition that waits for the device. Experts [E, m, n] count as one tall matrix, a kernel of
    width one [m, n, 1] as [m, n].
    """
    matrix = matrix.squeeze(-1) if matrix.ndim > 2 else matrix
    rows = matrix.reshape(-1, matrix.shape[-1]).float()
    generator = torch.Generator(rows.device).manual_seed(0)
    leading = min(RANK, -(-min(rows.shape) // 4))
    directions = min(2 * leading, *rows.shape)
    start = torch.randn(rows.shape[1], directions, generator=generator, device=rows.device)
    basis = rows @ start
    for _ in range(3):
        basis = rows @ (rows.T @ orthonormal(basis))
    image = orthonormal(basis).T @ rows
    norms = torch.linalg.vector_norm(rows, dim=1)
    row_numbers = [rows.square().sum(), norms.mean(), norms.amax(), norms.median()]
    store.mean(f"{name}/gram", image @ image.T)
    store.mean(f"{name}/rows", torch.stack(row_numbers))


def orthonormal(basis: Tensor) -> Tensor:
    """Return an orthonormal basis of the span of columns [n, k].

    On an accelerator it comes from two Cholesky decompositions of the k x k products, in float64
    (Yamamoto et al. 2015): a few small steps, where a QR decomposition of tall matrices makes many.
    A direction that columns have by rounding only is shorter than 1 there.
    """
    if basis.device.type in ("cpu", "mps"):
        return torch.as_tensor(torch.linalg.qr(basis).Q)
    vectors = basis.double()
    for _ in range(2):
        gram = vectors.T @ vectors
        gram.diagonal().add_(RANK_ROUNDING * gram.trace())
        factor = torch.linalg.cholesky_ex(gram).L
        vectors = torch.linalg.solve_triangular(factor, vectors.T, upper=False).T
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
        for name, weight in scene.matrices.items():
            leave_spectrum(store, name, whole(weight))

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
        for name, previous in scene.copies.items():
            update = whole(matrices[name]) - previous
            leave_spectrum(store, name, update)
            norms = [update.float().norm(), previous.float().norm()]
            store.mean(f"{name}/norms", torch.stack(norms))
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
        energies = [
            (id(weight), _gradient_energy(weight.grad))
            for weight in scene.lens.model.parameters()
            if weight.grad is not None
        ]
        for block, energy in block_sums(scene, energies).items():
            store.mean(f"{block}/share", energy)
        energy_of = dict(energies)
        for number, weights in enumerate(scene.groups):
            known = [energy_of[id(weight)] for weight in weights if id(weight) in energy_of]
            if known:
                store.mean(f"group.{number}/norm", torch.stack(known).sum())

    def finish(self, raw: Raw, _scene: Scene) -> dict[str, float]:
        energies = {name: float(value) for name, value in raw.items()}
        blocks = [name for name in energies if name.endswith("/share")]
        total = sum(energies[name] for name in blocks)
        if total == 0 or not math.isfinite(total):
            # Gradients that are not finite are counted by the family `nonfinite`.
            return {}
        norms = {
            name.replace("/share", "/norm"): math.sqrt(energy) for name, energy in energies.items()
        }
        return {name: energies[name] / total for name in blocks} | norms


def _gradient_energy(gradient: Tensor) -> Tensor:
    """Return the energy of a gradient, of which the mean over processes is that of the whole."""
    energy = local_part(gradient).detach().float().square().sum()
    if isinstance(gradient, DTensor):
        for dimension, placement in enumerate(gradient.placements):
            if placement.is_shard():
                energy = energy * gradient.device_mesh.size(dimension)
    return energy


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
            gradients = [
                (id(weight), weight.grad)
                for weight in scene.lens.model.parameters()
                if weight.grad is not None
            ]
            self._count(scene, store, "gradient", gradients)

    def after(self, scene: Scene, store: Store, _step: int) -> None:
        weights = [(id(weight), weight) for weight in scene.lens.model.parameters()]
        self._count(scene, store, "weights", weights)

    def _count(
        self, scene: Scene, store: Store, kind: str, tensors: list[tuple[int, Tensor]]
    ) -> None:
        block_of = scene.block_of
        totals: dict[str, list[Tensor]] = {name: [] for name in (*scene.blocks, OUTSIDE)}
        for weight_id, tensor in tensors:
            part = local_part(tensor)
            if part.is_floating_point() and part.element_size() > 1:
                # A sum is finite only where every entry is.
                total = part.detach().sum(dtype=torch.promote_types(part.dtype, torch.float32))
                totals[block_of.get(weight_id, OUTSIDE)].append(total.to(scene.lens.device))
        # Few steps for all tensors together: each is a call of the device.
        for block, sums in totals.items():
            infinite = torch.zeros((), device=scene.lens.device)
            if sums:
                infinite = (~torch.cat([total.reshape(1) for total in sums]).isfinite()).sum()
            store.most(f"{block}.{kind}/tensors", infinite)
