"""The matrices of a model: of linear layers, of GPT-2's Conv1D, and of experts stored together."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

LEAST_UNNAMED = 32
"""The shorter side from which on a parameter that is not called `weight` is a matrix."""
LEAST_UNROUNDED = 0.05
NO_MATRIX = re.compile(r"bias|norm|position|pos_emb|time_|table|A_log|latents|kernel")
"""Names of parameters that no state is multiplied by."""


class Matrix(NamedTuple):
    """A matrix, or a stack of matrices of experts.

    Attributes:
        name: of the parameter, within the module whose matrices were asked for.
        weight: live, [outputs, inputs] or [experts, outputs, inputs].
        transposed: whether it is stored as [..., inputs, outputs].
    """

    name: str
    weight: nn.Parameter
    transposed: bool

    @property
    def rows(self) -> Tensor:
        """The weights [n, inputs], of all experts one after another."""
        return self.as_rows(self.weight.detach())

    def as_rows(self, values: Tensor) -> Tensor:
        """Return values of the weight's shape, such as a gradient, in the order of `rows`."""
        return (values.mT if self.transposed else values).flatten(0, -2)

    def set_rows(self, rows: Tensor) -> None:
        """Replace the weights by those of `rows`."""
        shape = self.weight.mT.shape if self.transposed else self.weight.shape
        weight = rows.reshape(shape)
        self.weight.data.copy_(weight.mT if self.transposed else weight)


def matrices(module: nn.Module) -> Iterator[Matrix]:
    """Yield the matrices of a module in the order of its parameters, each once.

    >>> [matrix.name for matrix in matrices(nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3)))]
    ['0.weight']
    """
    known = set()
    for path, layer in module.named_modules():
        for name, weight in layer.named_parameters(recurse=False):
            if id(weight) in known or not _is_matrix(layer, name, weight):
                continue
            known.add(id(weight))
            # GPT-2 stores matrices as [inputs, outputs], and some families those of experts.
            transposed = type(layer).__name__ == "Conv1D" or bool(
                weight.ndim == 3 and getattr(layer, "is_transposed", False)
            )
            yield Matrix(f"{path}.{name}".lstrip("."), weight, transposed)


def _is_matrix(layer: nn.Module, name: str, weight: nn.Parameter) -> bool:
    if weight.ndim == 2 and name == "weight":
        return True
    if weight.ndim not in (2, 3) or isinstance(layer, _ConvNd) or NO_MATRIX.search(name):
        return False
    return min(weight.shape[-2:]) >= (LEAST_UNNAMED if weight.ndim == 2 else 2)


def share_of_matrices(modules: Iterable[nn.Module]) -> float:
    """Return the share of the modules' weights that stands in matrices."""
    total = 0
    in_matrices = 0
    for module in modules:
        total += sum(weight.numel() for weight in module.parameters())
        in_matrices += sum(matrix.weight.numel() for matrix in matrices(module))
    return in_matrices / max(1, total)


def unrounded(model: Any, bits: str) -> list[str]:
    """Return the sentence that some matrices kept their precision, where they are many.

    Packages that round a model while it is loaded replace linear layers: experts that stand in one
    parameter stay. Tables of embeddings and the output layer are not counted.
    """
    tables = {id(part.weight) for part in model.modules() if isinstance(part, nn.Embedding)}
    output = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if output is not None:
        tables.add(id(getattr(output, "weight", None)))
    weights = [matrix.weight for matrix in matrices(model) if id(matrix.weight) not in tables]
    total = sum(weight.numel() for weight in weights)
    left = sum(weight.numel() for weight in weights if weight.is_floating_point())
    if left <= LEAST_UNROUNDED * total:
        return []
    return [
        f"{left / total:.0%} of the weights in matrices are not rounded to {bits}: they stand in "
        "no linear layers (experts)."
    ]
