"""Files that the real libraries write give the live scan's numbers; each is skipped, loudly, where
its library is absent.
"""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

import headscan
from headscan import BadInput
from headscan.states import FORMATS, read_states
from headscan.states.location import Location
from tests.cli.test_scan_command import run
from tests.states.conftest import CONTEXT, TOKENS

HERE = Path(__file__).parent


def table(stored_states, *, fixed=True, dtype=np.float32) -> pa.Table:
    """A vector a row, with token ids and documents."""
    columns = {}
    for site, states in stored_states.states.items():
        rows = states.flatten(0, 1).numpy().astype(dtype)
        kind = (
            pa.list_(pa.from_numpy_dtype(dtype), rows.shape[1])
            if fixed
            else pa.list_(pa.from_numpy_dtype(dtype))
        )
        values = pa.array(rows.reshape(-1))
        columns[site] = (
            pa.FixedSizeListArray.from_arrays(values, type=kind)
            if fixed
            else pa.ListArray.from_arrays(
                np.arange(0, rows.size + 1, rows.shape[1], dtype=np.int32), values
            )
        )
    ids = pa.array(stored_states.ids.flatten().numpy())
    documents = pa.array(stored_states.documents.flatten().numpy())
    return pa.table(
        columns | {"token_ids": ids, "documents": documents, "note": pa.array(["x"] * TOKENS)}
    )


@pytest.mark.parametrize("fixed", [True, False], ids=["fixed-size lists", "lists"])
def test_parquet(stored_states, tmp_path, fixed):
    (tmp_path / "parts").mkdir()
    rows = table(stored_states, fixed=fixed)
    for number, (first, last) in enumerate([(0, 100), (100, TOKENS)]):
        pq.write_table(
            rows.slice(first, last - first),
            tmp_path / "parts" / f"{number}.parquet",
            row_group_size=70,
        )
    stored_states.compare(headscan.scan(tmp_path / "parts", context=CONTEXT))


def test_one_column_of_parquet(stored_states, tmp_path):
    pq.write_table(table(stored_states), tmp_path / "all.parquet")
    stored_states.compare(
        headscan.scan(tmp_path / "all.parquet", context=CONTEXT, field="block.1"),
        {"block.1": "block.1"},
    )


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "file"])
def test_arrow(stored_states, tmp_path, stream):
    rows = table(stored_states)
    make = pa.ipc.new_stream if stream else pa.ipc.new_file
    with make(tmp_path / "all.arrow", rows.schema) as sink:
        sink.write_table(rows, max_chunksize=97)
    stored_states.compare(headscan.scan(tmp_path / "all.arrow", context=CONTEXT))


def test_activations_as_saelens_stores_them_with_datasets(stored_states, tmp_path):
    """Folders shard_0, shard_1, ...: a column named by its hook, Array2D a window, and
    `token_ids`.
    """
    datasets = pytest.importorskip(
        "datasets", reason="datasets is not installed: its folders are NOT read"
    )
    width = stored_states.states["block.1"].shape[-1]
    hook = "blocks.1.hook_resid_post"
    features = datasets.Features(
        {
            hook: datasets.Array2D((CONTEXT, width), "float32"),
            "token_ids": datasets.Sequence(datasets.Value("int32"), length=CONTEXT),
        }
    )
    for number, part in enumerate([slice(0, 4), slice(4, 10)]):
        rows = {
            hook: stored_states.states["block.1"][part].numpy(),
            "token_ids": stored_states.ids[part].int().numpy(),
        }
        datasets.Dataset.from_dict(rows, features=features).save_to_disk(
            tmp_path / f"shard_{number}"
        )
    source = read_states(str(tmp_path))
    assert source.window == CONTEXT
    assert source.ids.read(0, TOKENS).flatten().tolist() == stored_states.ids.flatten().tolist()
    row = headscan.scan(tmp_path).site("block.1")
    assert row["average_cosine"] == stored_states.alone("block.1").site("block.1")["average_cosine"]
    assert (
        row["singular_values"] == stored_states.alone("block.1").site("block.1")["singular_values"]
    )


def test_what_saelens_itself_wrote():
    """Its runner's store of a random model (saelens/write.py), against what the model's own cache
    held.
    """
    archive = np.load(HERE / "saelens" / "seen.npz")
    store = read_states(str(HERE / "saelens" / "store"))
    assert store.window == 16
    assert store.ids.read(0, 640).flatten().tolist() == archive["ids"].flatten().tolist()
    stored = headscan.scan(HERE / "saelens" / "store")
    live = headscan.scan({"block.1": archive["states"]})
    for name in ("average_cosine", "mean_norm", "singular_values"):
        assert stored.site("block.1")[name] == live.site("block.1")[name]


def test_token_embeddings_and_sentence_embeddings_of_sentence_transformers(stored_states, tmp_path):
    library = pytest.importorskip(
        "sentence_transformers", reason="it is not installed: its arrays are NOT read"
    )
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    (tmp_path / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"])
    )
    config = BertConfig(
        vocab_size=13,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
    )
    BertModel(config).save_pretrained(tmp_path)
    from transformers import BertTokenizerFast

    BertTokenizerFast(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    model = library.SentenceTransformer(str(tmp_path), device="cpu")
    rows = model.encode(
        [" ".join(np.random.default_rng(k).choice(list("abcdefgh"), 5)) for k in range(30)]
    )
    assert headscan.scan(rows, context=5).site("vectors")["tokens"] == 30


def test_every_format_says_what_it_was_tried_with():
    assert all(
        file_format.title and file_format.sentence and file_format.tried
        for file_format in FORMATS.values()
    )


def damaged(tmp_path):
    """(what is wrong, path, words of the sentence)"""
    rows = np.random.default_rng(0).standard_normal((200, 8)).astype(np.float32)
    np.save(tmp_path / "whole.npy", rows)
    data = (tmp_path / "whole.npy").read_bytes()
    (tmp_path / "short.npy").write_bytes(data[:3000])
    (tmp_path / "foreign.npy").write_bytes(b"not numpy at all")
    np.save(tmp_path / "flat.npy", rows[:, 0])
    np.save(tmp_path / "words.npy", np.array(["a", "b"]))
    np.save(tmp_path / "columns.npy", np.asfortranarray(rows))
    np.save(tmp_path / "empty.npy", rows[:0])
    nan = rows.copy()
    nan[150, 3] = np.nan
    np.save(tmp_path / "nan.npy", nan)
    np.savez(tmp_path / "uneven.npz", a=rows, b=rows[:100])
    (tmp_path / "short.npz").write_bytes((tmp_path / "uneven.npz").read_bytes()[:5000])
    save_file({"a": torch.from_numpy(rows)}, tmp_path / "whole.safetensors")
    data = (tmp_path / "whole.safetensors").read_bytes()
    (tmp_path / "short.safetensors").write_bytes(data[:-100])
    (tmp_path / "foreign.safetensors").write_bytes(b"x" * 50)
    save_file({"weight": torch.ones(3, 4), "bias": torch.ones(3)}, tmp_path / "weights.safetensors")
    rows_table = pa.table({"v": pa.array(list(rows)), "note": pa.array(["x"] * 200)})
    pq.write_table(rows_table, tmp_path / "whole.parquet")
    (tmp_path / "short.parquet").write_bytes((tmp_path / "whole.parquet").read_bytes()[:-50])
    pq.write_table(rows_table.select(["note"]), tmp_path / "text.parquet")
    pq.write_table(pa.table({"v": pa.array([[1.0, 2.0], [1.0]])}), tmp_path / "ragged.parquet")
    pq.write_table(pa.table({"v": pa.array([[1.0, 2.0], None])}), tmp_path / "null.parquet")
    with pa.ipc.new_stream(tmp_path / "whole.arrow", rows_table.schema) as sink:
        sink.write_table(rows_table)
    (tmp_path / "short.arrow").write_bytes((tmp_path / "whole.arrow").read_bytes()[:4000])
    (tmp_path / "foreign.pt").write_bytes(b"x" * 50)
    (tmp_path / "whole.bin").write_bytes(b"x" * 50)
    yield from (
        ("truncated", "short.npy", "truncated"),
        ("foreign", "foreign.npy", "no .npy file"),
        ("1-D", "flat.npy", "shape"),
        ("words", "words.npy", "no states are"),
        ("Fortran", "columns.npy", "Fortran"),
        ("empty", "empty.npy", "no numbers"),
        ("NaN", "nan.npy", "NaN"),
        ("uneven", "uneven.npz", "different numbers"),
        ("truncated", "short.npz", "truncated"),
        ("truncated", "short.safetensors", "truncated"),
        ("foreign", "foreign.safetensors", "no .safetensors"),
        ("weights", "weights.safetensors", "shape"),
        ("truncated", "short.parquet", "no Parquet file, or is truncated"),
        ("no vectors", "text.parquet", "no column of vectors"),
        ("ragged", "ragged.parquet", "different lengths"),
        ("null", "null.parquet", "missing"),
        ("truncated", "short.arrow", "truncated"),
        ("foreign", "foreign.pt", "damaged"),
        ("unknown", "whole.bin", "is a file"),
        ("absent", "absent.npy", "here is no"),
        ("no site", "whole.npy#x", "no site"),
        ("no column", "whole.parquet", "no column 'w'"),
    )


def test_a_damaged_foreign_nan_or_misshaped_file_is_refused_in_a_sentence(tmp_path):
    for damage, name, message in damaged(tmp_path):
        field = "w" if damage == "no column" else None
        with pytest.raises(BadInput, match=message) as refused:
            headscan.scan(str(tmp_path / name), field=field)
        sentence = str(refused.value)
        assert sentence.endswith((".", ")")), (damage, sentence)
        assert "\n" not in sentence, (damage, sentence)


def damaged_stores(folder):
    """Yield for each format a way to write rows [n, 8] of it, and what a NaN, a truncation and
    another shape do to it.
    """
    rows = np.random.default_rng(0).standard_normal((200, 8)).astype(np.float32)
    nan = rows.copy()
    nan[150, 3] = np.nan

    def arrow(values, path):
        table = pa.table({"v": pa.array(list(values))})
        with pa.ipc.new_file(path, table.schema) as sink:
            sink.write_table(table)

    writers = {
        "a.npy": lambda values, path: np.save(path, values),
        "a.npz": lambda values, path: np.savez(path, v=values),
        "a.safetensors": lambda values, path: save_file({"v": torch.from_numpy(values)}, path),
        "a.parquet": lambda values, path: pq.write_table(
            pa.table({"v": pa.array(list(values))}), path
        ),
        "a.arrow": arrow,
        "a.pt": lambda values, path: torch.save(torch.from_numpy(values), path),
    }
    for name, write in writers.items():
        for kind, values in (
            ("nan", nan),
            ("infinite", np.where(np.isnan(nan), np.inf, nan)),
            ("cut", rows),
        ):
            (folder / kind).mkdir(exist_ok=True)
            path = folder / kind / name
            write(values, path)
            if kind == "cut":
                largest = max(
                    [path for path in path.rglob("*") if path.is_file()] or [path],
                    key=lambda path: path.stat().st_size,
                )
                largest.write_bytes(largest.read_bytes()[: largest.stat().st_size * 2 // 3])
            yield kind, path


def test_nan_infinite_and_truncated_stores_of_every_format_are_refused_in_a_sentence(tmp_path):
    refused_files = set()
    for kind, path in damaged_stores(tmp_path):
        with pytest.raises(BadInput) as refused:
            headscan.scan(str(path), context=50)
        sentence = str(refused.value)
        assert "\n" not in sentence, (kind, path.name, sentence)
        assert kind == "cut" or "NaN" in sentence, (kind, path.name, sentence)
        refused_files.add((kind, path.name))
    assert len(refused_files) == 18


@pytest.mark.parametrize(
    "name", ["../a.arrow", "/a.arrow", "memory://a.arrow", "deep/../../a.arrow"]
)
def test_names_that_lead_out_of_a_folder_are_refused(name, tmp_path):
    (tmp_path / "state.json").write_text(json.dumps({"_data_files": [{"filename": name}]}))
    (tmp_path / "dataset_info.json").write_text("{}")
    with pytest.raises(BadInput, match="outside it"):
        read_states(str(tmp_path))


def test_the_command_says_it_and_exits_with_2(tmp_path):
    (tmp_path / "foreign.npy").write_bytes(b"not numpy at all")
    done = run(str(tmp_path / "foreign.npy"), "--out", str(tmp_path / "out"), status=2)
    assert done.stderr.startswith("headscan: ")
    assert done.stderr.count("\n") == 1


def test_a_file_that_is_not_there_is_called_a_file():
    with pytest.raises(BadInput, match=r"There is no file nowhere\.npy"):
        headscan.scan("nowhere.npy")


def test_files_that_may_not_be_looked_at_are_none(tmp_path):
    """A link into another's process, one to itself, one to nothing; a folder of another name's
    ending.
    """
    for name, target in (("a", "/proc/1/cwd"), ("b", "b.safetensors"), ("c", "nowhere")):
        (tmp_path / f"{name}.safetensors").symlink_to(target)
    (tmp_path / "deep" / "d.safetensors").mkdir(parents=True)
    (tmp_path / "deep" / "e.safetensors").write_bytes(b"")
    assert [path.path for path in Location(str(tmp_path)).files(".safetensors")] == [
        f"{tmp_path}/deep/e.safetensors"
    ]
    with pytest.raises(BadInput, match=r"d\.safetensors holds no states"):
        read_states(str(tmp_path / "deep" / "d.safetensors"))
