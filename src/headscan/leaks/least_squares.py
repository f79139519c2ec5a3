"""Linear equations by least squares, on any device."""

import torch
from torch import Tensor


def least_squares(matrix: Tensor, values: Tensor) -> Tensor:
    """Return the X of least norm among those with least ||matrix X - values||.

    The matrix may lack rank. The driver of `torch.linalg.lstsq` on a GPU takes full rank for
    granted, so there the pseudo-inverse is used.

    >>> least_squares(torch.tensor([[2.0, 0.0], [0.0, 0.0]]), torch.tensor([[4.0], [1.0]])).tolist()
    [[2.0], [0.0]]
    """
    solution: Tensor
    if matrix.device.type == "cpu":
        solution = torch.linalg.lstsq(matrix, values).solution
    else:
        solution = torch.linalg.pinv(matrix) @ values
    return solution
