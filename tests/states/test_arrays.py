"""Arrays, dicts, streams and flat files give the live scan's numbers bit for bit."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import headscan
from headscan import BadInput
from headscan.states import stored_source
from tests.reference import geometry as reference
from tests.states.conftest import CONTEXT


def flat(stored_states, site="block.1"):
    return stored_states.states[site].flatten(0, 1)


class Foreign:
    """An array of another library, known by DLPack alone."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


@pytest.mark.parametrize(
    "make", [torch.Tensor.clone, torch.Tensor.numpy, Foreign], ids=["torch", "numpy", "DLPack"]
)
def test_an_array_gives_the_live_numbers(stored_states, make):
    # One document at most: an array does not know documents, and clusters are windows then.
    row = headscan.scan(make(flat(stored_states)), context=CONTEXT).site("vectors")
    for name in (
        "average_cosine",
        "effective_rank",
        "isoscore",
        "mean_norm",
        "singular_values",
        "tokens",
    ):
        assert row[name] == stored_states.alone("block.1").site("block.1")[name]


def test_a_dict_gives_the_live_numbers_and_intervals(stored_states):
    stored_states.compare(headscan.scan(stored_states.all))


def test_numpy_files_give_the_live_numbers(stored_states, tmp_path):
    np.save(tmp_path / "one.npy", flat(stored_states).numpy())
    row = headscan.scan(tmp_path / "one.npy", context=CONTEXT).site("vectors")
    assert row["average_cosine"] == stored_states.alone("block.1").site("block.1")["average_cosine"]
    arrays = {name: value.numpy() for name, value in stored_states.all.items()}
    np.savez(tmp_path / "all.npz", **arrays)
    stored_states.compare(headscan.scan(tmp_path / "all.npz"))
    np.savez_compressed(tmp_path / "packed.npz", **arrays)
    stored_states.compare(headscan.scan(tmp_path / "packed.npz"))


def test_safetensors_give_the_live_numbers_from_one_file_or_several(stored_states, tmp_path):
    save_file(stored_states.all, tmp_path / "all.safetensors")
    stored_states.compare(headscan.scan(tmp_path / "all.safetensors"))
    (tmp_path / "parts").mkdir()
    for number, (first, last) in enumerate([(0, 3), (3, 10)]):
        part = {name: value[first:last].contiguous() for name, value in stored_states.all.items()}
        save_file(part, tmp_path / "parts" / f"{number}.safetensors")
    stored_states.compare(headscan.scan(tmp_path / "parts"))


def test_one_site_of_a_file_is_named_behind_a_hash(stored_states, tmp_path):
    save_file(stored_states.all, tmp_path / "all.safetensors")
    stored_states.compare(
        headscan.scan(f"{tmp_path}/all.safetensors#block.0"), {"block.0": "block.0"}
    )


def test_a_url_gives_the_live_numbers(stored_states):
    import fsspec

    with fsspec.open("memory://states/all.npy", "wb") as file:
        np.save(file, stored_states.states["block.1"].numpy())
    row = headscan.scan("memory://states/all.npy").site("vectors")
    assert row["average_cosine"] == stored_states.alone("block.1").site("block.1")["average_cosine"]


def test_half_precision_is_within_a_millionth_of_the_scan_of_the_same_numbers_in_float64(
    stored_states, tmp_path
):
    half = flat(stored_states).half()
    np.save(tmp_path / "half.npy", half.numpy())
    row = headscan.scan(tmp_path / "half.npy", context=CONTEXT).site("vectors")
    for name in ("average_cosine", "effective_rank", "isoscore"):
        assert row[name] == pytest.approx(reference.SCALARS[name](half.double().numpy()), rel=1e-6)


def test_every_vector_counts_also_those_that_fill_no_window():
    rows = np.random.default_rng(0).standard_normal((333, 8)).astype(np.float32)
    result = headscan.scan(rows, context=50)
    row = result.site("vectors")
    assert row["tokens"] == 333
    assert row["average_cosine"] == pytest.approx(
        reference.SCALARS["average_cosine"](rows.astype(np.float64)), rel=1e-9
    )
    assert "The last 33 vectors" in " ".join(result.models[0].notes)


def test_stored_states_beside_a_model(stored_states):
    result = headscan.scan(
        ["gpt-vanilla", stored_states.all], ["a b c d. " * 200], context=CONTEXT, max_tokens=128
    )
    assert [model.name for model in result.models] == ["gpt-vanilla", "array"]


def test_a_model_needs_a_text_and_states_refuse_one(stored_states):
    with pytest.raises(BadInput, match="--text TEXT"):
        headscan.scan("gpt-vanilla")
    with pytest.raises(BadInput, match="--text is not used"):
        headscan.scan(np.ones((9, 3)), ["a text"])


def test_processes_share_the_batches_of_a_store(stored_states):
    source = stored_source(torch.zeros(1000, 4), context=30, batch=4)
    shares = [
        [batch.indices.tolist() for batch in source.batches(process=process, processes=3)]
        for process in range(3)
    ]
    assert sorted(window for share in shares for part in share for window in part) == list(
        range(34)
    )
    resumed = [batch.indices.tolist() for batch in source.batches(start=31)]
    assert resumed == [[31], [32], [33]]


def test_vectors_without_windows_have_no_first_positions():
    vectors = torch.randn(640, 8, generator=torch.Generator().manual_seed(0)) + 0.5
    uncut = headscan.scan(vectors).site("vectors")
    assert uncut["average_cosine_without_first"] == uncut["average_cosine"]

    cut = headscan.scan(vectors, context=64).site("vectors")
    others = vectors[torch.arange(640) % 64 > 0].double().numpy()
    expected = reference.average_cosine(others)
    assert cut["average_cosine_without_first"] == pytest.approx(expected, abs=1e-12)

    with pytest.raises(BadInput, match="--context gives the vectors of a window"):
        headscan.scan(vectors, skip_first=1)
