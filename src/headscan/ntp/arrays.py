"""Types of the arrays that the parts of this package hand each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from headscan.ntp.labels import SoftLabels
    from headscan.ntp.supports import Supports

__all__ = ["CountsLike", "Floats", "Ints", "SupportsLike"]

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
SupportsLike: TypeAlias = "Supports | SoftLabels | npt.NDArray[Any] | Any"
"""What `Supports.of` reads: supports, labels, a matrix [contexts, vocabulary] (numpy, scipy, torch), lists of token ids."""
CountsLike: TypeAlias = "SoftLabels | npt.NDArray[Any] | Any"
"""What `SoftLabels.of` reads: labels, or a matrix of counts [contexts, vocabulary], sparse or dense."""
