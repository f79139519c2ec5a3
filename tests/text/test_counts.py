import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from headscan.run.errors import BadInput
from headscan.text import counts as module
from headscan.text.counts import count, count_tokens, grouped_counts
from headscan.text.source import Counting, Reading, parse_bytes
from headscan.text.token_store import store_text, store_tokens
from tests.reference.counts import as_dictionary, dictionary

documents = st.lists(st.lists(st.integers(0, 4), max_size=30), min_size=1, max_size=6)


def arrays(texts):
    return [np.array(text, dtype=np.int64) for text in texts]


@given(documents, st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_counts_are_those_of_a_dictionary(texts, order):
    expected = dictionary(texts, order)
    if not expected:
        with pytest.raises(BadInput):
            count(arrays(texts), 5, Counting(order=order))
        return
    counts = count(arrays(texts), 5, Counting(order=order))
    assert as_dictionary(counts) == expected
    assert counts.contexts.tolist() == sorted(counts.contexts.tolist())
    assert counts.occurrences.sum() == sum(expected.values())


@pytest.mark.parametrize("vocabulary", [1, 7, 1 << 16, (1 << 31) - 1])
@pytest.mark.parametrize("order", [1, 3, 25])
def test_words_of_any_length_are_exact(tmp_path, monkeypatch, order, vocabulary):
    monkeypatch.setattr(module, "_BATCH", 1000)
    rng = np.random.default_rng(0)
    lengths = (4000, 1, 3, order, order + 1, 2000, 0, 33)
    texts = [rng.integers(max(0, vocabulary - 7), vocabulary, size=n) for n in lengths]
    counts = count(texts, vocabulary, Counting(order=order, memory="1KiB"), work=tmp_path)
    assert as_dictionary(counts) == dictionary(texts, order)
    assert counts.contexts.tolist() == sorted(counts.contexts.tolist())
    assert not list(tmp_path.iterdir())


def test_a_count_beyond_its_memory_is_exact(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_LEAST_MEMORY", 1 << 25)
    rng = np.random.default_rng(0)
    ids = np.minimum(30_000 ** rng.random(1_000_000) - 1, 29_999).astype(np.uint16)
    small, large = (
        count([ids], 30_000, Counting(order=8, memory=size), work=tmp_path)
        for size in ("1KiB", "4GiB")
    )
    for name in ("contexts", "indptr", "indices", "counts"):
        assert np.array_equal(getattr(small, name), getattr(large, name)), name


def test_what_is_saved_is_what_was_counted(tmp_path):
    counts = count(arrays([[0, 1, 2, 0, 1, 0]]), 3, Counting(order=2))
    counts.save(tmp_path / "kept")
    table = pq.read_table(tmp_path / "kept/contexts.parquet")
    stored = load_file(tmp_path / "kept/counts.safetensors")
    assert table.column_names == ["token_0", "token_1", "occurrences"]
    assert np.array_equal(np.stack([table["token_0"], table["token_1"]], 1), counts.contexts)
    assert table["occurrences"].to_pylist() == counts.occurrences.tolist()
    for name in ("indptr", "indices", "counts"):
        assert np.array_equal(stored[name], getattr(counts, name))


def test_rare_contexts_are_left_out():
    texts = arrays([[0, 1, 0, 1, 0, 2, 1]])
    counts = count(texts, 3, Counting(order=1, min_count=2))
    expected = {
        (context, token): number
        for (context, token), number in dictionary(texts, 1).items()
        if context in {(0,), (1,)}
    }
    assert as_dictionary(counts) == expected
    assert counts.rows(np.array([[0], [2], [1]])).tolist() == [0, -1, 1]
    with pytest.raises(BadInput, match="at least 9 times"):
        count(texts, 3, Counting(order=1, min_count=9))


@pytest.mark.parametrize("groups", [2, 40])
def test_groups_add_up_to_the_whole(groups):
    rng = np.random.default_rng(4)
    store = store_tokens([rng.integers(0, 5, size=n) for n in (90, 3, 0, 40, 71, 12)], 5)
    counts = count_tokens(store, Counting(order=2))
    parts = grouped_counts(store, counts, groups)
    assert len(parts) <= groups
    assert (sum(parts) != counts.matrix()).nnz == 0


class Letters:
    splits_anywhere = True
    eos_token_id = None

    def encode(self, text, add_special_tokens=False):
        return [ord(letter) - 97 for letter in text]

    def __len__(self):
        return 26


def test_counting_a_text_keeps_documents_apart(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("abc\nabd\nxa\n")
    counts = count_tokens(
        store_text(path, Letters(), Reading(documents="lines"))[0], Counting(order=2)
    )
    assert as_dictionary(counts) == dictionary([[0, 1, 2], [0, 1, 3], [23, 0]], 2)
    assert counts.documents == 3
    limited = count_tokens(
        store_text(path, Letters(), Reading(documents="lines", max_tokens=4))[0], Counting(order=1)
    )
    assert as_dictionary(limited) == dictionary([[0, 1, 2], [0]], 1)
    record = store_text(path, Letters(), Reading(documents="lines"))[1]
    assert (record.documents, record.tokens, record.characters) == (3, 8, 8)


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
        (([[0, 1]], 1, 3), {"engine": "abacus"}, "--engine must be here or spark"),
        (([[0, 1]], 1, 3), {"memory": "much"}, "no amount of memory"),
        (([[0, 1]], 1, 3), {"engine": "spark"}, "URL of a master"),
    ],
)
def test_bad_input_is_one_sentence(arguments, options, message):
    texts, order, vocabulary = arguments
    with pytest.raises(BadInput, match=message):
        count(arrays(texts), vocabulary, Counting(order=order, **options))


@pytest.mark.parametrize(
    ("master", "says"),
    [("spark://127.0.0.1:9", "No Spark master answers"), ("http://x", "is no Spark master")],
)
def test_a_spark_master_that_does_not_answer_is_refused(tmp_path, master, says):
    with pytest.raises(BadInput, match=says):
        count(
            arrays([[0, 1, 2, 0]]),
            3,
            Counting(order=2, engine="spark", master=master),
            work=tmp_path,
        )


def test_memory_words():
    assert [parse_bytes(size) for size in ("1.5KiB", "10 MB", "4GiB", 4096)] == [
        1536,
        10**7,
        2**32,
        4096,
    ]
