"""A remedy as a transformer of scikit-learn."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from headscan.remedies.remedy import REMEDIES, FittingData, Remedy
from headscan.run import BadInput

__all__ = ["RemedyTransformer"]


class RemedyTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Fit a remedy to the rows of a matrix, apply it to any rows: in pipelines, grid searches, `cross_val_score`.

    Args:
        remedy: its name in `headscan.remedies.REMEDIES`.
        parameters: its own, as {"remove": 3}.

    Attributes:
        remedy_: the fitted map.

    >>> rows = np.random.default_rng(0).standard_normal((200, 4)) + 5
    >>> float(np.abs(RemedyTransformer("centre").fit_transform(rows).mean(0)).max()) < 1e-12
    True
    """

    def __init__(self, remedy: str = "all-but-the-top", parameters: Mapping[str, Any] | None = None) -> None:
        self.remedy = remedy
        self.parameters = parameters

    def fit(self, X: npt.ArrayLike, y: object = None) -> Self:
        """Fit to rows [n, d], two at least. Raises ValueError for NaN and other shapes, BadInput for an unknown remedy."""
        rows = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        method = REMEDIES.build(self.remedy, self.parameters)
        found = method.fit(FittingData.of_rows(rows))
        if found is None:
            raise BadInput(f"The remedy '{self.remedy}' cannot be fitted to these vectors: all are alike.")
        self.remedy_: Remedy = found
        return self

    def transform(self, X: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """The mapped rows [n, k]."""
        check_is_fitted(self)
        return self.remedy_(validate_data(self, X, dtype=np.float64, reset=False))

    @property
    def _n_features_out(self) -> int:
        return self.remedy_.widths[1]

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """A fitted transformer of what `Remedy.save` or `headscan remedy` wrote."""
        found = Remedy.load(folder)
        new = cls(found.name)
        new.remedy_, new.n_features_in_ = found, found.widths[0]
        return new
