import gzip
import io
import json
import os
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from headscan.run.errors import BadInput
from headscan.text import documents
from headscan.text.documents import _separated
from headscan.text.reading import byte_chunks
from headscan.text.source import check_text

STORIES = ["Ein Huhn.\r\n", "שלום 😀\n\nlast", "é\u0301" * 50_000]


def texts(source, **options):
    return [document.text() for document in documents(source, **options)]


def write(path, data: bytes):
    """Write bytes, packed as the name's ending says."""
    if path.suffix == ".gz":
        data = gzip.compress(data)
    elif path.suffix == ".zst":
        pack = zstandard.ZstdCompressor(write_checksum=True)
        half = len(data) // 2  # two frames, as appending to a .zst makes
        data = pack.compress(data[:half]) + pack.compress(data[half:])
    path.write_bytes(data)
    return path


def jsonl(rows) -> bytes:
    return "\n".join(json.dumps(row, ensure_ascii=False) for row in rows).encode()


def parquet(rows, **columns) -> bytes:
    sink = io.BytesIO()
    pq.write_table(
        pa.table({"id": list(range(len(rows))), "text": rows, **columns}), sink, row_group_size=2
    )
    return sink.getvalue()


@pytest.mark.parametrize("packing", ["", ".gz", ".zst"])
class TestFormats:
    def test_a_txt_is_one_document_exactly_as_it_stands(self, tmp_path, packing):
        text = "".join(STORIES)
        path = write(tmp_path / f"a.txt{packing}", text.encode())
        pieces = list(next(documents(path)))
        assert "".join(pieces) == text
        assert max(map(len, pieces)) <= 1 << 18
        assert len(pieces) > 1

    def test_a_row_of_jsonl_is_one_document(self, tmp_path, packing):
        rows = [{"id": i, "text": text} for i, text in enumerate([*STORIES, ""])]
        path = write(tmp_path / f"a.jsonl{packing}", jsonl(rows) + b"\n\n")
        assert texts(path) == STORIES
        rows = [{"story": text} for text in STORIES]
        assert texts(write(path, jsonl(rows)), field="story") == STORIES

    @pytest.mark.parametrize(
        "kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]
    )
    def test_a_row_of_parquet_is_one_document(self, tmp_path, packing, kind):
        path = write(tmp_path / f"a.parquet{packing}", parquet(pa.array([*STORIES, ""]).cast(kind)))
        assert texts(str(path)) == STORIES

    def test_an_invalid_byte_is_named_with_its_offset(self, tmp_path, packing):
        data = "é".encode() * 50_000 + b"\xff tail"
        path = write(tmp_path / f"a.txt{packing}", data)
        with pytest.raises(BadInput, match=r"a\.txt.* is not UTF-8: byte 0xFF at offset 100000\.$"):
            texts(path)
        path = write(tmp_path / f"a.jsonl{packing}", b'{"text": "' + data[:100] + b'\xe9"}')
        with pytest.raises(BadInput, match="byte 0xE9 at offset 110"):
            texts(path)

    def test_a_character_cut_off_at_the_end_is_invalid(self, tmp_path, packing):
        with pytest.raises(BadInput, match="byte 0xF0 at offset 3"):
            texts(write(tmp_path / f"a.txt{packing}", b"abc" + "😀".encode()[:3]))


def test_a_byte_order_mark_is_dropped_at_the_beginning_only(tmp_path):
    path = write(tmp_path / "a.txt", "\ufeffa\ufeffb".encode())
    assert texts(path) == ["a\ufeffb"]


@pytest.mark.parametrize("packing", [".gz", ".zst"])
def test_corrupt_packing(tmp_path, packing):
    path = write(tmp_path / f"a.txt{packing}", "".join(STORIES).encode())
    content = path.read_bytes()
    path.write_bytes(content[:-5])
    with pytest.raises(BadInput, match="not a whole"):
        texts(path)
    path.write_bytes(b"no such thing" + content)
    with pytest.raises(BadInput, match="not a whole"):
        texts(path)
    middle = len(content) // 2
    path.write_bytes(
        content[:middle]
        + bytes(b ^ 0xFF for b in content[middle : middle + 9])
        + content[middle + 9 :]
    )
    with pytest.raises(BadInput, match="not a whole"):
        texts(path)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("lines", ["a b", "c", "  d", "e"]),
        ("paragraphs", ["a b\nc", "  d\ne"]),
        ("whole", ["\n a".strip() + " b\r\nc\n\n \n  d\ne\n\n"]),
        ("c\n", ["a b\r\n", "\n \n  d\ne\n\n"]),
        ("\n", ["a b\r", "c", " ", "  d", "e"]),
        ("absent", ["a b\r\nc\n\n \n  d\ne\n\n"]),
    ],
)
def test_how_a_txt_falls_into_documents(tmp_path, mode, expected):
    text = "a b\r\nc\n\n \n  d\ne\n\n"
    assert texts(write(tmp_path / "a.txt", text.encode()), documents=mode) == expected
    assert texts([text], documents=mode) == expected


@given(st.text("ab<|>", max_size=60), st.integers(1, 7))
def test_a_separator_may_span_chunks(text, chunk):
    pieces = [text[i : i + chunk] for i in range(0, len(text), chunk)]
    assert [document.text() for document in _separated(pieces, "<|>", "t")] == text.split("<|>")


def test_what_is_unread_of_a_document_is_skipped():
    assert [next(iter(d)) for d in documents(["ab\ncd\n\nef\ngh"], documents="paragraphs")] == [
        "ab",
        "ef",
    ]
    assert [d.name for d in documents(["a-b-c"], documents="-")] == [
        f"text 0, document {i}" for i in (1, 2, 3)
    ]


def test_a_folder_is_read_in_sorted_order_at_any_depth(tmp_path):
    (tmp_path / "b" / "c").mkdir(parents=True)
    (tmp_path / ".cache").mkdir()
    write(tmp_path / "b" / "c" / "1.txt", b"two")
    write(tmp_path / "b" / "0.jsonl.gz", b'{"text": "one"}')
    write(tmp_path / "z.parquet", parquet(["three", "four"]))
    write(tmp_path / "a.txt.zst", b"zero")
    write(tmp_path / ".cache" / "d.txt", b"hidden")
    write(tmp_path / "README.md", b"not a text")
    assert texts(tmp_path) == ["zero", "one", "two", "three", "four"]


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("é\n\nb".encode())))
    assert texts("-", documents="paragraphs") == ["é", "b"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"ab\xff")))
    with pytest.raises(BadInput, match="Standard input is not UTF-8: byte 0xFF at offset 2"):
        texts("-")


def test_a_file_wins_over_an_embedded_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "lambda" in "".join(texts("pydoc"))
    (tmp_path / "pydoc").mkdir()
    write(tmp_path / "pydoc" / "a.txt", b"mine")
    assert texts("pydoc") == ["mine"]


@pytest.mark.parametrize(
    ("name", "data", "sentence"),
    [
        ("a.jsonl", b'{"text": "a"}\n{"text": ', r"a\.jsonl, line 2 is not JSON"),
        ("a.jsonl", b"[" * 100_000, r"a\.jsonl, line 1 is not JSON"),
        ("a.jsonl", b"\n[1]", r"line 2 is not a JSON object"),
        ("a.jsonl", b'{"id": 1, "story": "a"}', r"line 1 has no field 'text'; it has: id, story\."),
        ("a.jsonl", b'{"text": 5}', r"line 1: the field 'text' is not a string \(int\)"),
        ("a.jsonl", b'{"text": null}', r"line 1: the field 'text' is not a string \(null\)"),
        ("a.jsonl", b'{"text": "a\\ud800"}', r"half a surrogate pair at character 1"),
        ("a.parquet", b"PAR1 no parquet", r"a\.parquet cannot be read as Parquet"),
        ("a.parquet", parquet([1, 2]), r"the field 'text' is not a string \(int64\)"),
        ("a.parquet", parquet(["a", None]), r"row 2: the field 'text' is not a string \(null\)"),
        (
            "a.docx",
            b"a",
            r"a\.docx has an unknown ending; a text file ends in \.txt, \.jsonl, \.parquet \(or",
        ),
        ("a.gz", b"a", r"a\.gz has an unknown ending"),
    ],
)
def test_bad_files(tmp_path, name, data, sentence):
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(BadInput, match=sentence):
        texts(path)


def test_a_truncated_parquet_is_bad_input(tmp_path):
    content = parquet(["hen " * 1000] * 50)
    for cut in (0, 3, 100, len(content) - 3):
        with pytest.raises(BadInput, match="cannot be read as Parquet"):
            texts(write(tmp_path / "a.parquet", content[:cut]))


def test_parquet_without_the_field_lists_those_there_are(tmp_path):
    with pytest.raises(BadInput, match=r"a\.parquet has no field 'story'; it has: id, text\.$"):
        texts(write(tmp_path / "a.parquet", parquet(["a"])), field="story")


@pytest.mark.parametrize(
    "name", ["nowhere.txt", "./nowhere", "a/b/c", "/nowhere", "nowhere.jsonl.gz", "~/nowhere"]
)
def test_a_missing_file(name):
    with pytest.raises(BadInput, match="There is no file or folder"):
        texts(name)


def test_an_empty_name():
    with pytest.raises(BadInput, match="name of a text is empty"):
        texts("")


def test_an_unreadable_file(tmp_path):
    (tmp_path / "a.txt").symlink_to(tmp_path / "a.txt")
    with pytest.raises(BadInput):
        texts(tmp_path / "a.txt")


def test_links_among_texts_are_followed_to_files_and_passed_over_where_they_lead_to_folders(
    tmp_path,
):
    (tmp_path / "away" / "deep").mkdir(parents=True)
    (tmp_path / "away" / "hen").write_text("a hen")
    (tmp_path / "away" / "deep" / "b.txt").write_text("a fox")
    (tmp_path / "texts").mkdir()
    links = {
        "a.txt": "../away/hen",
        "deep": "../away/deep",
        "ring": ".",
        "lost.txt": "nowhere",
        "loop.txt": "loop.txt",
    }
    for name, target in links.items():
        (tmp_path / "texts" / name).symlink_to(target)
    (tmp_path / "named").symlink_to("texts")
    assert texts(tmp_path / "texts") == texts(tmp_path / "named") == ["a hen"]
    assert texts(tmp_path / "texts" / "deep") == ["a fox"]


def test_an_empty_folder(tmp_path):
    with pytest.raises(BadInput, match=r"holds no text: no file ends in \.txt, \.jsonl, \.parquet"):
        texts(tmp_path)


def test_an_empty_separator():
    with pytest.raises(BadInput, match="separator that is not empty"):
        texts(["a"], documents="")


class TestDatasets:
    def test_a_stream_of_rows(self, monkeypatch):
        import datasets

        requests = []

        def load_dataset(name, config, *, split, streaming):
            requests.append((name, config, split, streaming))
            return datasets.Dataset.from_dict(
                {"text": ["a", "b"], "n": [1, 2]}
            ).to_iterable_dataset()

        monkeypatch.setattr(datasets, "load_dataset", load_dataset)
        assert texts("owner/name") == ["a", "b"]
        assert texts("name:test") == ["a", "b"]
        assert texts("name:small:test") == ["a", "b"]
        assert requests == [
            ("owner/name", None, "train", True),
            ("name", None, "test", True),
            ("name", "small", "test", True),
        ]
        with pytest.raises(BadInput, match="row 1 has no field 'story'; it has: text, n"):
            texts("name", field="story")
        with pytest.raises(BadInput, match="is not a string"):
            texts("name", field="n")
        with pytest.raises(BadInput, match="ID:CONFIG:SPLIT"):
            texts("a:b:c:d")

    def test_no_network(self):
        with pytest.raises(
            BadInput, match="no file, folder or embedded text 'owner/absent', and no dataset"
        ):
            texts("owner/absent")

    def test_no_library(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "datasets", None)
        with pytest.raises(BadInput, match=r"pip install 'headscan\[datasets\]'"):
            texts("owner/name")


def test_a_string_may_be_the_text_itself(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert texts("one hen\n\ntwo hens", documents="paragraphs") == ["one hen", "two hens"]
    long = "the hen and the other hen " * 300
    assert texts(long) == [long]
    assert texts("é" * 128) == ["é" * 128]  # 256 bytes: no file system has a name that long
    deep = tmp_path / ("a" * 200) / ("b " * 100)
    deep.mkdir(parents=True)
    write(deep / "c.txt", b"in a file")
    assert texts(str(deep / "c.txt")) == ["in a file"]
    with pytest.raises(BadInput, match="There is no file or folder"):
        texts("/".join(["a" * 100] * 3))
    with pytest.raises(BadInput, match="The text holds half a surrogate pair at character 2"):
        texts("ab\ud800\n")
    with pytest.raises(BadInput, match="Text 1 holds half a surrogate pair at character 0"):
        texts(["a", "\ud800"])


def test_a_name_that_is_no_utf8_is_refused_at_once(tmp_path):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.txt")
    with open(path, "wb") as file:
        file.write(b"hens")
    for source in (path, Path(path), tmp_path):
        for ask in (check_text, texts):
            with pytest.raises(BadInput, match=r"/\\xff\.txt is not UTF-8: rename it"):
                ask(source)


@pytest.mark.parametrize("source", ["nowhere.txt", "", "a.docx", 5, [1, 2], "empty"], ids=repr)
def test_what_cannot_be_read_is_known_at_once(tmp_path, monkeypatch, source):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.docx").touch()
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput):
        check_text(source)


def test_sound_sources_pass_the_check(tmp_path):
    for source in (
        write(tmp_path / "a.txt", b"hens"),
        tmp_path,
        "-",
        "pydoc",
        "stories",
        "owner/name",
        ["a"],
        "a\nb",
    ):
        check_text(source)


def test_a_number_of_ten_thousand_digits(tmp_path):
    with pytest.raises(BadInput, match=r"a\.jsonl, line 1 is not JSON"):
        texts(write(tmp_path / "a.jsonl", b'{"text": "a", "n": ' + b"9" * 10_000 + b"}"))


def test_a_bomb_of_zeros_is_unpacked_little_by_little(tmp_path):
    import zstandard

    packed = zstandard.ZstdCompressor(level=1).compress(bytes(1 << 29))
    path = write(tmp_path / "a.txt.zst", packed)
    assert len(packed) < 1 << 16
    assert max(len(chunk) for chunk in byte_chunks(path)) < 1 << 26


def test_a_text_in_the_place_of_its_name_gets_a_hint():
    with pytest.raises(BadInput, match="standard input with --text -"):
        check_text("Hello world, this is text")
