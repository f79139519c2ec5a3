"""The format of each matrix within a budget of bytes: a choice, and what it is compared with."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from headscan.comparison.rated_matrices import RatedMatrix, StoredAs
from headscan.run import BadInput

GOLDEN = (5**0.5 - 1) / 2

Allocation = list[StoredAs]
"""A choice for each matrix."""


@dataclass(frozen=True)
class Step:
    """An exchange of a matrix's format for a larger one that does less harm."""

    matrix: int
    larger: StoredAs
    bytes: int
    relief: float


def chosen(matrices: Sequence[RatedMatrix], budget: float) -> Allocation:
    """Return the formats with about the least sum of harms within a budget of bytes.

    All begin with their smallest format. Exchanges for larger ones are taken in the order of the
    harm that they spare a byte, those on the lower convex hull of each matrix's formats.

    Raises:
        BadInput: where the smallest formats take more.
    """
    allocation = [min(matrix.choices, key=_size) for matrix in matrices]
    left = budget - sum(choice.bytes for choice in allocation)
    if left < 0:
        raise BadInput(
            f"--budget {budget:g} bytes are too few: in their smallest formats the matrices of "
            f"blocks take {budget - left:,.0f}."
        )
    steps: list[Step] = []
    for number, matrix in enumerate(matrices):
        steps += hull_steps(number, matrix.choices)
    steps.sort(key=lambda step: -step.relief / step.bytes)
    closed = set()
    for step in steps:
        if step.matrix in closed:
            continue
        if step.bytes > left:
            closed.add(step.matrix)
            continue
        allocation[step.matrix] = step.larger
        left -= step.bytes
    return allocation


def hull_steps(number: int, choices: Sequence[StoredAs]) -> list[Step]:
    """Return the steps of a matrix along the lower convex hull of harm over bytes.

    Each spares less harm a byte than the one before.
    """
    position = min(choices, key=_size)
    steps: list[Step] = []
    while True:
        larger = [choice for choice in choices if choice.bytes > position.bytes]
        helping = [choice for choice in larger if choice.harm < position.harm]
        if not helping:
            return steps
        best = max(helping, key=lambda choice: _slope(position, choice))
        relief = position.harm - best.harm
        steps.append(Step(number, best, best.bytes - position.bytes, relief))
        position = best


def _size(choice: StoredAs) -> tuple[int, float]:
    return choice.bytes, choice.harm


def _slope(smaller: StoredAs, larger: StoredAs) -> float:
    return (smaller.harm - larger.harm) / (larger.bytes - smaller.bytes)


def uniform(matrices: Sequence[RatedMatrix], budget: float) -> Allocation:
    """Return one format for all, and a larger one for evenly spaced matrices, within a budget.

    The pair of formats with the least expected harm is taken.
    """
    columns = range(len(matrices[0].choices))
    allocations = []
    for column in columns:
        base = [matrix.choices[column] for matrix in matrices]
        if sum(choice.bytes for choice in base) <= budget:
            allocations += [_enlarged(matrices, base, larger, budget) for larger in columns]
    return min(allocations, key=lambda allocation: sum(choice.harm for choice in allocation))


def _enlarged(
    matrices: Sequence[RatedMatrix], base: Allocation, column: int, budget: float
) -> Allocation:
    """Return an allocation with a larger format for as many evenly spaced matrices as fit."""
    allocation = list(base)
    left = budget - sum(choice.bytes for choice in base)
    for number in evenly_spaced(len(matrices)):
        choice = matrices[number].choices[column]
        extra = choice.bytes - allocation[number].bytes
        if 0 < extra <= left:
            allocation[number] = choice
            left -= extra
    return allocation


def evenly_spaced(count: int) -> Iterable[int]:
    """Return 0 ... count − 1 in an order whose every beginning is spread evenly.

    >>> list(evenly_spaced(5))
    [0, 3, 1, 4, 2]
    """
    keys = (np.arange(count) * GOLDEN) % 1
    ranks = np.argsort(keys, kind="stable")
    order: list[int] = np.argsort(ranks, kind="stable").tolist()
    return order


def shuffled(matrices: Sequence[RatedMatrix], allocation: Allocation, seed: int) -> Allocation:
    """Return the same formats, in another order among matrices of the same name.

    The bytes are the same: it tells whether the choice of blocks matters.
    """
    generator = np.random.default_rng([seed, 2])
    of_name = defaultdict(list)
    for number, matrix in enumerate(matrices):
        of_name[matrix.name, matrix.weights].append(number)
    result = list(allocation)
    for numbers in of_name.values():
        for number, other in zip(numbers, generator.permutation(numbers).tolist(), strict=True):
            column = matrices[other].choices.index(allocation[other])
            result[number] = matrices[number].choices[column]
    return result
