"""Second moments from float32 products of split numbers are exact to a proved bound, and slower
than float64 on a CPU.

The split (Ozaki, Ogita, Oishi, Rump 2012): in a chunk of K = 256 rows every column is cut into m
slices of 8 bits below the exponent e of its largest number, x = s₁ + … + s_m + r with |r| ≤
2^(e−8m). In units of its grid a slice is an integer of at most 2^7, a product one of at most 2^14,
and a sum of 256 products one of at most 2^22: float32 has 24 bits, so every sum is exact in
whatever order it is made. What is left is |Σxy − Σ of the slices'| ≤ K·(X|r_y| + Y|r_x| +
|r_x||r_y|) with X, Y the columns' largest: of the order of 2^(−8m+2)·K·X·Y. m slices take m(m+1)/2
products (s_i s_jᵀ is the transpose of s_j s_iᵀ). Checked on numbers of four kinds, then timed
against one float64 product, alternated, CPU seconds of one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch
from _table import show
from torch import Tensor

K = 256
BITS = 8


def slices(rows: Tensor, many: int) -> list[Tensor]:
    """`many` slices of a chunk [K, d] in float32, each on its column's grid."""
    exponent = torch.frexp(rows.abs().amax(0).clamp(min=1e-30))[1]
    parts = []
    residual = rows.double()
    for k in range(1, many + 1):
        grid = torch.ldexp(torch.ones_like(rows[0], dtype=torch.float64), exponent - BITS * k + 1)
        part = (residual / grid).round() * grid
        parts.append(part.float())
        residual = residual - part
    return parts


def moment(rows: Tensor, many: int) -> Tensor:
    """Σ x xᵀ of rows [n, d] from products in float32, summed over chunks in float64."""
    total = rows.new_zeros(rows.shape[1], rows.shape[1], dtype=torch.float64)
    for chunk in rows.split(K):
        parts = slices(chunk, many)
        for i, part in enumerate(parts):
            total += (part.T @ part).double()
            for later_part in parts[i + 1 :]:
                product = (part.T @ later_part).double()
                total += product + product.T
    return total


def bound(rows: Tensor, many: int) -> Tensor:
    """The proved bound of its error [d, d], beside float64's own rounding."""
    total = rows.new_zeros(rows.shape[1], rows.shape[1], dtype=torch.float64)
    for chunk in rows.split(K):
        top = chunk.abs().amax(0).double()
        left = torch.ldexp(
            torch.ones_like(top), torch.frexp(top.float().clamp(min=1e-30))[1] - BITS * many
        )
        total += len(chunk) * (
            torch.outer(top, left) + torch.outer(left, top) + torch.outer(left, left)
        )
    return total


def main() -> None:
    """Check the bound, then time."""
    torch.set_num_threads(1)
    draw = torch.Generator().manual_seed(0)
    normal = torch.randn(2048, 96, generator=draw)
    one_large = normal.clone()
    one_large[:, 5] *= 1000
    kinds = {
        "normal": normal,
        "far from the origin": normal + 1e3,
        "a coordinate 1,000 times as large": one_large,
        "lognormal": (3 * normal).exp(),
    }
    for name, rows in kinds.items():
        exact = rows.double().T @ rows.double()
        sizes = rows.abs().double()
        rounding = 2.0**-52 * len(rows) * (sizes.T @ sizes)
        for many in (2, 3, 4):
            error = (moment(rows, many) - exact).abs()
            assert bool((error <= bound(rows, many) + rounding).all()), (name, many)
    print("The bound holds on", ", ".join(kinds), "with 2, 3 and 4 slices.\n")
    rows = torch.randn(2048, 768, generator=draw)
    ways: dict[str, Callable[[], torch.Tensor]] = {
        "float64": lambda: rows.double().T @ rows.double(),
        "float32, not split": lambda: (rows.T @ rows).double(),
        **{f"{many} slices": partial(moment, rows, many) for many in (2, 3, 4)},
    }
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(4):
        for name, way in ways.items():
            start = time.process_time()
            way()
            spent[name].append(time.process_time() - start)
    exact = ways["float64"]()
    alone = min(spent["float64"])
    show(
        [
            {
                "products": name,
                "ms": 1e3 * min(times),
                "times float64": min(times) / alone,
                "largest error": float((ways[name]() - exact).abs().max() / exact.diagonal().max()),
                "proved": ""
                if "slices" not in name
                else float(bound(rows, int(name[0])).max() / exact.diagonal().max()),
            }
            for name, times in spent.items()
        ]
    )
    print("\n2,048 rows of width 768, one thread; errors over the largest second moment.")


if __name__ == "__main__":
    main()
