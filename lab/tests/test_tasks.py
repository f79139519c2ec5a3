"""Evaluation against numbers worked out by hand, and on the real sets where they are at hand."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from headscan_lab.evaluation import task
from headscan_lab.evaluation.likelihood import log_likelihood
from headscan_lab.evaluation.likelihood_tasks import blimp_hits, lambada, read_blimp, read_lambada
from headscan_lab.evaluation.scores import (
    balanced_cross_entropy,
    matthews,
    probe,
    retrieval,
    similarity_number,
)
from headscan_lab.evaluation.sentence_tasks import read_cola, read_sst2
from headscan_lab.evaluation.similarity import read_pud, read_stsb
from headscan_lab.evaluation.task import Evaluated, evaluate_task
from headscan_lab.evaluation.vectors import sentence_vectors
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BertTokenizerFast,
    GPT2Config,
    GPT2LMHeadModel,
)

from headscan import BadInput, Lens
from headscan.model.sentence import declared_pooling
from headscan.training import fit_tokenizer
from headscan.training.likelihood import bytes_of_tokens, perplexity, token_losses


@pytest.fixture(scope="module")
def tokenizer(story):
    return fit_tokenizer([story], 320)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=320,
        n_embd=16,
        n_layer=2,
        n_head=2,
        n_positions=64,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(config).eval()


def test_perplexity_is_the_exponential_of_the_mean_loss(model, tokenizer):
    rows = np.random.default_rng(0).integers(1, 320, (5, 12))
    with torch.no_grad():
        want = np.mean(
            [model(ids, labels=ids).loss.item() for ids in torch.from_numpy(rows)[:, None]]
        )
    found = perplexity(model, rows, tokenizer, batch=2)
    assert found.nats_per_token == pytest.approx(want, rel=1e-5)
    assert found.perplexity == pytest.approx(math.exp(want), rel=1e-4)
    # ascii tokens
    length = sum(len(bytes(tokenizer.decode([i]), "utf8")) for i in rows[:, 1:].ravel() if i < 128)
    assert found.bits_per_byte > 0
    assert length <= bytes_of_tokens(tokenizer)[rows[:, 1:]].sum()
    with pytest.raises(BadInput, match="no windows"):
        perplexity(model, rows[:0])


def test_perplexity_errs_by_documents_where_there_are_some(model):
    rows = np.random.default_rng(0).integers(1, 320, (12, 10))
    begins = np.arange(15, 120, 15)  # eight documents of a window and a half
    found = perplexity(model, rows, begins=begins)
    alone = perplexity(model, rows)
    losses = np.zeros((12, 10))
    losses[:, 1:] = token_losses(model, torch.from_numpy(rows)).detach().double().numpy()
    # a window's first token is not predicted
    n = np.array([(part % 10 > 0).sum() for part in np.split(np.arange(120), begins)])
    sums = np.array([part.sum() for part in np.split(losses.ravel(), begins)])
    rest = sums - n * losses.sum() / n.sum()
    assert found.standard_error == pytest.approx(
        (rest**2 / (1 - n / n.sum())).sum() ** 0.5 / n.sum()
    )
    assert found.interval[0] < found.nats_per_token < found.interval[1]
    assert alone.standard_error != found.standard_error


def test_bytes_of_tokens_add_up_to_the_text(tokenizer, story):
    text = story[:500] + " naïve café ☃ 東京"
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert bytes_of_tokens(tokenizer)[ids].sum() == len(text.encode())


def test_log_likelihood_equals_the_token_by_token_sum(model, tokenizer, story):
    given = story[:40]
    continuation = story[40:70]
    # As the tokenizer alone has them: it puts no start of text, nor does GPT-2's, and
    # lm-evaluation-harness adds none.
    ids = tokenizer.encode(given + continuation)
    known = len(tokenizer.encode(given))
    want = 0.0
    with torch.no_grad():
        for place in range(known, len(ids)):
            want += float(
                model(torch.tensor([ids[:place]])).logits[0, -1].log_softmax(-1)[ids[place]]
            )
    # Another pair in the same batch must change nothing: it only adds padding.
    scores, _ = log_likelihood(
        model, tokenizer, [(given, continuation), ("", story[:120])], context=64
    )
    assert scores[0] == pytest.approx(want, rel=1e-4)


def test_the_likelihoods_are_those_of_lm_evaluation_harness():
    """Recorded from its version 0.4.13 with the specimen gpt-vanilla; test_harness.py compares
    where it is installed.
    """
    lens = Lens.load("gpt-vanilla")
    pairs = [
        ("Once upon a time there was a little", " girl"),
        ("Once upon a time  ", "there was"),
        ("", "The dog ran."),
    ]
    scores, greedy = log_likelihood(lens.model, lens.tokenizer, pairs)
    np.testing.assert_allclose(scores, [-0.3074571, -20.9575119, -23.0067482], rtol=1e-5)
    assert greedy.tolist() == [True, False, False]


def test_what_is_too_long_keeps_its_context_and_the_token_after_it(model, tokenizer, story):
    whole = tokenizer.encode(story[:200])
    given = tokenizer.decode(whole[:-1])
    if tokenizer.encode(given) == whole[:-1] and tokenizer.encode(story[:200])[-1] == whole[-1]:
        last = story[len(given) : 200]
        scores, _ = log_likelihood(model, tokenizer, [(given, last)], context=8)
        with torch.no_grad():
            want = model(torch.tensor([whole[-9:-1]])).logits[0, -1].log_softmax(-1)[whole[-1]]
        assert scores[0] == pytest.approx(float(want), rel=1e-5)


def test_tokens_without_their_spaces_have_no_bits_a_byte(model, tmp_path):
    (tmp_path / "vocab.txt").write_text("[UNK]\n[CLS]\n[SEP]\n[PAD]\n[MASK]\nthe\ndog\n##s\n")
    tokenizer = BertTokenizerFast(vocab_file=str(tmp_path / "vocab.txt"))
    with pytest.raises(BadInput, match="spaces between words; WordPiece's do not"):
        bytes_of_tokens(tokenizer)
    assert perplexity(model, np.array([[5, 6, 7, 5]]), tokenizer).bits_per_byte is None


def test_greedy_is_true_where_the_model_says_the_same(model, tokenizer):
    prompt = "ba"
    ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        best = int(model(ids).logits[0, -1].argmax())
    word = tokenizer.convert_ids_to_tokens(best)
    if tokenizer.encode(prompt + tokenizer.decode([best])) == [*ids[0].tolist(), best]:
        _, greedy = log_likelihood(model, tokenizer, [(prompt, tokenizer.decode([best]))])
        assert greedy[0], word
    _, greedy = log_likelihood(model, tokenizer, [(prompt, " zzzz")])
    assert not greedy[0]


def test_blimp_counts_the_pairs_it_gets_right(model, tokenizer):
    found = blimp_hits(
        model,
        tokenizer,
        {
            "short first": [("ba", "ba de fi go ku la ma ne")] * 3,
            "long first": [("ba de fi go", "ba")],
        },
    )
    assert {name: hits.mean() for name, hits in found.items()} == {
        "short first": 1.0,
        "long first": 0.0,
    }


def test_balanced_cross_entropy_weighs_classes_alike():
    logits = torch.randn(10, 3, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0] * 7 + [1] * 2 + [2])
    losses = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    want = (losses[:7].mean() + losses[7:9].mean() + losses[9]) / 3
    assert balanced_cross_entropy(logits, labels).item() == pytest.approx(want.item())
    even = torch.tensor([0, 1, 2])
    plain = torch.nn.functional.cross_entropy
    assert balanced_cross_entropy(logits[:3], even).item() == pytest.approx(
        plain(logits[:3], even).item()
    )


def test_probe_finds_a_direction_and_matthews_its_sign():
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 2, 300)
    vectors = draw.normal(size=(300, 8)) + 3 * labels[:, None] * np.eye(8)[2]
    found = probe(vectors[:200], labels[:200], vectors[200:], labels[200:])
    assert found["accuracy"].value > 0.85
    noise = probe(
        draw.normal(size=(200, 8)), labels[:200], draw.normal(size=(100, 8)), labels[200:]
    )
    assert abs(noise["matthews"].value) < 0.3
    assert matthews(np.array([1, 0, 1, 0]), np.array([0, 1, 0, 1])) == -1
    assert matthews(np.array([1, 1]), np.array([0, 1])) == 0
    tp = 5
    tn = 3
    fp = 2
    fn = 1
    predicted = np.array([1] * tp + [0] * tn + [1] * fp + [0] * fn)
    truth = np.array([1] * tp + [0] * tn + [0] * fp + [1] * fn)
    want = (tp * tn - fp * fn) / math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    assert matthews(predicted, truth) == pytest.approx(want)


def test_retrieval_survives_a_shift_between_languages():
    vectors = np.random.default_rng(0).normal(size=(50, 16))
    assert retrieval(vectors, vectors + 100).value == 1
    assert retrieval(vectors, vectors[::-1]).value < 0.1


def test_sentence_vectors_do_not_depend_on_their_company(model, tokenizer, story):
    sentences = story.split("\n")[:6]
    together = sentence_vectors(model, tokenizer, sentences)
    for index, sentence in enumerate(sentences):
        alone = sentence_vectors(model, tokenizer, [sentence])
        np.testing.assert_allclose(together[index], alone[0], atol=1e-5)
    last = sentence_vectors(model, tokenizer, sentences[:1], pooling="last")
    assert not np.allclose(last[0], together[0])
    first = sentence_vectors(model, tokenizer, sentences[:1], pooling="first")
    states = model(
        torch.tensor([tokenizer(sentences[0], add_special_tokens=False)["input_ids"]]),
        output_hidden_states=True,
    )
    np.testing.assert_allclose(first[0], states.hidden_states[-1][0, 0].detach().numpy(), atol=1e-5)
    with pytest.raises(BadInput, match="pooling"):
        sentence_vectors(model, tokenizer, sentences, pooling="max")


@pytest.mark.parametrize(
    ("flags", "pooling"),
    [
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, "mean"),
        ({"pooling_mode_cls_token": True}, "first"),
        (
            {
                "pooling_mode_mean_tokens": True,
                "pooling_mode_max_tokens": False,
                "pooling_mode_lasttoken": True,
            },
            None,
        ),
        ({}, None),
    ],
)
def test_pooling_is_as_the_folder_declares_it(tmp_path, flags, pooling):
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(flags))
    assert declared_pooling(tmp_path) == pooling


def test_a_sentence_encoder_has_the_published_correlation(real, assets):
    """all-mpnet-base-v2 on the English test set of STS-B: 83.42 in MTEB's table."""
    lens = Lens.load(str(real / "all-mpnet-base-v2"))
    pooling = declared_pooling(real / "all-mpnet-base-v2")
    one, other, gold = read_stsb(assets / "text" / "stsb" / "stsb-en-test.csv")
    vectors = [
        sentence_vectors(lens.model, lens.tokenizer, each, pooling=pooling, special=True)
        for each in (one, other)
    ]
    assert similarity_number(*vectors, gold).value == pytest.approx(0.8342, abs=5e-4)


def test_the_sets_are_read_as_they_are_shipped(assets):
    text = assets / "text"
    paradigms = read_blimp(text / "blimp" / "BLiMP.zip")
    assert len(paradigms) == 67
    assert all(len(pairs) == 1000 for pairs in paradigms.values())
    assert len(read_lambada(text / "lambada" / "lambada_test.jsonl")) == 5153
    sentences, labels = read_cola(text / "cola" / "in_domain_dev.tsv")
    assert len(sentences) == len(labels) == 527
    assert set(labels.tolist()) == {0, 1}
    assert set(read_sst2(text / "sst2" / "stsa.binary.dev")[1].tolist()) == {0, 1}
    one, _, scores = read_stsb(text / "stsb" / "stsb-de-test.csv")
    assert len(one) == 1379
    assert 0 <= scores.min() <= scores.max() <= 5
    pud = read_pud(text / "pud" / "pud_parallel_7lang.json")
    assert sorted(pud) == ["ar", "de", "en", "es", "fr", "ru", "zh"]
    assert all(len(each) == 1000 for each in pud.values())


def test_a_real_model_on_all_sets(assets):
    folder = assets / "models" / "stories260K"
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    given = Evaluated(model, AutoTokenizer.from_pretrained(folder), assets / "text", limit=10)
    whole = {name: evaluate_task(given, name) for name in task.tasks_for(given)}
    found = {name: {k: number.value for k, number in each.items()} for name, each in whole.items()}
    for name, each in whole.items():
        for number in set(each) - {"passages", "pairs", "p_value", "spread", "largest_class"}:
            if each[number].interval is not None:
                low, high = each[number].interval
                assert low <= each[number].value <= high, (name, number)
    assert set(found) == {"lambada", "blimp", "cola", "sst2", "stsb", "pud", "synonyms"}
    first, drawn = (
        {"stsb": evaluate_task(replace(given, seed=seed), "stsb")["spearman en"].value}
        for seed in (0, 1)
    )
    # a sample that follows the seed
    assert first["stsb"] == whole["stsb"]["spearman en"].value != drawn["stsb"]
    assert found["blimp"]["accuracy"] > 0.45
    assert len(found["blimp"]) == 1 + 67
    assert found["lambada"]["passages"] == 10
    assert set(found["stsb"]) == {"spearman de", "spearman en", "spearman fr"}
    assert set(found["pud"]) == {"ar", "de", "es", "fr", "ru", "zh"}
    places = given.sampled_indices(500)
    assert places == sorted(set(places))
    assert len(places) == 10
    assert places[-1] > 100  # no first items
    assert given.sampled_indices(7) == list(range(7))
    with pytest.raises(BadInput, match="holds no rte"):
        task.tasks_for(given, ["rte"])
    with pytest.raises(BadInput, match="no task 'magic'"):
        task.tasks_for(given, ["magic"])


@pytest.mark.parametrize("read", [read_lambada, read_blimp, read_cola])
def test_absent_files_are_bad_input(read, tmp_path):
    with pytest.raises(BadInput):
        read(tmp_path / "absent")
    with pytest.raises(BadInput, match="one word"):
        lambada(None, None, ["word"])


def test_a_default_tries_what_minutes_have_room_for_and_says_so(monkeypatch, tmp_path):
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=2, n_head=2)
    )
    given = Evaluated(model, None, tmp_path)
    assert task.affordable_items(given, 3, "lambada") > 10_000
    # with its positions
    body = sum(w.numel() for w in model.transformer.h.parameters() if w.ndim > 1) + 16 * 8
    monkeypatch.setattr(task, "MULTIPLICATIONS", 3 * 7 * 100 * (body + 50 * 8))
    assert task.affordable_items(given, 3, "lambada") == 7
    monkeypatch.setattr(task, "MULTIPLICATIONS", 3 * 7 * 100 * body)
    assert task.affordable_items(given, 3, "stsb") == 7  # which reads no logits
