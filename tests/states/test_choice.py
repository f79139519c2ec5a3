"""The user's choice of columns, arrays and precisions decides before anything else is judged."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

from headscan import BadInput
from headscan.states import stored_source

ROWS = np.random.default_rng(0).standard_normal((40, 16)).astype(np.float32)
TENSOR = torch.from_numpy(ROWS)
TEXTS = [f"text {number}" for number in range(len(ROWS))]


def read(path, **options):
    """The vectors of each site of a store as arrays, and its source."""
    source = stored_source(path if isinstance(path, dict | tuple) else str(path), **options)
    rows = {site: [] for site in source.sites}
    for batch in source.batches():
        source.visit(batch, source.sites, lambda site, states: rows[site].append(states))
    return source, {
        site: torch.cat([part.flatten(0, 1) for part in parts]).float().numpy()
        for site, parts in rows.items()
    }


def table(path, **columns):
    pq.write_table(pa.table(columns), path)
    return path


def repeated(path):
    """A table with two columns of one name beside the vectors."""
    columns = [pa.array(TEXTS), pa.array(list(ROWS)), pa.array(TEXTS)]
    pq.write_table(pa.table(columns, names=["note", "v", "note"]), path)
    return path


def beside(tmp_path):
    """(a store of ROWS beside what is none, whether it is read without a choice)"""
    vectors = list(ROWS)
    ragged = [[1] * (1 + number % 3) for number in range(len(ROWS))]
    holes = [None, *vectors[1:]]
    texts = tmp_path / "texts.npz"
    np.savez(texts, v=ROWS, documents=np.array(TEXTS))
    labels = tmp_path / "labels.npz"
    np.savez(labels, v=ROWS, label=np.arange(40), name=np.array(TEXTS), documents=np.arange(3))
    flags = tmp_path / "flags.safetensors"
    save_file({"v": TENSOR, "mask": TENSOR > 0, "label": torch.arange(40)}, flags)
    torch.save({"v": TENSOR, "label": torch.arange(40)}, tmp_path / "label.pt")
    yield table(tmp_path / "document.parquet", document=TEXTS, v=vectors), True
    yield table(tmp_path / "tokens.parquet", input_ids=ragged, v=vectors), True
    yield texts, True
    yield table(tmp_path / "holes.parquet", w=holes, v=vectors), False
    yield table(tmp_path / "fractions.parquet", token_ids=np.linspace(0, 1, 40), v=vectors), False
    yield table(tmp_path / "windows.parquet", w=[[row] for row in vectors], v=vectors), False
    yield repeated(tmp_path / "repeated.parquet"), False
    yield labels, False
    yield flags, False
    yield tmp_path / "label.pt", False


def test_what_stands_beside_the_chosen_vectors_is_not_judged(tmp_path):
    for path, read_whole in beside(tmp_path):
        for chosen in (read(path, field="v"), read(f"{path}#v")):
            assert list(chosen[1]) == ["v"], path.name
            np.testing.assert_array_equal(chosen[1]["v"], ROWS)
        if read_whole:
            np.testing.assert_array_equal(read(path)[1]["v"], ROWS)
        else:
            with pytest.raises(BadInput):
                read(path)
        with pytest.raises(BadInput, match=r"no (column|site) 'text'"):
            read(path, field="text")


@pytest.mark.parametrize("kind", ["windows", "vectors"])
def test_fixed_shape_tensors_have_their_shape(kind, tmp_path):
    shape = (4, 4) if kind == "windows" else (16,)
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(ROWS.reshape(40, *shape))
    path = table(tmp_path / "tensors.parquet", v=tensors)
    source, rows = read(path)
    np.testing.assert_array_equal(rows["v"], ROWS.reshape(-1, shape[-1]))
    assert source.context == (4 if kind == "windows" else 40)


@pytest.mark.parametrize("dtype", ["e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz"])
def test_floats_of_8_bits_are_numbers(dtype, tmp_path):
    stored = TENSOR.to(getattr(torch, f"float8_{dtype}"))
    save_file({"v": stored}, tmp_path / "a.safetensors")
    torch.save(stored, tmp_path / "a.pt")
    for name in ("a.safetensors", "a.pt"):
        (rows,) = read(tmp_path / name)[1].values()
        np.testing.assert_array_equal(rows, stored.float().numpy())


@pytest.mark.parametrize("precision", ["int8", "uint8", "binary", "ubinary"])
def test_the_precisions_of_sentence_transformers(precision, tmp_path):
    util = pytest.importorskip(
        "sentence_transformers.util", reason="sentence-transformers' precisions are NOT tried"
    )
    ranges = np.stack([ROWS.min(0), ROWS.max(0)])
    stored = util.quantize_embeddings(ROWS, precision, ranges=ranges)
    np.save(tmp_path / "a.npy", stored)
    table(tmp_path / "a.parquet", v=list(stored))
    if precision.endswith("binary"):
        for path in (f"{tmp_path}/a.npy#vectors", f"{tmp_path}/a.npy#", f"{tmp_path}/a.parquet#v"):
            (rows,) = read(f"{path}:{precision}")[1].values()
            np.testing.assert_array_equal(rows, np.where(ROWS > 0, 1, -1))
        other = "binary" if precision == "ubinary" else "ubinary"
        with pytest.raises(BadInput, match=f":{other} is packed in"):
            read(f"{tmp_path}/a.npy#:{other}")
        return

    for name in ("a.npy", "a.parquet"):
        source, rows = read(tmp_path / name)
        np.testing.assert_array_equal(next(iter(rows.values())), stored.astype(np.float32))
        assert any("taken as they stand" in note for note in source.record().notes)
    step = (ranges[1] - ranges[0]) / 255
    shift = 128 if precision == "int8" else 0
    np.savez(tmp_path / "ranges.npz", v=stored, ranges=ranges)
    scale = {"scale": step, "zero_point": -shift - ranges[0] / step}
    for source, rows in (read(tmp_path / "ranges.npz"), read({"v": stored, **scale})):
        assert np.abs(rows["v"] - ROWS).max() <= step.max() * 1.001
        assert not any("taken as they stand" in note for note in source.record().notes)
    with pytest.raises(BadInput, match="3 numbers at 'scale'"):
        read({"v": stored, "scale": np.ones(3)})


def test_larger_whole_numbers_are_vectors_where_the_user_names_them(tmp_path):
    whole = (100 * ROWS).astype(np.int64)
    path = table(tmp_path / "a.parquet", v=list(whole))
    np.savez(tmp_path / "a.npz", v=whole)
    for refused in (path, tmp_path / "a.npz"):
        with pytest.raises(BadInput):
            read(refused)
        np.testing.assert_array_equal(read(refused, field="v")[1]["v"], whole)


def test_hidden_states_in_tuples_and_nested_dicts_are_sites(tmp_path):
    layers = tuple(TENSOR.reshape(5, 8, 16) + number for number in range(3))
    nested = {"step": 3, "run": {"hidden_states": layers, "label": torch.arange(5)}}
    torch.save(layers, tmp_path / "layers.pt")
    torch.save(nested, tmp_path / "nested.pt")
    torch.save({"step": 3, "name": "x"}, tmp_path / "none.pt")
    chosen = read(tmp_path / "nested.pt", field="run.hidden_states")
    live = read(nested, field="run.hidden_states")
    for source, rows in (read(tmp_path / "layers.pt"), chosen):
        assert [site[-1] for site in source.sites] == ["0", "1", "2"]
        assert source.context == 8
        for layer, states in zip(layers, rows.values(), strict=True):
            np.testing.assert_array_equal(states, layer.reshape(-1, 16).numpy())
    assert "run.hidden_states.2" in live[1]
    with pytest.raises(BadInput, match=r"'run\.label' has"):
        read(tmp_path / "nested.pt")
    with pytest.raises(BadInput, match="no tensors; it has: step, name"):
        read(tmp_path / "none.pt")
