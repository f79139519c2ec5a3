"""The verb `weights`: the spectrum of every matrix of a model, beside that of a random matrix of
its shape.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import cache, partial
from threading import Lock
from typing import Annotated, Any, ClassVar, Unpack

import numpy as np
import torch

from headscan.measures.spectrum import entropy_of
from headscan.model.settings import Device, Loading
from headscan.run import (
    BadInput,
    DataFrame,
    Finding,
    Interval,
    Result,
    Run,
    Term,
    fingerprint,
    tidy,
    verb,
)
from headscan.run.kinds import declare
from headscan.run.settings import (
    FindingOptions,
    Option,
    Seed,
)
from headscan.statistics.spectra import (
    DRAWS,
    distance_between,
    largest_energy,
    power_law,
    random_energies,
    stable_rank,
)
from headscan.weights.reading import ModelWeights, OpenedWeights, StoredMatrix, open_weights

STABLE = Term("stable rank", "Energy in units of the largest.", "Σσ²/σ₁²", column="stable\nrank")
EFFECTIVE = Term(
    "effective rank", "Directions in use.", "exp(−Σ p log p), p = σ²/Σσ²", column="effective\nrank"
)
SPIKES = Term("spikes", "Singular values above an edge that 1 in 100 random matrices exceeds.")
LOOKS = Term(
    "looks random",
    "No spike, and a distance of at most twice the control's own; or all σ are equal.",
)
TAIL = Term(
    "tail exponent",
    "Exponent of the density of the largest σ²: no measure of quality.",
    "1 + k/Σ log(σ²/x₀)",
    range=(1, None),
    source="Clauset, Shalizi and Newman 2009",
    column="tail\nexponent",
)


@dataclass(frozen=True)
class MatrixRow:
    """The spectrum of a matrix (or of a difference).

    `control` has the same numbers, as the mean over eight matrices of independent normal entries of
    its shape and mean square; its `distance` is the greatest distance of one from the others.
    """

    name: str
    shape: tuple[int, int]
    spectral_norm: float
    stable_rank: Annotated[float, STABLE]
    effective_rank: Annotated[float, EFFECTIVE]
    spikes: Annotated[int, SPIKES]
    edge: float
    distance: float  # Kolmogorov and Smirnov's, of σ² from the control's
    random: Annotated[bool, LOOKS]
    control: dict[str, float]
    tail_exponent: Annotated[float | None, TAIL] = None
    tail_exponent_interval: Interval | None = None
    tail_count: int | None = None
    tail_p: Annotated[
        float | None,
        Term("fit of the tail", "Share of samples of the fitted law that fit it no better."),
    ] = None


@dataclass(frozen=True, repr=False)
class WeightsResult(Result):
    """Spectra of weights. `arrays`: the singular values of each matrix by its name, float32,
    descending.
    """

    kind: ClassVar[str] = "weights"
    matrices: list[MatrixRow]
    zero: list[str]  # those whose entries are all 0

    def frame(self) -> DataFrame:
        """Return one row for each matrix; the numbers of its control begin with `control_`."""
        rows = []
        for matrix in self.matrices:
            row = asdict(matrix)
            control = row.pop("control")
            row["rows"], row["columns"] = row.pop("shape")
            rows.append(row | {f"control_{name}": value for name, value in control.items()})
        return tidy(rows)


@cache
def control_of(long: int, short: int) -> dict[str, float]:
    """Return the numbers of random matrices of this shape at unit mean square.

    Only the spectral norm depends on the scale.
    """
    draws = random_energies(long, short)
    exponents = []
    for draw in draws:
        tail = power_law(draw, draws=0)
        exponents.append(np.nan if tail is None else tail.exponent)
    distances = []
    for number, draw in enumerate(draws):
        other_draws = np.delete(draws, number, 0).ravel()
        distances.append(distance_between(draw, other_draws))
    effective_ranks = [np.exp(entropy_of(draw / draw.sum())) for draw in draws]
    return {
        "spectral_norm": float(np.mean([draw[-1] ** 0.5 for draw in draws])),
        "stable_rank": float(np.mean([stable_rank(draw) for draw in draws])),
        "effective_rank": float(np.mean(effective_ranks)),
        "tail_exponent": float(np.mean(exponents)),
        "distance": max(distances),
    }


MeasuredMatrix = tuple[MatrixRow | None, list[float]]
"""The row of a matrix (None where all its entries are 0), and its singular values, descending."""
# Of the largest σ²: where a difference has few directions, the others are rounding and no tail.
ROUNDING = 1e-14
# A matrix that was drawn orthogonal has a largest singular value of at most this times the least.
FLAT = 1.01
RANDOM_SHARE = 0.5
UNTRAINED = declare(
    "HS601",
    "UNTRAINED",
    "weights",
    "Most matrices have the spectra of random numbers: the weights look untrained.",
    "half of the matrices: no spike, and at most twice as far from random as random draws are",
    "untrained models, counted",
    "1 of 4 trained models, whose matrices are mostly as they were initialised; "
    "docs/weights.md has the table",
    number="share of matrices",
)
GROUP = 16  # matrices after which a run can be resumed


def measured(matrix: StoredMatrix, seed: int, turn: AbstractContextManager[Any]) -> MeasuredMatrix:
    """Return the row of a matrix and its singular values, which are computed in the context `turn`.

    Raises:
        BadInput: for entries that are not finite.
    """
    with turn:
        energies = matrix.measure()  # σ², ascending
    long = max(matrix.shape)
    short = min(matrix.shape)
    if not np.isfinite(energies).all():
        raise BadInput(f"The matrix {matrix.name} holds numbers that are not finite.")
    if not energies.any():
        return None, []

    largest = float(energies[-1])
    mean_square = float(energies.sum()) / (long * short)
    unit_control = control_of(long, short)
    control_norm = unit_control["spectral_norm"] * mean_square**0.5
    tail = power_law(energies[energies > ROUNDING * largest], seed=seed)

    edge = mean_square * largest_energy(long, short)
    spikes = int((energies > edge).sum())
    distance = distance_between(energies / mean_square, random_energies(long, short).ravel())
    orthogonal = largest <= FLAT**2 * float(energies[0])
    like_control = not spikes and distance <= 2 * unit_control["distance"]
    row = MatrixRow(
        name=matrix.name,
        shape=matrix.shape,
        spectral_norm=largest**0.5,
        stable_rank=stable_rank(energies),
        effective_rank=float(np.exp(entropy_of(energies / energies.sum()))),
        spikes=spikes,
        edge=edge**0.5,
        distance=distance,
        random=orthogonal or like_control,
        control=unit_control | {"spectral_norm": control_norm},
        tail_exponent=None if tail is None else tail.exponent,
        tail_exponent_interval=None if tail is None else tail.interval,
        tail_count=None if tail is None else tail.count,
        tail_p=None if tail is None else tail.p,
    )
    return row, np.sqrt(energies[::-1]).tolist()


def weights_findings(name: str, rows: list[MatrixRow]) -> list[Finding]:
    """Return an UNTRAINED alarm where half of the matrices look random."""
    random = [row.name for row in rows if row.random]
    share = len(random) / max(1, len(rows))
    if share < RANDOM_SHARE:
        return []
    sentence = (
        f"These weights look untrained: {len(random)} of {len(rows)} matrices have the spectrum of "
        f"random numbers ({', '.join(random[:3])}, ...). Check that this is the checkpoint that "
        "was meant, and that it loads whole."
    )
    return [UNTRAINED.finding("alarm", sentence, model=name, value=share)]


def _measured_matrices(opened: OpenedWeights, seed: int, run: Run) -> list[MeasuredMatrix]:
    """Return every matrix measured; finished groups come from a resume.

    Eigenvalues gain little from threads, so matrices are measured side by side, one a thread. A
    device computes one spectrum at a time, while threads measure the others: torch loads a device's
    libraries at their first call, and fails where two threads make it at once.
    """
    threads = torch.get_num_threads()
    pool = ThreadPoolExecutor(threads)
    turn = nullcontext() if opened.device.type == "cpu" else Lock()
    matrices = opened.matrices

    def measure_group(start: int) -> list[MeasuredMatrix]:
        group = matrices[start : start + GROUP]
        return list(pool.map(partial(measured, seed=seed, turn=turn), group))

    results: list[MeasuredMatrix] = []
    torch.set_num_threads(1)
    try:
        for start in range(0, len(matrices), GROUP):
            unit = f"matrices-{start}"
            results += run.unit(unit, list[MeasuredMatrix], partial(measure_group, start))
            run.progress("spectra", len(results), len(matrices), "matrices")
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)
    return results


@verb("weights")
def run(
    run: Run,
    model: ModelWeights,
    *,
    base: Annotated[
        ModelWeights | None,
        Option("Model that is subtracted, matrix by matrix.", metavar="MODEL"),
    ] = None,
    device: Device = "auto",
    seed: Seed = 0,
    **_run_options: Unpack[FindingOptions],
) -> WeightsResult:
    """Measure the spectrum of every weight matrix (or of what a LoRA adapter adds) beside a random
    one's, without a text.

    As many matrices are in memory at once as torch has threads; on a device there is one at a time,
    and its spectrum is computed there.

    Raises:
        BadInput: where the model has no matrix.

    >>> result = run("gpt-vanilla")
    >>> row = next(row for row in result.matrices if row.name.endswith("h.0.mlp.c_fc.weight"))
    >>> row.shape, row.stable_rank < row.control["stable_rank"], row.spikes > 0
    ((128, 512), True, True)
    """
    Loading(device=device)  # refuses a device that is not there
    named = isinstance(device, str) and device != "balanced"
    opened = open_weights(model, base, str(device) if named else "auto")
    run.identify("the number of models", len(opened.records))
    for number, record in enumerate(opened.records, 1):
        run.identify(f"the name of model {number}", record.name)
        run.identify(f"the weights of model {number}", fingerprint(record))

    results = _measured_matrices(opened, seed, run)
    rows = [row for row, _ in results if row is not None]
    zero = []
    arrays = {}
    for matrix, (row, singular_values) in zip(opened.matrices, results, strict=True):
        if row is None:
            zero.append(matrix.name)
        else:
            arrays[row.name] = np.array(singular_values, np.float32)
    controls = f"Controls: {DRAWS} normal matrices of each shape, drawn by their law."
    return WeightsResult(
        protocol=run.protocol(notes=[*opened.notes, controls]),
        models=opened.records,
        matrices=rows,
        findings=[] if opened.difference else weights_findings(opened.records[0].name, rows),
        zero=zero,
        arrays=arrays,
    )
