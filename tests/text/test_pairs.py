import json

import pytest

from headscan import BadInput
from headscan.text.pairs import read_pairs, synonyms


def test_the_shipped_synonyms_are_pairs_of_different_words():
    pairs = synonyms()
    assert len(pairs) > 100
    assert all(
        word != synonym and word.strip() and synonym.strip()
        for word, synonym in zip(pairs.one, pairs.other, strict=True)
    )
    assert len(set(zip(pairs.one, pairs.other, strict=True))) == len(pairs)


def test_two_columns(tmp_path):
    file = tmp_path / "words.tsv"
    file.write_text("big\tlarge\tnoted\n\nsmall\tlittle\nempty\t\n")
    (pairs,) = read_pairs(file)
    assert (pairs.name, pairs.one, pairs.other) == ("words", ["big", "small"], ["large", "little"])
    assert read_pairs(f"mine={file}")[0].name == "mine"
    assert len(pairs.first(1)) == 1


def test_paraphrases_are_scores_of_four_and_more(tmp_path):
    file = tmp_path / "sts.csv"
    file.write_text('"a, b",c,4.5\nd,e,3.9\nf,g,4\n')
    assert read_pairs(file)[0].one == ["a, b", "f"]
    file.write_text("one,two,score\nd,e,5\nf,g,4.0\n")
    assert read_pairs(file)[0].one == ["d", "f"]


def test_parallel_sentences_are_english_with_every_other(tmp_path):
    file = tmp_path / "pud.json"
    file.write_text(
        json.dumps([{"id": k, "de": f"d{k}", "en": f"e{k}", "fr": f"f{k}"} for k in range(3)])
    )
    pairs_found = read_pairs(file)
    assert [pairs.name for pairs in pairs_found] == ["pud en-de", "pud en-fr"]
    assert (pairs_found[0].one, pairs_found[0].other) == (["e0", "e1", "e2"], ["d0", "d1", "d2"])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", "one column\nonly"),
        ("a.csv", "a,b\n"),
        ("a.csv", "a,b,high\nc,d,low\n"),
        ("a.json", "{}"),
        ("a.json", "[[1]]"),
        ("a.tsv", "one\tpair\n"),
        ("a.xlsx", ""),
    ],
)
def test_what_cannot_be_read_is_one_clear_sentence(tmp_path, name, content):
    file = tmp_path / name
    file.write_text(content)
    with pytest.raises(BadInput):
        read_pairs(file)
    with pytest.raises(BadInput):
        read_pairs(tmp_path / "absent.tsv")
