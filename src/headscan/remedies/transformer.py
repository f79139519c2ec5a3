"""A remedy as a transformer of scikit-learn, the only file that needs it.

Install it by `pip install 'headscan[sklearn]'`.
"""

import os
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from headscan.remedies.remedy import REMEDIES, Remedy
from headscan.run import BadInput
from headscan.statistics import Cloud
from headscan.statistics.uncertainty import Floats


class RemedyTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Fit a remedy (by its name in `headscan.remedies.REMEDIES`, with its own parameters, as
    {"remove": 3}) to the rows of a matrix, apply it to any rows: in pipelines, grid searches,
    `cross_val_score`. `remedy_` is the fitted map.

    >>> rows = np.random.default_rng(0).standard_normal((200, 4)) + 5
    >>> float(np.abs(RemedyTransformer("centre").fit_transform(rows).mean(0)).max()) < 1e-12
    True
    """

    def __init__(
        self, remedy: str = "all-but-the-top", parameters: Mapping[str, Any] | None = None
    ) -> None:
        self.remedy = remedy
        self.parameters = parameters

    def fit(self, X: npt.ArrayLike, y: object = None) -> Self:
        rows = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        fitted = REMEDIES.build(self.remedy, self.parameters).fit(Cloud.of_rows(rows))
        if fitted is None:
            raise BadInput(
                f"The remedy '{self.remedy}' cannot be fitted to these vectors: all are alike."
            )
        self.remedy_: Remedy = fitted
        return self

    def transform(self, X: npt.ArrayLike) -> Floats:
        """The mapped rows [n, k]."""
        check_is_fitted(self)
        return self.remedy_(validate_data(self, X, dtype=np.float64, reset=False))

    @property
    def _n_features_out(self) -> int:
        return self.remedy_.widths[1]

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """A fitted transformer of what `Remedy.save` or `headscan remedy` wrote."""
        loaded = Remedy.load(folder)
        transformer = cls(loaded.name)
        transformer.remedy_ = loaded
        transformer.n_features_in_ = loaded.widths[0]
        return transformer
