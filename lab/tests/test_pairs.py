"""Synonyms, and judging pairs of sentences."""

import numpy as np
import pytest
import torch
from headscan_lab.evaluation.scores import changes, pair_features, probe
from headscan_lab.evaluation.sentence_tasks import read_pairs
from headscan_lab.evaluation.similarity import synonyms
from headscan_lab.evaluation.task import Evaluated, evaluate_task
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
    words = fit_tokenizer([" ".join(f" {letter}" for letter in letters) * 50], 300)
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
    chance = synonyms(model, words, pairs=pairs)
    assert chance["pairs"].value == 8
    assert chance["p_value"].value > 0.02
    table = model.get_input_embeddings().weight.data
    for one, other in zip(pairs.one, pairs.other, strict=True):
        ids = [words(f" {each}", add_special_tokens=False)["input_ids"] for each in (one, other)]
        assert len(ids[0]) == len(ids[1]) == 1
        table[ids[1]] = table[ids[0]]
    found = synonyms(model, words, pairs=pairs)
    assert found["synonyms"].value == pytest.approx(1, abs=1e-5)
    assert found["p_value"].value < 0.01
    table += 5  # a cone lifts both
    lifted = synonyms(model, words, pairs=pairs)
    assert lifted["random"].value > 0.9
    assert lifted["gain"].value < found["gain"].value / 5
    with pytest.raises(BadInput, match="two pairs"):
        synonyms(model, words, pairs=pairs.first(1))


def test_pair_features_tell_equal_from_unequal():
    draw = np.random.default_rng(0)
    one = draw.normal(size=(300, 6))
    labels = draw.integers(0, 2, 300)
    other = np.where(
        labels[:, None] == 1, one + 0.1 * draw.normal(size=one.shape), draw.normal(size=one.shape)
    )
    x = pair_features(one, other)
    assert probe(x[:200], labels[:200], x[200:], labels[200:])["accuracy"].value > 0.9


def test_pairs_of_sentences_are_read_and_judged(model, tokenizer, tmp_path):
    """The same rows are trained on; XNLI's in each language, without those on which annotators
    disagree.
    """
    for task, label, languages in (("rte", "label", [""]), ("xnli", "gold_label", ["en", "fr"])):
        rows = [f"index\tsentence1\tsentence2\t{label}\tlanguage"]
        for index in range(12 * len(languages)):
            word = text.synonyms().one[index // len(languages)]
            other = text.synonyms().other[index // len(languages)]
            same = index // len(languages) % 2
            kind = "-" if index > 21 else "entailment"
            kind = kind if same else "contradiction" if task == "xnli" else "not_entailment"
            rows.append(
                f"{index}\t{word} "
                f'"quoted\t{word if same else other}\t{kind}\t{languages[index % len(languages)]}'
            )
        (tmp_path / task).mkdir()
        for name in ("train.tsv", "dev.tsv", "xnli.test.tsv"):
            (tmp_path / task / name).write_text("\n".join(rows) + "\n")
    assert [pair.label for pair in read_pairs(tmp_path / "rte" / "dev.tsv")] == [0, 1] * 6
    given = Evaluated(model, tokenizer, tmp_path)
    found = {name: evaluate_task(given, name) for name in ("rte", "xnli", "synonyms")}
    for accuracy in (
        found["rte"]["accuracy"],
        found["xnli"]["accuracy en"],
        found["xnli"]["accuracy fr"],
    ):
        assert accuracy.value > 0.9
    assert found["rte"]["largest_class"].value == 0.5
    assert found["xnli"]["largest_class fr"].value == 6 / 11
    assert found["xnli"]["accuracy fr"].interval[1] <= 1
    assert found["synonyms"]["pairs"].value > 80
    unchanged = changes(found["xnli"], found["xnli"])
    assert {"accuracy en change", "accuracy fr change"} <= set(unchanged)
    assert unchanged["accuracy fr change"].value == 0
    with pytest.raises(BadInput, match="columns"):
        read_pairs(tmp_path / "absent.tsv")
