"""The column of a table that colours the picture: its values, and what is refused."""

import datetime
import json
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headscan
from headscan import BadInput
from headscan.states import read_states
from headscan.states.value_columns import LONGEST_TEXT

COUNT = 150
ROWS = np.random.default_rng(0).standard_normal((COUNT, 8)).round(3)
TEXTS = [None if number % 9 == 0 else f"class {number % 13}" for number in range(COUNT)]
DAYS = [datetime.date(2020, 1, 1) + datetime.timedelta(days=number) for number in range(COUNT)]
COLUMNS = {
    "text": TEXTS,
    "stars": [number % 4 for number in range(COUNT)],
    "number": list(range(COUNT)),
    "price": [float("nan") if number == 3 else number / 8 for number in range(COUNT)],
    "good": [number % 2 == 0 for number in range(COUNT)],
    "day": DAYS,
}
KINDS = {
    "text": "category",
    "stars": "category",
    "number": "number",
    "price": "number",
    "good": "category",
    "day": "date",
}


def plain(column, number):
    value = COLUMNS[column][number]
    if column == "good":
        return "yes" if value else "no"
    if column == "stars":
        return str(value)
    if column == "day":
        return value.isoformat()
    return None if value != value else value


def written(folder, kind):
    """A table of the vectors and all columns, as libraries write it."""
    path = folder / f"table.{kind}"
    table = pa.table({**COLUMNS, "embedding": list(ROWS)})
    frame = pd.DataFrame({**COLUMNS, "embedding": ROWS.tolist()})
    if kind == "parquet":
        pq.write_table(table, path)
    elif kind == "arrow":
        with pa.ipc.new_file(path, table.schema) as sink:
            sink.write_table(table, max_chunksize=40)
    elif kind == "folder":
        path.mkdir()
        for first, last in ((0, 70), (70, COUNT)):
            pq.write_table(table.slice(first, last - first), path / f"{first}.parquet")
    elif kind == "csv":
        frame.to_csv(path, index=False)
    elif kind == "tsv":
        frame.to_csv(path, index=False, sep="\t")
    else:
        frame.astype({"day": str}).to_json(path, orient="records", lines=True)
    return path


def colour_of(result):
    (picture,) = result.document["pictures"].values()
    numbers = [int(token.removeprefix("vector ")) for token in picture["tokens"]]
    return picture["colour"], numbers


@pytest.mark.parametrize("kind", ["parquet", "arrow", "folder", "csv", "tsv", "jsonl"])
def test_each_sampled_vector_has_the_value_of_its_row(kind, tmp_path):
    path = written(tmp_path, kind)
    expected = headscan.scan(ROWS).site("vectors").number("average_cosine")
    for column, column_kind in KINDS.items():
        result = headscan.scan(path, colour=column, sample=60, context=16)
        colour, numbers = colour_of(result)
        assert len(numbers) == 60
        assert (colour["column"], colour["kind"]) == (column, column_kind)
        values = [
            value.removesuffix("T00:00:00") if isinstance(value, str) else value
            for value in colour["values"]
        ]
        assert values == [plain(column, number) for number in numbers]
        loaded = type(result).of_document(json.loads(json.dumps(result.document)))
        assert loaded.pictures == result.pictures
    assert result.site("embedding").number("average_cosine") == pytest.approx(expected, rel=1e-6)


def test_the_cell_of_a_window_counts_for_all_its_vectors(tmp_path):
    windows = [list(map(list, rows)) for rows in ROWS.reshape(30, 5, 8)]
    path = tmp_path / "windows.parquet"
    pq.write_table(pa.table({"v": windows, "label": [f"w{k}" for k in range(30)]}), path)
    colour, numbers = colour_of(headscan.scan(path, colour="label"))
    assert colour["values"] == [f"w{number // 5}" for number in numbers]


def test_classes_of_datasets_have_their_names(tmp_path):
    datasets = pytest.importorskip("datasets", reason="folders of datasets are NOT tried")
    features = datasets.Features(
        {
            "v": datasets.Sequence(datasets.Value("float32"), length=8),
            "label": datasets.ClassLabel(names=["sad", "glad"]),
        }
    )
    labels = [number % 2 for number in range(COUNT)]
    made = datasets.Dataset.from_dict({"v": ROWS, "label": labels}, features=features)
    made.save_to_disk(tmp_path / "folder")
    made.to_parquet(tmp_path / "table.parquet")
    for path in (tmp_path / "folder", tmp_path / "table.parquet"):
        colour, numbers = colour_of(headscan.scan(path, colour="label"))
        assert colour["values"] == [("sad", "glad")[number % 2] for number in numbers]


def test_values_are_what_json_holds(tmp_path):
    columns = {
        "decimal": [Decimal("1.50")] * COUNT,
        "large": [2**63] * COUNT,
        "infinite": [float("inf")] * COUNT,
        "long": ["x" * 5000] * COUNT,
        "moment": [datetime.datetime(2020, 1, 1, 12)] * COUNT,
        "none": pa.array([None] * COUNT, pa.string()),
    }
    path = tmp_path / "a.parquet"
    types = {"large": pa.uint64()}
    arrays = {name: pa.array(values, types.get(name)) for name, values in columns.items()}
    arrays["dictionary"] = pa.array(["a"] * COUNT).dictionary_encode()
    pq.write_table(pa.table({**arrays, "v": list(ROWS)}), path)
    values = {name: colour_of(headscan.scan(path, colour=name))[0]["values"][0] for name in arrays}
    assert values == {
        "decimal": 1.5,
        "large": str(2**63),
        "infinite": None,
        "long": "x" * LONGEST_TEXT,
        "moment": "2020-01-01T12:00:00",
        "none": None,
        "dictionary": "a",
    }


def test_what_colours_nothing_is_refused_with_the_columns(tmp_path):
    path = written(tmp_path, "parquet")
    np.save(tmp_path / "a.npy", ROWS)
    listed = ", ".join(COLUMNS)
    for column in ("nonsense", "embedding"):
        with pytest.raises(BadInput, match=f"no column '{column}'.* it has: {listed}"):
            headscan.scan(path, colour=column)
    with pytest.raises(BadInput, match=r"the vectors, and a\.npy has none: give a table"):
        headscan.scan(tmp_path / "a.npy", colour="text")
    with pytest.raises(BadInput, match="array has none"):
        headscan.scan(ROWS, colour="text")
    with pytest.raises(BadInput, match="gpt-vanilla-early is a model"):
        headscan.scan("gpt-vanilla-early", "stories", max_tokens=128, colour="text")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", 'v,w\n"[0.1, 0.2]",1\n"[0.1 0.2]",2\n', "row 2 is no list of numbers"),
        ("a.csv", 'v,w\n"[0.1, 0.2]",1\n,2\n', "row 2 is no list of numbers"),
        ("a.csv", 'v,w\n"[0.1, 0.2]",1\n"[0.1]",2\n', "lists of different lengths"),
        ("a.csv", "v,w\n1,2\n3,4\n", r"no column of vectors; it has: v \(int64\)"),
        ("a.csv", "v,w\n1,2,3\n", "no CSV file"),
        ("a.csv", "", "no CSV file"),
        ("a.csv", "v,w\n", "no rows"),
        ("a.jsonl", '{"v": [1.0, 2.0]}\n{"v": [1.0', "no JSON lines file"),
        ("a.jsonl", '{"v": [1.0, 2.0]}\n{"v": "x"}\n', "no JSON lines file"),
        ("a.jsonl", '{"v": [1.0, 2.0]}\n{"w": 3}\n', "missing"),
        ("a.jsonl", '{"v": [1.0, 2.0]}\n{"v": [1.0]}\n', "lists of different lengths"),
        ("a.jsonl", '{"w": "x"}\n', r"no column of vectors; it has: w \(string\)"),
        ("a.jsonl", "", "no JSON lines file"),
    ],
)
def test_text_tables_without_vectors_are_refused(name, content, words, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(BadInput, match=words):
        read_states(str(tmp_path / name)).sites["v"].read(0, 2)
