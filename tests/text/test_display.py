import pytest
from hypothesis import given
from hypothesis import strategies as st

from headscan.text import display
from headscan.text.spelling import visible
from tests.text.families import MADE, REAL, Bytes, made, real


def shown(tokenizer, text: str) -> list[str]:
    return display(tokenizer, tokenizer(text, add_special_tokens=False)["input_ids"])


def test_byte_level():
    tokenizer = made("byte-level, no words")
    assert "".join(shown(tokenizer, " hen\n\t")) == "␣hen⏎⇥"
    assert shown(tokenizer, "☃") == ["<0xE2>", "<0x98>", "<0x83>"]
    assert display(tokenizer, tokenizer.eos_token_id) == "</s>"


def test_sentencepiece():
    for family in ("sentencepiece, Llama", "sentencepiece, metaspace"):
        tokenizer = made(family)
        assert "".join(shown(tokenizer, "hen  hen\r\n")) == "␣hen␣␣hen␍⏎"
        assert shown(tokenizer, "a☃")[-3:] == ["<0xE2>", "<0x98>", "<0x83>"]
    assert "".join(shown(made("unigram"), "the hen")) == "␣the␣hen"
    assert "".join(shown(made("characters"), "the hen")) == "␣the␣hen"


def test_wordpiece():
    tokens = shown(made("wordpiece"), "the hens ☃")
    assert tokens[0] == "the"
    assert any(token.startswith("##") for token in tokens)
    assert tokens[-1] == "[UNK]"


def test_tokenizers_with_decode_alone():
    class Letters(Bytes):
        def decode(self, ids):
            return chr(ids[0])

    assert display(Letters(), [97, 32, 10, 0x301]) == ["a", "␣", "⏎", "◌\u0301"]


def test_ids_without_a_token():
    tokenizer = made("wordpiece")
    assert display(tokenizer, [len(tokenizer) + 5, 10**12]) == [
        f"<id {len(tokenizer) + 5}>",
        f"<id {10**12}>",
    ]


def test_without_a_tokenizer_tokens_are_their_numbers():
    assert display(None, [7, 50300]) == ["<id 7>", "<id 50300>"]
    assert display(None, 7) == "<id 7>"


@pytest.mark.parametrize("name", MADE)
def test_every_token_is_visible(name):
    tokenizer = made(name)
    for text in display(tokenizer, range(len(tokenizer))):
        assert text
        assert visible(text) == text


@pytest.mark.parametrize("name", REAL)
def test_every_token_of_real_tokenizers_is_visible(assets, name):
    tokenizer = real(assets, name)
    texts = display(tokenizer, range(len(tokenizer)))
    assert all(texts)
    assert all(visible(text) == text for text in texts)


def test_gpt2(assets):
    tokenizer = real(assets, "gpt2-tokenizer")
    assert shown(tokenizer, " hello\n\n é😀") == [
        "␣hello",
        "⏎⏎",
        "␣é",
        "<0xF0><0x9F><0x98>",
        "<0x80>",
    ]


@given(st.text(max_size=30))
def test_visible_text_has_nothing_invisible(text):
    assert visible(visible(text)) == visible(text)
    assert all(c.isprintable() and not c.isspace() for c in visible(text))


def test_characters_that_show_nothing_are_spelt():
    texts = ("a b\n", "\u0301", "\u200b", "\x7f\x01")
    assert [visible(text) for text in texts] == ["a␣b⏎", "◌\u0301", "<U+200B>", "␡␁"]
