import hashlib
import io
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscan.run.errors import BadInput
from headscan.run.rows import TextRecord
from headscan.text import TextIdentity, Windows
from tests.text.families import Bytes, made

DOCUMENTS = st.lists(st.text("ab é😀\n", max_size=40), min_size=1, max_size=12).filter(
    lambda texts: (
        not any(texts) or any(text.strip() for text in texts)
    )  # white space alone is refused
)


def expected_stream(texts: list[str], joint: int | None) -> tuple[list[int], list[int]]:
    """The slow, obviously right stream: whole documents, the end-of-text token between two; and
    each one's document.
    """
    stream: list[int] = []
    documents: list[int] = []
    for number, text in enumerate(filter(None, texts)):
        if stream and joint is not None:
            stream = [*stream, joint]
            documents = [*documents, number - 1]
        stream += text.encode()
        documents += [number] * len(text.encode())
    return stream, documents


@given(
    texts=DOCUMENTS,
    context=st.integers(1, 30),
    start=st.integers(0, 9),
    limit=st.none() | st.integers(30, 90),
)
def test_windows_are_the_joined_documents_cut_up(texts, context, start, limit):
    stream, documents = expected_stream(texts, 256)
    count = min(len(stream) // context, 10**9 if limit is None else limit // context)
    windows = Windows(texts, Bytes(), context, max_tokens=limit, start=start)
    if not count:
        with pytest.raises(BadInput):
            list(windows)
        return
    got = list(windows)
    assert [window.index for window in got] == list(range(start, count))
    assert all(window.ids.dtype == np.int64 and window.ids.shape == (context,) for window in got)
    assert [i for window in got for i in window.ids] == stream[start * context : count * context]
    assert [i for window in got for i in window.documents] == documents[
        start * context : count * context
    ]

    record = windows.record()
    assert record.windows == count
    assert record.tokens == count * context
    reached = len(stream) // context > count or (limit is not None and count == limit // context)
    assert record.dropped == (0 if reached else len(stream) % context)
    if not reached:
        nonempty = [text for text in texts if text]
        assert record.documents == len(nonempty)
        assert record.characters == sum(map(len, nonempty))
        assert (
            record.sha256
            == hashlib.sha256(b"\xff".join(text.encode() for text in nonempty)).hexdigest()
        )
    # the same again, and the same account wherever it starts
    assert [w.ids.tolist() for w in windows] == [w.ids.tolist() for w in got]
    full = Windows(texts, Bytes(), context, max_tokens=limit)
    list(full)
    assert full.record() == record


@settings(max_examples=30)
@given(texts=DOCUMENTS, context=st.integers(1, 20), start=st.integers(0, 6))
def test_windows_of_a_fast_tokenizer_resume_exactly(texts, context, start):
    tokenizer = made("byte-level, words of GPT-4")
    stream: list[int] = []
    for text in filter(None, texts):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        stream += ([tokenizer.eos_token_id] if stream else []) + ids
    windows = Windows(texts, tokenizer, context, start=start)
    if len(stream) < context:
        with pytest.raises(BadInput):
            list(windows)
    else:
        full = stream[: len(stream) // context * context]
        assert [i for window in windows for i in window.ids] == full[start * context :]
        assert windows.record().unknown == full.count(tokenizer.unk_token_id)


def test_a_tokenizer_without_end_of_text_joins_with_nothing_and_white_space_joins_nothing():
    tokenizer = made("wordpiece")
    hen = tokenizer("the hen", add_special_tokens=False)["input_ids"]
    windows = Windows(["the hen", " ", "the hen"], tokenizer, len(hen))
    assert [window.ids.tolist() for window in windows] == [hen, hen]
    assert windows.record().documents == 3

    blank = made("characters")
    [window] = Windows(
        ["a", "  ", "b"],
        blank,
        len(blank("a")["input_ids"]) * 2 + 1,
        documents="whole",
        max_tokens=5,
    )
    assert window.ids.tolist().count(blank.eos_token_id) == 1


def test_unknown_tokens_are_counted_in_windows_only():
    tokenizer = made("characters")
    windows = Windows(["a☃b☃c☃"], tokenizer, 5)  # ▁ a ☃ b ☃ | c ☃
    list(windows)
    assert windows.record().unknown == 2
    assert windows.record().dropped == 2


def test_the_account_of_one_txt_has_the_sum_of_the_file(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("Ein Huhn.\r\nשלום\n".encode() * 9000)
    windows = Windows(path, Bytes(), 64)
    running = [windows.record().windows for _ in windows]
    assert running == list(range(1, len(running) + 1))
    assert windows.record() == TextRecord(
        source=str(path),
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        documents=1,
        characters=len(path.read_bytes().decode()),
        tokens=len(running) * 64,
        windows=len(running),
        dropped=path.stat().st_size % 64,
        unknown=0,
        context=64,
    )


def test_a_limit_ends_the_reading(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"hen " * 200_000 + b"\xff")  # never reached
    for tokenizer in (Bytes(), made("byte-level, words of GPT-2")):
        windows = Windows(path, tokenizer, 100, max_tokens=1050)
        assert len(list(windows)) == 10
        record = windows.record()
        assert record.tokens == 1000
        assert record.dropped == 0
        assert record.characters <= 1 << 16


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (["hens"], "The text <list> has 4 tokens, less than one window of 8"),
        (["hen", "hen"], "has 7 tokens, less than one window of 8"),
        ([""], "The text <list> is empty"),
        ([], "The text <list> is empty"),
    ],
)
def test_a_text_too_short(source, sentence):
    with pytest.raises(BadInput, match=sentence):
        list(Windows(source, Bytes(), 8))


def test_empty_files_are_named(tmp_path):
    for name in ("a.txt", "a.jsonl"):
        (tmp_path / name).touch()
        with pytest.raises(BadInput, match=rf"{name} is empty"):
            list(Windows(tmp_path / name, Bytes(), 8))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"context": 0}, "at least one token"),
        (
            {"context": 8, "max_tokens": 7},
            "At most 7 tokens are asked for, less than one window of 8",
        ),
        ({"context": 8, "start": -1}, "none can start at -1"),
    ],
)
def test_bad_numbers(options, sentence):
    with pytest.raises(BadInput, match=sentence):
        Windows(["hens and hens"], Bytes(), **options)


def test_standard_input_is_read_once(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"hens are hens")))
    windows = Windows("-", Bytes(), 4)
    assert len(list(windows)) == 3
    assert windows.record().source == "-"
    with pytest.raises(BadInput, match="Standard input can be read only once"):
        list(windows)


@given(texts=DOCUMENTS, context=st.integers(1, 10), at=st.integers(0, 8), change=st.integers(0, 60))
def test_a_resumed_reading_finds_the_same_text_or_refuses(texts, context, at, change):
    windows = Windows(texts, Bytes(), context)
    read_ids = []
    try:
        for window in windows:
            read_ids.append(window.ids.tolist())
            if len(read_ids) == at:
                break
    except BadInput:
        return
    mark = windows.mark()
    again = Windows(texts, Bytes(), context, start=len(read_ids), expected=mark)
    assert [w.ids.tolist() for w in again] == [
        w.ids.tolist() for w in Windows(texts, Bytes(), context)
    ][len(read_ids) :]
    read = "\xff".join(text for text in texts if text)[: mark.characters + mark.documents - 1]
    if change < len(read) and read[change] not in "\xff":
        altered = read[:change] + ("a" if read[change] != "a" else "b") + read[change + 1 :]
        with pytest.raises(BadInput, match="has changed since the run"):
            list(Windows(altered.split("\xff"), Bytes(), context, expected=mark))
    if len(read) > 1:
        with pytest.raises(
            BadInput, match=r"has changed|less than one window|is empty|white space"
        ):
            list(Windows(read[:-1].split("\xff"), Bytes(), context, expected=mark))


def test_a_reading_that_is_interrupted_within_a_piece_stands_before_it():
    class Interrupted(str):
        def isspace(self):
            raise KeyboardInterrupt

    read = TextIdentity("hens")
    read.add(" ", begins=True)
    mark_before = read.mark()
    with pytest.raises(KeyboardInterrupt):
        read.add(Interrupted(" and another one"), begins=True)
    assert read.mark() == mark_before


def test_strings_of_special_tokens_inside_a_text_are_text():
    tokenizer = made("byte-level, words of GPT-2")
    text = "The hen <unk> slept.</s> Then <unk> she slept. " * 3
    windows = Windows([text], tokenizer, 8)
    ids = np.concatenate([window.ids for window in windows])
    assert not set(ids.tolist()) & {tokenizer.unk_token_id, tokenizer.eos_token_id}
    assert text.startswith(tokenizer.decode(ids))
    record = windows.record()
    assert record.specials == {"<unk>": 6, "</s>": 3}
    assert "contains '<unk>', the string of a special token, 6 times" in record.sentences[0]
    apart = Windows([text], tokenizer, 4, documents="</s>")
    list(apart)
    assert apart.record().documents == 4
    assert "</s>" not in apart.record().specials
