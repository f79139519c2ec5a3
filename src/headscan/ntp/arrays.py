"""Types of the arrays that the parts of this package hand each other."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["CountsLike", "Floats", "Ints", "SupportsLike"]

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
SupportsLike: TypeAlias = npt.NDArray[Any] | Any
"""What `Supports.of` reads: `Supports`, `SoftLabels`, a matrix [contexts, vocabulary] (numpy, scipy, torch), lists of ids."""
CountsLike: TypeAlias = npt.NDArray[Any] | Any
"""What `SoftLabels.of` reads: labels, or a matrix of counts [contexts, vocabulary], sparse or dense."""
