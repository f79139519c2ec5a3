from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscan.errors import BadInput
from headscan.text import counts_sort, counts_spool
from headscan.text.counts import ContextCounts, count, count_text, parse_bytes
from headscan.text.counts_prefix import count_prefixes, prefix_tokens
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
            count(arrays(texts), order, 5)
        return
    found = count(arrays(texts), order, 5)
    assert as_dictionary(found) == expected
    assert found.contexts.tolist() == sorted(found.contexts.tolist())
    assert found.occurrences.sum() == sum(expected.values())


@pytest.mark.parametrize("order", [1, 3, 25])  # 26 tokens of 3 bits need two words
@pytest.mark.parametrize("memory", [100, 3_000_000])
def test_out_of_core_equals_in_memory(tmp_path, monkeypatch, order, memory):
    monkeypatch.setattr(counts_sort, "_COPIES", 600)  # sixteen thousand keys at once at least: make each look larger
    rng = np.random.default_rng(0)
    texts = [rng.integers(0, 7, size=n) for n in (40_000, 1, 3, order, order + 1, 20_000, 0, 33)]
    found = count(texts, order, 7, folder=tmp_path, memory=memory)
    assert len(list(tmp_path.glob("counts-*.safetensors"))) > 1  # it did go over several ranges
    assert as_dictionary(found) == dictionary(texts, order)
    assert not (tmp_path / "work").exists()
    again = ContextCounts.load(tmp_path)
    assert as_dictionary(again) == as_dictionary(found)


def test_save_and_load(tmp_path):
    found = count(arrays([[0, 1, 2, 0, 1, 0]]), 2, 3)
    found.save(tmp_path / "kept")
    assert as_dictionary(ContextCounts.load(tmp_path / "kept")) == as_dictionary(found)
    with pytest.raises(BadInput, match="holds no counts"):
        ContextCounts.load(tmp_path / "nothing")


def test_rare_contexts_are_left_out():
    texts = arrays([[0, 1, 0, 1, 0, 2, 1]])
    found = count(texts, 1, 3, min_count=2)
    kept = {(c, z): n for (c, z), n in dictionary(texts, 1).items() if c in {(0,), (1,)}}
    assert as_dictionary(found) == kept
    with pytest.raises(BadInput, match="at least 9 times"):
        count(texts, 1, 3, min_count=9)


class Killed(Exception):
    pass


@pytest.mark.parametrize("stage", ["reading", "counting", "merging"])
def test_a_killed_count_resumes_with_the_same_answer(tmp_path, monkeypatch, stage):
    monkeypatch.setattr(counts_sort, "_COPIES", 600)
    monkeypatch.setattr(counts_spool, "_COMMIT", 1000)
    rng = np.random.default_rng(1)
    texts = [rng.integers(0, 9, size=900) for _ in range(60)]
    seen = 0

    def kill(name, done, total):
        nonlocal seen
        seen += name == stage
        if name == stage and seen == 3:
            raise Killed

    with pytest.raises(Killed):
        count(texts, 3, 9, folder=tmp_path, memory=100, progress=kill)
    if (tmp_path / "counts.json").exists():
        with pytest.raises(BadInput, match="not finished"):
            ContextCounts.load(tmp_path)
    found = count(texts, 3, 9, folder=tmp_path, memory=100, resume=True)
    assert as_dictionary(found) == dictionary(texts, 3)


def test_a_finished_count_is_not_counted_again(tmp_path):
    texts = arrays([[0, 1, 2, 0, 1, 0]])
    count(texts, 2, 3, folder=tmp_path)
    before = (tmp_path / "counts.json").stat().st_mtime_ns
    count(texts, 2, 3, folder=tmp_path, resume=True)
    assert (tmp_path / "counts.json").stat().st_mtime_ns == before
    with pytest.raises(BadInput, match="another one"):
        count(texts, 1, 3, folder=tmp_path, resume=True)


@pytest.mark.parametrize("engine", ["duckdb", "polars"])
def test_other_engines_agree(tmp_path, engine):
    rng = np.random.default_rng(2)
    texts = [rng.integers(0, 50, size=n) for n in (3000, 2, 700)]
    expected = dictionary(texts, 2)
    if engine == "polars":
        pl = pytest.importorskip("polars")
        rows = [(t[i], t[i + 1], t[i + 2]) for t in texts for i in range(len(t) - 2)]
        table = pl.DataFrame(rows, schema=["a", "b", "c"], orient="row").group_by("a", "b", "c").len()
        assert {((a, b), c): n for a, b, c, n in table.rows()} == expected
        return
    pytest.importorskip("duckdb")
    for min_count in (1, 3):
        found = count(
            texts, 2, 50, folder=tmp_path / str(min_count), engine=engine, min_count=min_count, memory="64MiB"
        )
        assert as_dictionary(found) == as_dictionary(count(texts, 2, 50, min_count=min_count))
    assert as_dictionary(count(texts, 2, 50, engine=engine)) == expected


def test_prefixes_are_the_nodes_of_the_trie():
    rng = np.random.default_rng(3)
    texts = [rng.integers(0, 3, size=n) for n in (5, 1, 0, 9, 9, 9, 2, 5)]
    found = count_prefixes(texts, 3)
    assert as_dictionary(found, prefix_tokens) == prefixes(texts)
    short = count_prefixes(texts, 3, longest=2)
    assert as_dictionary(short, prefix_tokens) == {k: v for k, v in prefixes(texts).items() if len(k[0]) <= 2}
    often = count_prefixes(texts, 3, min_count=2)
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
    found = count_text(path, Letters(), 2, documents="lines")
    assert as_dictionary(found) == dictionary([[0, 1, 2], [0, 1, 3], [23, 0]], 2)
    assert found.documents == 3
    limited = count_text(path, Letters(), 1, documents="lines", max_tokens=4)
    assert as_dictionary(limited) == dictionary([[0, 1, 2], [0]], 1)


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
        (([[0, 1]], 0, 3), {}, "at least one token"),
        (([[0, 1]], 1, 3), {"engine": "abacus"}, "no counting engine"),
        (([[0, 1]], 1, 3), {"memory": "much"}, "no amount of memory"),
        (([[0, 1]], 1, 3), {"engine": "spark"}, "URL of a master"),
    ],
)
def test_bad_input_is_one_sentence(arguments, options, message):
    texts, order, vocabulary = arguments
    with pytest.raises(BadInput, match=message):
        count(arrays(texts), order, vocabulary, **options)


def test_a_spark_master_that_does_not_answer_loses_nothing(tmp_path):
    texts = arrays([[0, 1, 2, 0, 1, 0]])
    with pytest.raises(BadInput, match="No Spark master answers"):
        count(texts, 2, 3, folder=tmp_path, engine="spark", master="spark://127.0.0.1:9")
    assert json.loads((tmp_path / "work" / "spool.json").read_text())["closed"]  # what was read is kept
    with pytest.raises(BadInput, match="is no Spark master"):
        count(texts, 2, 3, folder=tmp_path / "b", engine="spark", master="http://x")


def test_memory_words():
    assert parse_bytes("1.5KiB") == 1536
