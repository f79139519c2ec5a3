"""Bytes as tokens: exact, with the offsets of characters."""

from hypothesis import given
from hypothesis import strategies as st

from headscan.model import ByteTokenizer

tokenizer = ByteTokenizer()
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@given(TEXT)
def test_round_trip(text):
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert max(tokenizer.encode(text), default=0) < len(tokenizer) == 256


@given(st.lists(TEXT, max_size=4))
def test_offsets_point_at_the_character_of_each_byte(texts):
    batch = tokenizer(texts, add_special_tokens=False, return_offsets_mapping=True)
    for text, ids, offsets in zip(texts, batch["input_ids"], batch["offset_mapping"], strict=True):
        assert len(ids) == len(offsets)
        spelled = b"".join(text[start:end].encode() for start, end in dict.fromkeys(offsets))
        assert spelled == text.encode()


def test_one_text_or_many():
    assert tokenizer("añ")["input_ids"] == tokenizer(["añ"])["input_ids"][0] == [97, 195, 177]


def test_broken_text_neither_fails_nor_vanishes():
    assert tokenizer.encode("a\ud800b") == [97, 63, 98]
    assert tokenizer.decode([97, 0xFF, 98]) == "a�b"


def test_tokens_are_readable():
    assert tokenizer.convert_ids_to_tokens(65) == "A"
    assert tokenizer.convert_ids_to_tokens([32, 0, 255]) == [" ", "<0x00>", "<0xFF>"]
    assert tokenizer.eos_token_id is None
    assert tokenizer.is_fast
