from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscan.run.errors import BadInput
from headscan.text.counts import (
    ContextCounts,
    count,
    count_prefixes,
    count_text,
    prefix_tokens,
    sort,
    store_text,
    store_tokens,
    tokens,
)
from headscan.text.source import Counting, Reading, parse_bytes
from tests.reference.counts import as_dictionary, dictionary, prefixes

documents = st.lists(st.lists(st.integers(0, 4), max_size=30), min_size=1, max_size=6)


def arrays(texts):
    return [np.array(text, dtype=np.int64) for text in texts]


@given(documents, st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_counts_are_those_of_a_dictionary(texts, order):
    expected = dictionary(texts, order)
    if not expected:
        with pytest.raises(BadInput):
            count(arrays(texts), 5, Counting(order=order))
        return
    found = count(arrays(texts), 5, Counting(order=order))
    assert as_dictionary(found) == expected
    assert found.contexts.tolist() == sorted(found.contexts.tolist())
    assert found.occurrences.sum() == sum(expected.values())


@pytest.mark.parametrize("order", [1, 3, 25])  # 26 tokens of 3 bits need two words
@pytest.mark.parametrize("memory", [100, 3_000_000])
def test_out_of_core_equals_in_memory(tmp_path, monkeypatch, order, memory):
    monkeypatch.setattr(sort, "_COPIES", 600)  # sixteen thousand keys at once at least: make each look larger
    rng = np.random.default_rng(0)
    texts = [rng.integers(0, 7, size=n) for n in (40_000, 1, 3, order, order + 1, 20_000, 0, 33)]
    found = count(texts, 7, Counting(order=order, memory=memory), folder=tmp_path)
    assert len(list(tmp_path.glob("counts-*.safetensors"))) > 1  # it did go over several ranges
    assert as_dictionary(found) == dictionary(texts, order)
    assert not (tmp_path / "work").exists()
    again = ContextCounts.load(tmp_path)
    assert as_dictionary(again) == as_dictionary(found)


def test_save_and_load(tmp_path):
    found = count(arrays([[0, 1, 2, 0, 1, 0]]), 3, Counting(order=2))
    found.save(tmp_path / "kept")
    assert as_dictionary(ContextCounts.load(tmp_path / "kept")) == as_dictionary(found)
    with pytest.raises(BadInput, match="holds no counts"):
        ContextCounts.load(tmp_path / "nothing")


def test_rare_contexts_are_left_out():
    texts = arrays([[0, 1, 0, 1, 0, 2, 1]])
    found = count(texts, 3, Counting(order=1, min_count=2))
    kept = {(c, z): n for (c, z), n in dictionary(texts, 1).items() if c in {(0,), (1,)}}
    assert as_dictionary(found) == kept
    with pytest.raises(BadInput, match="at least 9 times"):
        count(texts, 3, Counting(order=1, min_count=9))


class Killed(Exception):
    pass


@pytest.mark.parametrize("stage", ["reading", "counting", "merging"])
def test_a_killed_count_resumes_with_the_same_answer(tmp_path, monkeypatch, stage):
    monkeypatch.setattr(sort, "_COPIES", 600)
    monkeypatch.setattr(tokens, "_COMMIT", 0.0)
    rng = np.random.default_rng(1)
    texts = [rng.integers(0, 9, size=900) for _ in range(60)]
    seen = 0

    def kill(name, done, total, unit):
        nonlocal seen
        seen += name == stage
        if name == stage and seen == 3:
            raise Killed

    with pytest.raises(Killed):
        count(texts, 9, Counting(order=3, memory=100), folder=tmp_path, progress=kill)
    if (tmp_path / "counts.json").exists():
        with pytest.raises(BadInput, match="not finished"):
            ContextCounts.load(tmp_path)
    found = count(texts, 9, Counting(order=3, memory=100), folder=tmp_path, resume=True)
    assert as_dictionary(found) == dictionary(texts, 3)


def test_a_finished_count_is_not_counted_again(tmp_path):
    texts = arrays([[0, 1, 2, 0, 1, 0]])
    count(texts, 3, Counting(order=2), folder=tmp_path)
    before = (tmp_path / "counts.json").stat().st_mtime_ns
    count(texts, 3, Counting(order=2), folder=tmp_path, resume=True)
    assert (tmp_path / "counts.json").stat().st_mtime_ns == before
    with pytest.raises(BadInput, match="another one"):
        count(texts, 3, Counting(order=1), folder=tmp_path, resume=True)


@pytest.mark.parametrize("oracle", ["duckdb", "polars"])
def test_databases_agree(oracle):
    rng = np.random.default_rng(2)
    texts = [rng.integers(0, 50, size=n) for n in (3000, 2, 700)]
    expected = dictionary(texts, 2)
    if oracle == "polars":
        pl = pytest.importorskip("polars")
        rows = [(t[i], t[i + 1], t[i + 2]) for t in texts for i in range(len(t) - 2)]
        table = pl.DataFrame(rows, schema=["a", "b", "c"], orient="row").group_by("a", "b", "c").len()
        assert {((a, b), c): n for a, b, c, n in table.rows()} == expected
        return
    pytest.importorskip("duckdb")
    from tests.reference.duckdb_counts import count_duckdb

    held = store_tokens(texts, 50, None)
    for min_count in (1, 3):
        found = count_duckdb(held, 2, min_count=min_count, memory=64 << 20)
        assert as_dictionary(found) == as_dictionary(count(texts, 50, Counting(order=2, min_count=min_count)))
    assert as_dictionary(count_duckdb(held, 2)) == expected


def test_prefixes_are_the_nodes_of_the_trie():
    rng = np.random.default_rng(3)
    texts = [rng.integers(0, 3, size=n) for n in (5, 1, 0, 9, 9, 9, 2, 5)]
    held = store_tokens(texts, 3, None)
    found = count_prefixes(held)
    assert as_dictionary(found, prefix_tokens) == prefixes(texts)
    short = count_prefixes(held, longest=2)
    assert as_dictionary(short, prefix_tokens) == {k: v for k, v in prefixes(texts).items() if len(k[0]) <= 2}
    often = count_prefixes(held, min_count=2)
    for (context, _), _ in as_dictionary(often, prefix_tokens).items():
        assert sum(len(t) > len(context) and tuple(t[: len(context)]) == context for t in texts) >= 2


class Letters:
    splits_anywhere, eos_token_id = True, None

    def encode(self, text, add_special_tokens=False):
        return [ord(letter) - 97 for letter in text]

    def __len__(self):
        return 26


def test_counting_a_text_keeps_documents_apart(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("abc\nabd\nxa\n")
    found = count_text(path, Letters(), Counting(order=2), Reading(documents="lines"))
    assert as_dictionary(found) == dictionary([[0, 1, 2], [0, 1, 3], [23, 0]], 2)
    assert found.documents == 3
    limited = count_text(path, Letters(), Counting(order=1), Reading(documents="lines", max_tokens=4))
    assert as_dictionary(limited) == dictionary([[0, 1, 2], [0]], 1)


class Stopped(Exception):
    pass


def stop_reading(monkeypatch, after=3):
    """Kills a count after so many records of how far it has come."""
    monkeypatch.setattr(tokens, "monotonic", itertools.count().__next__)  # a second a document, and more
    monkeypatch.setattr(tokens, "_SPARSE", 0)
    write, times = tokens.write_atomic, []

    def counted(path, data):
        write(path, data)
        times.append(path)
        if len(times) == after:
            raise Stopped

    monkeypatch.setattr(tokens, "write_atomic", counted)


LINES = "".join(f"{'abcdefg' * (n % 5 + 1)}\n" for n in range(200))


@pytest.fixture
def stopped(tmp_path, monkeypatch):
    """A text and the folder of a count of it that was killed while reading."""
    path = tmp_path / "text.txt"
    path.write_text(LINES)
    with monkeypatch.context() as patched:
        stop_reading(patched)
        with pytest.raises(Stopped):
            count_text(path, Letters(), Counting(order=2), Reading(documents="lines"), folder=tmp_path / "out")
    return path, tmp_path / "out"


def resumed(path, folder, tokenizer=None, **options):
    reading = Reading(**{"documents": "lines"} | options)
    return count_text(path, tokenizer or Letters(), Counting(order=2), reading, folder=folder, resume=True)


def test_a_killed_reading_resumes_with_the_same_answer(stopped):
    path, folder = stopped
    expected = count_text(path, Letters(), Counting(order=2), Reading(documents="lines"))
    found = resumed(path, folder)
    assert as_dictionary(found) == as_dictionary(expected)
    assert found.task == expected.task


@pytest.mark.parametrize("where", [3, 600])
def test_a_changed_text_is_not_resumed(stopped, where):
    path, folder = stopped
    path.write_text(LINES[:where] + "z" + LINES[where + 1 :])
    with pytest.raises(BadInput, match=r"The text .*text.txt has changed since the run"):
        resumed(path, folder)
    path.write_text(LINES[:100])
    with pytest.raises(BadInput, match=r"The text .*text.txt has changed since the run"):
        resumed(path, folder)


def test_another_tokenizer_or_reading_is_not_resumed(stopped):
    class Others(Letters):
        pass

    path, folder = stopped
    for options in ({"tokenizer": Others()}, {"documents": "paragraphs"}, {"max_tokens": 1000}):
        with pytest.raises(BadInput, match="another tokenizer or other settings of reading"):
            resumed(path, folder, **options)


@pytest.mark.parametrize("name", ["tokens.bin", "starts.bin", "tokens.json"])
@pytest.mark.parametrize("harm", ["cut", "flip", "gone"])
def test_a_torn_store_is_refused(stopped, name, harm):
    path, folder = stopped
    file = folder / "work" / name
    data = file.read_bytes()
    if harm == "gone" and name == "tokens.json":  # then nothing says that anything was stored
        return
    file.unlink() if harm == "gone" else file.write_bytes(data[:80] if harm == "cut" else data[:8] + b"{" + data[9:])
    with pytest.raises(BadInput, match=rf"damaged \(.*{name}\): start afresh without --resume"):
        resumed(path, folder)


def test_a_text_that_is_read_to_the_end_is_compared_too(tmp_path):
    path, folder, text = tmp_path / "text.txt", tmp_path / "out", LINES.replace("\n", "")
    path.write_text(text)
    _, record = store_text(path, Letters(), Reading(), folder, resume=False)
    assert store_text(path, Letters(), Reading(), folder, resume=True)[1] == record
    for other, says in ((text + "b", "has grown"), ("b" + text[1:], "has changed"), (text[:-1], "has changed")):
        path.write_text(other)
        with pytest.raises(BadInput, match=says):
            store_text(path, Letters(), Reading(), folder, resume=True)


def test_a_text_behind_the_limit_may_change(tmp_path):
    path, folder, reading = tmp_path / "text.txt", tmp_path / "out", Reading(documents="lines", max_tokens=50)
    path.write_text(LINES)
    _, record = store_text(path, Letters(), reading, folder, resume=False)
    path.write_text(LINES + "more")
    assert store_text(path, Letters(), reading, folder, resume=True)[1] == record


def test_changed_documents_are_not_resumed(tmp_path):
    texts = arrays([[0, 1, 2, 0, 1, 0], [1, 2]])
    store_tokens(texts, 3, tmp_path)
    for other in (texts[:1], [*texts, texts[1]], [texts[1], texts[0]], arrays([[0, 1, 2, 0, 1, 0, 1], [2]])):
        with pytest.raises(BadInput, match="documents have changed"):
            store_tokens(other, 3, tmp_path, resume=True)


@pytest.mark.parametrize("glob", ["counts-*", "contexts-*", "work/ranges/*.keys", "counts.json"])
def test_a_torn_part_is_refused(tmp_path, monkeypatch, glob):
    monkeypatch.setattr(sort, "_COPIES", 600)
    texts = [np.random.default_rng(0).integers(0, 7, size=60_000)]

    def kill(name, done, total, unit):
        if name == "merging" and done == 2:
            raise Killed

    with pytest.raises(Killed):
        count(texts, 7, Counting(order=2, memory=100), folder=tmp_path, progress=kill)
    torn = sorted(tmp_path.glob(glob))[0]
    torn.write_bytes(torn.read_bytes()[:-9])
    with pytest.raises(BadInput, match=r"damaged \(.*start afresh"):
        count(texts, 7, Counting(order=2, memory=100), folder=tmp_path, resume=True)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([[0, 1]], 2, 3), {}, "No document is longer than the order 2"),
        (([[0, 1], [1, 0]], 3, 3), {}, "No document is longer"),
        (([[]], 1, 3), {}, "no tokens"),
        (([], 1, 3), {}, "no tokens"),
        (([[0, 1]], 1, 0), {}, "vocabulary is empty"),
        (([[0, 7]], 1, 3), {}, "outside the vocabulary of 3"),
        (([[0, -1]], 1, 3), {}, "outside the vocabulary"),
        (([[0, 1]], 0, 3), {}, "--order must be at least 1"),
        (([[0, 1]], 1, 3), {"engine": "abacus"}, "--engine must be sort or spark"),
        (([[0, 1]], 1, 3), {"memory": "much"}, "no amount of memory"),
        (([[0, 1]], 1, 3), {"engine": "spark"}, "URL of a master"),
    ],
)
def test_bad_input_is_one_sentence(arguments, options, message):
    texts, order, vocabulary = arguments
    with pytest.raises(BadInput, match=message):
        count(arrays(texts), vocabulary, Counting(order=order, **options))


def test_a_spark_master_that_does_not_answer_loses_nothing(tmp_path):
    texts = arrays([[0, 1, 2, 0, 1, 0]])
    with pytest.raises(BadInput, match="No Spark master answers"):
        count(texts, 3, Counting(order=2, engine="spark", master="spark://127.0.0.1:9"), folder=tmp_path)
    assert json.loads((tmp_path / "work" / "tokens.json").read_text())["closed"]  # what was read is kept
    with pytest.raises(BadInput, match="is no Spark master"):
        count(texts, 3, Counting(order=2, engine="spark", master="http://x"), folder=tmp_path / "b")


def test_memory_words():
    assert parse_bytes("1.5KiB") == 1536
