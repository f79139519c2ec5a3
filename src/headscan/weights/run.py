"""The verb `weights`: the spectrum of every matrix of a model, beside that of a random matrix of
its shape.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache, partial
from typing import Annotated, Any, ClassVar

import numpy as np
import torch

from headscan.measures.spectrum import entropy_of
from headscan.run import BadInput, Finding, Interval, Result, Run, Term, fingerprint, verb
from headscan.run.settings import (
    Baseline,
    CommandLine,
    Ignore,
    Option,
    Out,
    Overwrite,
    Progressing,
    Resume,
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
from headscan.weights.reading import ModelWeights, StoredMatrix, open_weights

STABLE = Term("stable rank", "Energy in units of the largest.", "Σσ²/σ₁²", column="stable\nrank")
EFFECTIVE = Term(
    "effective rank", "Directions in use.", "exp(−Σ p log p), p = σ²/Σσ²", column="effective\nrank"
)
SPIKES = Term(
    "spikes", "Singular values above the edge, which 1 in 100 random matrices has one above."
)
LOOKS = Term(
    "looks random",
    "No spike, and a distance of at most twice the control's own; or all σ are equal.",
)
TAIL = Term(
    "tail exponent",
    "Of the density of the largest σ²: no measure of quality.",
    "1 + k/Σ log(σ²/x₀)",
    range=(1, None),
    source="Clauset, Shalizi and Newman 2009",
    column="tail\nexponent",
)


@dataclass(frozen=True)
class MatrixRow:
    """The spectrum of a matrix (or of a difference). `control`: the same numbers of eight matrices
    of independent normal entries, of its shape and mean square (their mean), with `distance` the
    greatest of one from the others.
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

    def frame(self) -> Any:
        from pandas import json_normalize

        return json_normalize([asdict(row) for row in self.matrices])


@cache
def control_of(long: int, short: int) -> dict[str, float]:
    """The control at unit mean square: only its norm depends on the scale."""
    draws = random_energies(long, short)
    tails = [tail.exponent if (tail := power_law(draw, draws=0)) else np.nan for draw in draws]
    ranks = np.mean(
        [
            (draw[-1] ** 0.5, stable_rank(draw), np.exp(entropy_of(draw / draw.sum())))
            for draw in draws
        ],
        0,
    ).tolist()
    apart = max(
        distance_between(draw, np.delete(draws, i, 0).ravel()) for i, draw in enumerate(draws)
    )
    names = ("spectral_norm", "stable_rank", "effective_rank", "tail_exponent", "distance")
    return dict(zip(names, (*ranks, float(np.mean(tails)), apart), strict=True))


MeasuredMatrix = tuple[MatrixRow | None, list[float]]
# of the largest σ²: where a difference has few directions, the others are rounding and no tail
ROUNDING = 1e-14
FLAT = (
    1.01  # the largest singular value over the least of a matrix that was drawn orthogonal, at most
)
UNTRAINED = 0.5  # of all matrices, this share that looks random is an alert
GROUP = 16  # matrices after which a run can be resumed


def measured(matrix: StoredMatrix, seed: int) -> MeasuredMatrix:
    """The row of a matrix (none of one of zeros) and its singular values; BadInput where entries
    are not finite.
    """
    values = matrix.measure()
    sides = (max(matrix.shape), min(matrix.shape))
    if not np.isfinite(values).all():
        raise BadInput(f"The matrix {matrix.name} holds numbers that are not finite.")
    if not values.any():
        return None, []
    square = float(values.sum()) / (sides[0] * sides[1])
    unit = control_of(*sides)
    tail = power_law(values[values > ROUNDING * values[-1]], seed=seed)
    edge = square * largest_energy(*sides)
    distance = distance_between(values / square, random_energies(*sides).ravel())
    spikes = int((values > edge).sum())
    used = float(np.exp(entropy_of(values / values.sum())))
    random = bool(values[-1] <= FLAT**2 * values[0]) or (
        not spikes and distance <= 2 * unit["distance"]
    )
    row = MatrixRow(
        matrix.name,
        matrix.shape,
        float(values[-1]) ** 0.5,
        stable_rank(values),
        used,
        spikes,
        edge**0.5,
        distance,
        random,
        unit | {"spectral_norm": unit["spectral_norm"] * square**0.5},
        *(() if tail is None else (tail.exponent, tail.interval, tail.count, tail.p)),
    )
    return row, np.sqrt(values[::-1]).tolist()


def weights_findings(name: str, rows: list[MatrixRow]) -> list[Finding]:
    """Code: UNTRAINED (half of the matrices look random)."""
    random = [row.name for row in rows if row.random]
    if len(random) < UNTRAINED * max(1, len(rows)):
        return []
    text = (
        f"{len(random)} of {len(rows)} matrices have the spectrum of random numbers "
        f"({', '.join(random[:3])}, ...)."
    )
    text = (
        f"These weights look untrained: {text} Check that this is the checkpoint that was meant, "
        "and that it loads whole."
    )
    return [
        Finding(
            code="UNTRAINED",
            level="alert",
            model=name,
            value=len(random) / len(rows),
            sentence=text,
        )
    ]


@verb("weights")
def run(
    run: Run,
    model: ModelWeights,
    *,
    base: Annotated[
        ModelWeights | None,
        Option("A model that is subtracted, matrix by matrix.", metavar="MODEL"),
    ] = None,
    ignore: Ignore = None,
    baseline: Baseline = None,
    out: Out = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    seed: Seed = 0,
    progress: Progressing = None,
    command: CommandLine = None,
) -> WeightsResult:
    """Measure the spectrum of every weight matrix (or of what a LoRA adapter adds) beside a random
    one's, without a text.

    As many matrices are in memory at once as torch has threads; on a device there is one at a time.

    Raises BadInput where there are none.

    >>> found = run("gpt-vanilla")
    >>> row = next(row for row in found.matrices if row.name.endswith("h.0.mlp.c_fc.weight"))
    >>> row.shape, row.stable_rank < row.control["stable_rank"], row.spikes > 0
    ((128, 512), True, True)
    """
    opened = open_weights(model, base)
    threads = torch.get_num_threads()
    made = list[MeasuredMatrix]()
    run.identify("the number of models", len(opened.records))
    for number, record in enumerate(opened.records, 1):
        run.identify(f"the name of model {number}", record.name)
        run.identify(f"the weights of model {number}", fingerprint(record))
    # torch loads a device's libraries at their first call, and fails where two threads make it at
    # once.
    stored = opened.matrices
    pool = ThreadPoolExecutor(threads if opened.device.type == "cpu" else 1)

    def work(group: list[StoredMatrix]) -> list[MeasuredMatrix]:
        return list(pool.map(partial(measured, seed=seed), group))

    # eigenvalues gain little from threads: matrices are measured side by side
    torch.set_num_threads(1)
    try:
        for start in range(0, len(stored), GROUP):
            made += run.unit(
                f"matrices-{start}",
                list[MeasuredMatrix],
                partial(work, stored[start : start + GROUP]),
            )
            run.progress("spectra", len(made), len(stored), "matrices")
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)
    rows = [row for row, _ in made if row is not None]
    return WeightsResult(
        protocol=run.protocol(
            notes=[
                *opened.notes,
                f"Controls: {DRAWS} normal matrices of each shape, drawn by their law.",
            ]
        ),
        models=opened.records,
        matrices=rows,
        findings=[] if opened.difference else weights_findings(opened.records[0].name, rows),
        zero=[one.name for one, (row, _) in zip(stored, made, strict=True) if row is None],
        arrays={row.name: np.array(values, np.float32) for row, values in made if row is not None},
    )
