"""Files of models, stores and texts, and what is changed in them: fields of JSON, headers, offsets,
types, numbers, bytes.
"""

import gzip
import io
import json
import mmap
import random
import re
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import zstandard
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

from headscan.model.gguf import HeaderReader
from tests.model.test_gguf import write
from tests.model.tiny import gpt2, llama

Draw = random.Random
DEEP = "@deep"
HOSTILE: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    3,
    2**31,
    2**63,
    10**30,
    0.5,
    1e308,
    float("nan"),
    -float("inf"),
    "",
    "x",
    "../outside",
    "/dev/zero",
    "\x1b[2J\x00",
    "é\u202e" * 900,
    [],
    {},
    [[]],
    [None],
    ["x"],
    [-1, 2**62],
    {"x": 1},
    {"type": "x"},
    DEEP,
]
KNOWN = (
    "quantization_config",
    "rope_scaling",
    "rope_parameters",
    "auto_map",
    "transformers_weights",
    "dtype",
    "tie_word_embeddings",
    "is_decoder",
    "layer_types",
    "attn_implementation",
    "__metadata__",
    "added_tokens",
    "chat_template",
    "tokenizer_class",
    "_data_files",
    "num_labels",
)
MODULES = (
    b'[{"idx": 0, "name": "0", "path": "", "type": "x.T"}, '
    b'{"idx": 1, "name": "1", "path": "1_Pooling", "type": "x.Normalize"}]'
)
EDGES = (
    0,
    1,
    -1,
    7,
    127,
    255,
    2**15,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 1,
)
FLOATS = (float("nan"), float("inf"), -float("inf"), 3e38, 1e-45, 0.0, -1e30)


def dumped(value: Any, draw: Draw) -> bytes:
    """As JSON; one node, or none, is nested deeper than Python recurses."""
    deep = draw.choice(
        ["[" * 9**5, "[" * 9**4 + "]" * 9**4, '{"a":' * 9**4 + "1" + "}" * 9**4, "9" * 5000]
    )
    text = json.dumps(value).replace(f'"{DEEP}"', deep)
    return (text.replace("{", '{"x": [], ', 1) if draw.random() < 0.05 else text).encode()


def tree(value: Any, draw: Draw) -> bytes:
    """A JSON document, one node of which is another."""
    root: Any = [value]
    parent = root
    key = 0
    while (
        parent[key]
        and isinstance(parent[key], dict | list)
        and (parent is root or draw.random() < 0.7)
    ):
        parent = parent[key]
        key = draw.choice(list(parent) if isinstance(parent, dict) else range(len(parent)))
    old = parent[key]
    action = draw.randrange(8)
    if action == 0 and parent is not root:
        del parent[key]
    elif action == 1 and isinstance(parent, dict):
        parent[draw.choice([*KNOWN, "x", ""])] = draw.choice([old, *HOSTILE])
    elif action == 2 and isinstance(parent, list) and parent is not root:
        parent.insert(key, old)
    elif action == 3 and isinstance(old, int | float):
        parent[key] = draw.choice(
            [old + 1, old - 1, -old, old * 2, old * 1000, float(old), str(old), [old]]
        )
    elif action == 4 and isinstance(old, str):
        changed = [old + "x", old[:-1], old.upper(), [old], {old: old}, old * 1000]
        parent[key] = draw.choice(changed)
    else:
        parent[key] = draw.choice(HOSTILE)
    return dumped(root[0], draw)


def shaken(data: bytes, draw: Draw, spans: list[tuple[int, int]] | None = None) -> bytes:
    """Bytes of which one place, or a few, are others; of the places that a format knows, if any are
    given.
    """
    raw = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 5))):
        raw = raw or bytearray(8)
        at = draw.choice(
            (
                draw.randrange(len(raw)),
                draw.randrange(min(len(raw), 200)),
                max(0, len(raw) - 1 - draw.randrange(200)),
            )
        )
        size = draw.choice((1, 2, 4, 8))
        if spans:
            at, size = draw.choice(spans)
            at = min(at, len(raw) - 1)
        action = draw.randrange(6)
        if action == 0:
            raw[at] ^= 1 << draw.randrange(8)
        elif action == 1 and not spans:
            raw = raw[:at]
        elif action == 2:
            raw[at:at] = draw.randbytes(draw.choice((1, 8, 300)))
        elif action == 3 and not spans and len(raw) > at + 1:
            del raw[at : at + draw.choice((1, 8, 300))]
        else:
            raw[at : at + size] = (draw.choice((*EDGES, raw[at] + 1)) % 256**size).to_bytes(
                size, "little"
            )
    return bytes(raw)


def numbers(data: bytes, draw: Draw) -> bytes:
    """Bytes of numbers, some of which are none, or too large."""
    form = draw.choice("edf")
    size = struct.calcsize(form)
    raw = bytearray(data or bytes(8))
    with np.errstate(all="ignore"):
        bad = np.array(draw.choice(FLOATS)).astype(form).tobytes()
    for _ in range(draw.choice((1, 3, 1 + len(raw) // size))):
        at = draw.randrange(max(1, len(raw) // size)) * size
        raw[at : at + size] = bad
    return bytes(raw[: len(data)])


def safetensors(data: bytes, draw: Draw) -> bytes:
    length = int.from_bytes(data[:8], "little")
    head = data[8 : 8 + length]
    content = data[8 + length :]
    if draw.random() < 0.6:
        head = tree(json.loads(head), draw)
    else:
        content = numbers(content, draw)
    length = draw.choice((len(head),) * 9 + EDGES)
    return struct.pack("<Q", length % 2**64) + head + content


TYPES = (
    "|O",
    "<f2",
    ">f8",
    "<i8",
    "|b1",
    "<c8",
    "|S4",
    "<M8[s]",
    "<U3",
    "|V8",
    "<f16",
    "x",
    "",
    "<f400",
    "|S99999999999",
)
SHAPES = (
    "()",
    "(0, 8)",
    "(64, 0)",
    "(-1, 8)",
    "(512,)",
    "(8, 8, 8)",
    "(2, 0, 8)",
    "(9999999999, 8)",
    f"({2**62}, {2**62})",
    "(True, 8)",
    "(64.0, 8)",
    "'x'",
    "[64, 8]",
    "(1, 1, 64, 8)",
    "(256, 2)",
    "(" * 300,
)


def npy(data: bytes, draw: Draw) -> bytes:
    start = 10 + int.from_bytes(data[8:10], "little")
    head = data[10:start].decode()
    content = data[start:]
    action = draw.randrange(4)
    if action == 0:
        head = head.replace(
            "'<f4'", draw.choice([f"'{draw.choice(TYPES)}'", "[('a', '<f4')]", "1", "None"])
        )
    elif action == 1:
        head = re.sub(r"\(\d.*?\)", draw.choice(SHAPES), head)
    elif action == 2:
        head = draw.choice(
            [
                head.replace("False", draw.choice(("True", "1", "'x'", "__import__('os')"))),
                head.replace("'shape'", "'s'"),
                "[]",
            ]
        )
    else:
        content = numbers(content, draw)
    version = draw.choice((1, 1, 2, 3, 9))
    return (
        data[:6]
        + bytes([version, 0])
        + struct.pack("<H" if version == 1 else "<I", len(head))
        + head.encode()
        + content
    )


def npz(data: bytes, draw: Draw) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = draw.choice(list(members))
    members[
        draw.choice(
            (name, name, name, "x.txt", "../x.npy", "\x1b[2J.npy", "token_ids.npy", "documents")
        )
    ] = npy(members[name], draw)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", draw.choice((0, 0, 8, 12, 14))) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return packed.getvalue()


def column(draw: Draw, rows: int) -> Any:
    """A column of vectors in one of Arrow's many types, or of something else."""
    flat = pa.array(np.random.default_rng(0).standard_normal(rows * 8).astype(np.float32))
    wide = np.arange(0, rows * 8 + 1, 8)
    lists = pa.ListArray.from_arrays(pa.array(wide, pa.int32()), flat)
    makers: list[Callable[[], Any]] = [
        lambda: lists,
        lambda: lists,
        lambda: lists,
        lambda: pa.FixedSizeListArray.from_arrays(flat, 8),
        lambda: pa.LargeListArray.from_arrays(pa.array(wide, pa.int64()), flat),
        lambda: pa.array([[[0.5] * 4] * 2] * rows),
        lambda: pa.array([None if draw.random() < 0.2 else [1.0, 2.0] for _ in range(rows)]),
        lambda: pa.array([[1.0] * draw.randrange(4) for _ in range(rows)]),
        lambda: pa.array([[1.0, None]] * rows),
        lambda: pa.array(["x" * draw.randrange(60)] * rows),
        lambda: pa.array([None] * rows),
        lambda: pa.array([True] * rows),
        lambda: pa.array([{"a": [1.0]}] * rows),
        lambda: pa.array([[[]]] * rows, pa.list_(pa.list_(pa.float32()))),
        lambda: pa.array(["a", "b"] * (rows // 2) + ["a"] * (rows % 2)).dictionary_encode(),
        lambda: pa.array([b"\xff\xfe"] * rows),
        lambda: lists.cast(pa.list_(pa.float16())),
        lambda: pa.array(range(rows)),
        lambda: pa.array([[1.0, 2.0]] * rows, pa.list_view(pa.float32())),
    ]
    return draw.choice(makers)()


def table(draw: Draw) -> Any:
    """A table of a few columns that say the same number of rows."""
    rows = draw.choice((1, 7, 64, 64, 64, 0))
    names = [
        "x",
        *draw.sample(
            ["token_ids", "documents", "text", "x", "blocks.0.hook_resid_pre", "\x1b[2J"],
            draw.randrange(3),
        ),
    ]
    return pa.Table.from_arrays([column(draw, rows) for _ in names], names=names)


def drawn_parquet(data: bytes, draw: Draw) -> bytes:
    sink = io.BytesIO()
    try:
        pq.write_table(
            table(draw),
            sink,
            row_group_size=draw.choice((3, 100)),
            compression=draw.choice(("none", "snappy", "zstd", "gzip")),
        )
    except (pa.ArrowException, OSError):
        return shaken(data, draw)
    return sink.getvalue()


def drawn_arrow(data: bytes, draw: Draw) -> bytes:
    try:
        drawn = table(draw)
        sink = io.BytesIO()
    except pa.ArrowException:
        return shaken(data, draw)
    with (pa.ipc.new_file if draw.random() < 0.5 else pa.ipc.new_stream)(
        sink, drawn.schema
    ) as writer:
        writer.write_table(drawn, max_chunksize=draw.choice((3, 100)))
    content = sink.getvalue()
    ends = np.arange(0, 8 * drawn.num_rows + 1, 8, dtype=np.int32)
    if (
        draw.random() < 0.2 and drawn.num_rows
    ):  # lists that begin anywhere, where pyarrow, which wrote them, ends the process itself
        content = content.replace(
            ends.tobytes(),
            np.random.default_rng(draw.randrange(99))
            .integers(-9, 999, ends.size, np.int32)
            .tobytes(),
        )
    return content


def gguf(data: bytes, draw: Draw) -> bytes:
    """A count, type, length, dimension or number of its header is another."""
    spans: list[tuple[int, int]] = []

    class Spans(HeaderReader):
        def take(self, form: str) -> tuple[Any, ...]:
            spans.append((self.position, struct.calcsize(f"<{form}") if form != "4sIQQ" else 4))
            return super().take(form)

    with mmap.mmap(-1, len(data)) as raw:
        raw.write(data)
        walk = Spans(raw)
        _, _, tensors, values = walk.take("4sIQQ")
        spans += [(8, 8), (16, 8)]
        for _ in range(values):
            walk.value()
        for _ in range(tensors):
            walk.string()
            walk.take(f"{walk.take('I')[0]}Q")
            walk.take("IQ")
    return shaken(data, draw, spans)


def jsonl(data: bytes, draw: Draw) -> bytes:
    rows = data.splitlines() or [b"{}"]
    at = draw.randrange(len(rows))
    rows[at] = tree(json.loads(rows[at]), draw)
    return b"\n".join(rows)


def pickled(data: bytes, draw: Draw) -> bytes:
    tensor = torch.randn(64, 8)
    sink = io.BytesIO()
    content = draw.choice(
        [
            tensor.to_sparse(),
            tensor.T,
            tensor.to(torch.complex64),
            {"a": tensor, 1: tensor},
            {"a": tensor, "b": [tensor]},
            [tensor],
            {"a": tensor[:, :0]},
            tensor.expand(3, 64, 8),
            torch.nn.Parameter(tensor),
            {"token_ids": tensor[:, 0]},
            tensor[0, 0],
            {},
            None,
            tensor.bool(),
            tensor.to("meta"),
            torch.quantize_per_tensor(tensor, 0.1, 0, torch.qint8),
            torch.nn.Linear(2, 2),
            {"a": tensor, "documents": tensor[:, 0].long()},
        ]
    )
    torch.save(content, sink, _use_new_zipfile_serialization=draw.random() < 0.8)
    return sink.getvalue()


def packed(
    pack: Callable[[bytes], bytes], unpack: Callable[[bytes], bytes]
) -> Callable[[bytes, Draw], bytes]:
    return lambda data, draw: pack(shaken(unpack(data), draw) * draw.choice((1, 1, 50)))


CHANGES: dict[str, Callable[[bytes, Draw], bytes]] = {
    ".json": lambda data, draw: tree(json.loads(data), draw),
    ".safetensors": safetensors,
    ".npy": npy,
    ".npz": npz,
    ".gguf": gguf,
    ".parquet": drawn_parquet,
    ".arrow": drawn_arrow,
    ".jsonl": jsonl,
    ".pt": pickled,
    ".gz": packed(gzip.compress, gzip.decompress),
    ".zst": packed(zstandard.compress, zstandard.decompress),
}
"""By the ending of a file, what its format knows of; bytes are shaken in all."""


def changed(name: str, data: bytes, draw: Draw) -> bytes:
    """The content of a file, changed by what its format knows, by bytes, or by both."""
    change = CHANGES.get(Path(name).suffix, shaken)
    if draw.random() < 0.75:
        data = change(data, draw)
    else:
        change = shaken
    return shaken(data, draw) if change is shaken or draw.random() < 0.1 else data


def tokenizer() -> Any:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    bpe = Tokenizer(
        models.BPE(
            {word: k for k, word in enumerate([*letters, "he", "hen", "<s>"])},
            [("h", "e"), ("he", "n")],
        )
    )
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<s>")


Base = tuple[str, dict[str, bytes], int]
"""What is named on the command line, the files by their names, and how often it is drawn."""


def bases(folder: Path) -> dict[str, Base]:
    """Sound models, stores and texts, made in a folder."""
    import gguf

    torch.manual_seed(0)
    sizes = {
        "vocab_size": 259,
        "hidden_size": 8,
        "intermediate_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    bert = BertForMaskedLM(BertConfig(**sizes, max_position_embeddings=32))
    shards = llama(0, **sizes)
    for name, model, most in (
        ("gpt2", gpt2(0, vocab_size=259, n_embd=8, n_layer=2), "1GB"),
        ("llama", shards, "9KB"),
        ("bert", bert, "1GB"),
    ):
        model.save_pretrained(folder / name, max_shard_size=most)
        tokenizer().save_pretrained(folder / name)
    (folder / "gguf").mkdir()
    sizes |= {"vocab_size": 258, "hidden_size": 64, "intermediate_size": 96}
    write(
        gguf,
        llama(0, **sizes, num_key_value_heads=2, tie_word_embeddings=False),
        folder / "gguf" / "tiny.gguf",
    )
    arrays = {
        "block.0": np.random.default_rng(0).standard_normal((64, 8)).astype(np.float32),
        "token_ids": np.arange(64),
    }
    files = {
        name: folder / "store" / f"a{name}"
        for name in (".npy", ".npz", ".safetensors", ".pt", ".arrow", ".parquet")
    }
    (folder / "store").mkdir()
    np.save(files[".npy"], arrays["block.0"])
    np.savez(files[".npz"], **arrays)
    from safetensors.torch import save_file

    save_file(
        {name: torch.from_numpy(array) for name, array in arrays.items()}, files[".safetensors"]
    )
    torch.save({name: torch.from_numpy(array) for name, array in arrays.items()}, files[".pt"])
    rows = pa.table({"x": list(arrays["block.0"]), "token_ids": arrays["token_ids"]})
    pq.write_table(rows, files[".parquet"])
    with (
        pa.OSFile(str(files[".arrow"]), "wb") as sink,
        pa.ipc.new_file(sink, rows.schema) as writer,
    ):
        writer.write_table(rows)
    story = b"Once upon a time there was a hen.\n\nAnd then another one, \xc3\xa9 and more.\n" * 9
    lines = b"".join(
        json.dumps({"text": f"A hen, number {k}.", "n": k}).encode() + b"\n" for k in range(20)
    )
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": ["A hen says that it is no hen."] * 30, "n": range(30)}), sink)
    texts = {
        ".txt": story,
        ".jsonl": lines,
        ".parquet": sink.getvalue(),
        ".txt.gz": gzip.compress(story),
        ".txt.zst": zstandard.compress(story),
        ".jsonl.zst": zstandard.compress(lines),
        ".parquet.gz": gzip.compress(sink.getvalue()),
    }
    base_files: dict[str, Base] = {}
    for name, often in (("gpt2", 14), ("llama", 10), ("bert", 6)):
        base_files[f"model {name}"] = (
            "m",
            {f"m/{path.name}": path.read_bytes() for path in (folder / name).iterdir()},
            often,
        )
    base_files["model bert"][1].update(
        {
            "m/modules.json": MODULES,
            "m/1_Pooling/config.json": b'{"pooling_mode_mean_tokens": true}',
        }
    )
    base_files["model gguf"] = (
        "m/tiny.gguf",
        {"m/tiny.gguf": (folder / "gguf" / "tiny.gguf").read_bytes()},
        10,
    )
    for ending, path in files.items():
        base_files[f"store {ending}"] = f"s/a{ending}", {f"s/a{ending}": path.read_bytes()}, 5
    dataset = {
        "s/state.json": b'{"_data_files": [{"filename": "a.arrow"}], "_fingerprint": "x"}',
        "s/dataset_info.json": b"{}",
    }
    base_files["store dataset"] = "s", dataset | {"s/a.arrow": files[".arrow"].read_bytes()}, 4
    base_files["store folder"] = (
        "s",
        {f"s/{k}.safetensors": files[".safetensors"].read_bytes() for k in range(2)},
        3,
    )
    base_files |= {
        f"text {end}": (f"t/a{end}", {f"t/a{end}": data}, 3) for end, data in texts.items()
    }
    base_files["text folder"] = "t", {"t/a.txt": story, "t/b.jsonl": lines}, 2
    return base_files
