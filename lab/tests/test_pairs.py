"""Synonyms, and judging pairs of sentences."""

import numpy as np
import pytest
import torch
from headscan_lab.evaluation.similarity import synonyms
from headscan_lab.evaluation.task import Evaluated, evaluate_task, pair_features, probe
from headscan_lab.evaluation.tasks import read_pairs
from transformers import GPT2Config, GPT2LMHeadModel

from headscan import BadInput, text
from headscan.training import fit_tokenizer


@pytest.fixture(scope="module")
def tokenizer():
    pairs = text.synonyms()
    return fit_tokenizer([" ".join(f" {word}" for word in pairs.one + pairs.other)], 400)


@pytest.fixture
def model(tokenizer):
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=400,
        n_embd=64,
        n_layer=1,
        n_head=2,
        n_positions=64,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(config).eval()


def test_synonyms_are_closer_only_where_the_table_says_so(tokenizer):
    """Byte-level letters alone: each word of one token, its row set by hand."""
    letters = "abcdefghijklmnop"
    word_tokenizer = fit_tokenizer([" ".join(f" {letter}" for letter in letters) * 50], 300)
    pairs = text.PairSet("letters", list(letters[::2]), list(letters[1::2]))
    config = GPT2Config(
        vocab_size=300,
        n_embd=64,
        n_layer=1,
        n_head=2,
        n_positions=8,
        bos_token_id=0,
        eos_token_id=0,
    )
    torch.manual_seed(0)
    model = GPT2LMHeadModel(config)
    chance = synonyms(model, word_tokenizer, pairs=pairs)
    assert chance["pairs"] == 8
    assert chance["p_value"] > 0.02
    table = model.get_input_embeddings().weight.data
    for word, synonym in zip(pairs.one, pairs.other, strict=True):
        ids = [
            word_tokenizer(f" {text}", add_special_tokens=False)["input_ids"]
            for text in (word, synonym)
        ]
        assert len(ids[0]) == len(ids[1]) == 1
        table[ids[1]] = table[ids[0]]
    scores = synonyms(model, word_tokenizer, pairs=pairs)
    assert scores["synonyms"] == pytest.approx(1, abs=1e-5)
    assert scores["p_value"] < 0.01
    table += 5  # a cone lifts both
    lifted = synonyms(model, word_tokenizer, pairs=pairs)
    assert lifted["random"] > 0.9
    assert lifted["gain"] < scores["gain"] / 5
    with pytest.raises(BadInput, match="two pairs"):
        synonyms(model, word_tokenizer, pairs=pairs.first(1))


def test_pair_features_tell_equal_from_unequal():
    draw = np.random.default_rng(0)
    first = draw.normal(size=(300, 6))
    labels = draw.integers(0, 2, 300)
    second = np.where(
        labels[:, None] == 1,
        first + 0.1 * draw.normal(size=first.shape),
        draw.normal(size=first.shape),
    )
    x = pair_features(first, second)
    assert probe(x[:200], labels[:200], x[200:], labels[200:])["accuracy"] > 0.9


def test_pairs_of_sentences_are_read_and_judged(model, tokenizer, tmp_path):
    """The same rows are trained on; XNLI's in each language, without those on which annotators
    disagree.
    """
    for task, label, languages in (("rte", "label", [""]), ("xnli", "gold_label", ["en", "fr"])):
        rows = [f"index\tsentence1\tsentence2\t{label}\tlanguage"]
        for index in range(12 * len(languages)):
            number, language = divmod(index, len(languages))
            word = text.synonyms().one[number]
            synonym = text.synonyms().other[number]
            same = number % 2
            if same:
                kind = "-" if index > 21 else "entailment"
            else:
                kind = "contradiction" if task == "xnli" else "not_entailment"
            second = word if same else synonym
            rows.append(f'{index}\t{word} "quoted\t{second}\t{kind}\t{languages[language]}')
        (tmp_path / task).mkdir()
        for name in ("train.tsv", "dev.tsv", "xnli.test.tsv"):
            (tmp_path / task / name).write_text("\n".join(rows) + "\n")
    assert [row[2] for row in read_pairs(tmp_path / "rte" / "dev.tsv")] == [0, 1] * 6
    evaluated = Evaluated(model, tokenizer, tmp_path)
    scores = {name: evaluate_task(evaluated, name) for name in ("rte", "xnli", "synonyms")}
    assert (
        min(scores["rte"]["accuracy"], scores["xnli"]["accuracy en"], scores["xnli"]["accuracy fr"])
        > 0.9
    )
    assert scores["rte"]["largest_class"] == 0.5
    assert scores["xnli"]["largest_class fr"] == 6 / 11
    assert scores["xnli"]["accuracy fr_interval"][1] <= 1
    assert scores["synonyms"]["pairs"] > 80
    with pytest.raises(BadInput, match="columns"):
        read_pairs(tmp_path / "absent.tsv")
