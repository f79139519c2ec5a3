"""A remedy as an ONNX graph: from `vectors` [n, d] to `remedied` [n, k], float32."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from headscan.remedies.methods.quantile import QuantileRemedy
from headscan.remedies.remedy import AffineRemedy, Remedy
from headscan.run import BadInput

__all__ = ["save_onnx"]

OPSET = 17


def save_onnx(remedy: Remedy, path: str | os.PathLike[str]) -> Path:
    """Write the map; it is computed in float32.

    Raises:
        BadInput: onnx (`headscan[onnx]`) is not installed, or a plug-in's map is of another form.
    """
    try:
        import onnx
        from onnx import TensorProto, helper, numpy_helper
    except ImportError:
        raise BadInput("To write ONNX, pip install 'headscan[onnx]'.") from None
    width, wide = remedy.widths
    constants: dict[str, np.ndarray] = {}
    if isinstance(remedy, AffineRemedy):
        # Centred before the product: a mean far from the origin would drown in float32 behind it.
        constants = {
            "shift": remedy.shift,
            "matrix": remedy.matrix,
            "offset": np.zeros(wide) if remedy.offset is None else remedy.offset,
        }
        nodes = [
            ("Sub", "vectors shift", "centred"),
            ("MatMul", "centred matrix", "mapped"),
            ("Add", "mapped offset", "remedied"),
        ]
    elif isinstance(remedy, QuantileRemedy):
        constants = {"first": remedy.knots[0], "slope": remedy.slope, "start": remedy.start}
        nodes = [("Sub", "vectors first", "apart"), ("Mul", "apart slope", "line"), ("Add", "line start", "sum0")]
        last = len(remedy.knots) - 1
        for k in range(1, last + 1):
            constants |= {f"knot{k}": remedy.knots[k], f"bend{k}": remedy.bends[k]}
            nodes += [
                ("Sub", f"vectors knot{k}", f"over{k}"), ("Relu", f"over{k}", f"past{k}"),
                ("Mul", f"past{k} bend{k}", f"part{k}"),
                ("Add", f"sum{k - 1} part{k}", "remedied" if k == last else f"sum{k}"),
            ]  # fmt: skip
    else:
        raise BadInput(f"The remedy '{remedy.name}' is of a form that ONNX is not written of: {type(remedy).__name__}.")
    graph = helper.make_graph(
        [helper.make_node(kind, given.split(), [made]) for kind, given, made in nodes], remedy.name,
        [helper.make_tensor_value_info("vectors", TensorProto.FLOAT, ["n", width])],
        [helper.make_tensor_value_info("remedied", TensorProto.FLOAT, ["n", wide])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in constants.items()],
    )  # fmt: skip
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8, producer_name="headscan"
    )
    onnx.checker.check_model(model)
    found = Path(path)
    found.parent.mkdir(parents=True, exist_ok=True)
    found.write_bytes(model.SerializeToString())
    return found
