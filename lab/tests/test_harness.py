"""lm-evaluation-harness on a task of two items, whose data are a local file."""

import json
import math
import sys

import numpy as np
import pytest
import torch
from headscan_lab.evaluation.harness import harness
from headscan_lab.evaluation.likelihood import log_likelihood
from transformers import AutoModel, GPT2Config, GPT2LMHeadModel

from headscan import BadInput
from headscan.training import fit_tokenizer, perplexity

CONFIG = GPT2Config(
    vocab_size=300, n_embd=16, n_layer=1, n_head=2, n_positions=64, bos_token_id=0, eos_token_id=0
)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return GPT2LMHeadModel(CONFIG).eval()


@pytest.fixture(scope="module")
def tokenizer(story):
    return fit_tokenizer([story], 300)


def test_without_the_harness_and_without_a_head_it_is_said_so(model, tokenizer, monkeypatch):
    with pytest.raises(BadInput, match="recover one first"):
        harness(AutoModel.from_config(CONFIG), tokenizer, ["lambada_openai"])
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    with pytest.raises(BadInput, match=r"pip install 'headscan\[eval\]'"):
        harness(model, tokenizer, ["lambada_openai"])


def test_likelihoods_and_bits_a_byte_are_the_harness_s_item_by_item(model, tokenizer, story):
    """Also of what ends in spaces, is given nothing, or is longer than the model's context."""
    lm = pytest.importorskip(
        "lm_eval.models.huggingface", reason="lm-evaluation-harness is not installed (extra 'eval')"
    )
    from lm_eval.api.instance import Instance

    harness_model = lm.HFLM(pretrained=model, tokenizer=tokenizer, batch_size=4, max_length=64)
    text_words = story.split()
    pairs = []
    for k in range(0, 90, 9):
        context = " ".join(text_words[k : k + 9]) + " " * (k % 3)
        space = " " if k % 3 == 0 else ""
        pairs.append((context, space + text_words[k + 9]))
    pairs += [("", story[:60]), (story[:900], " ba")]
    expected = harness_model.loglikelihood(
        [Instance("loglikelihood", {}, pair, k) for k, pair in enumerate(pairs)], disable_tqdm=True
    )
    scores, greedy = log_likelihood(model, tokenizer, pairs, context=64)
    np.testing.assert_allclose(scores, [score for score, _ in expected], rtol=1e-5)
    assert greedy.tolist() == [is_greedy for _, is_greedy in expected]
    (rolled,) = harness_model.loglikelihood_rolling(
        [Instance("loglikelihood_rolling", {}, (story[:80],), 0)], disable_tqdm=True
    )
    ids = np.array([[harness_model.prefix_token_id, *harness_model.tok_encode(story[:80])]])
    assert perplexity(model, ids, tokenizer).bits_per_byte == pytest.approx(
        -rolled / math.log(2) / 80, rel=1e-5
    )


def test_the_harness_judges_by_the_same_likelihoods(model, tokenizer, tmp_path):
    tasks = pytest.importorskip(
        "lm_eval.tasks", reason="lm-evaluation-harness is not installed (extra 'eval')"
    )
    items = [
        {"given": "ba de fi", "choices": [" go ku", " la"]},
        {"given": "ku la", "choices": [" ba", " fi fi fi"]},
    ]
    scores = [
        log_likelihood(model, tokenizer, [(item["given"], choice) for choice in item["choices"]])[0]
        for item in items
    ]
    for item, score in zip(
        items, scores, strict=True
    ):  # right by the model's own account, in the first only
        item["answer"] = int(score.argmax()) if item is items[0] else int(score.argmin())
    data = tmp_path / "items.jsonl"
    data.write_text("".join(json.dumps(item) + "\n" for item in items))
    (tmp_path / "tiny.yaml").write_text(
        "task: headscan_tiny\ndataset_path: json\ndataset_kwargs:\n  data_files:\n    test: "
        f"{data}\n"
        "test_split: test\noutput_type: multiple_choice\ndoc_to_text: "
        "'{{given}}'\ndoc_to_choice: '{{choices}}'\n"
        "doc_to_target: answer\ntarget_delimiter: ''\nmetric_list:\n  - metric: acc\n"
    )
    manager = tasks.TaskManager(include_path=str(tmp_path))
    results = harness(model, tokenizer, ["headscan_tiny"], task_manager=manager, bootstrap_iters=0)
    assert results["headscan_tiny"]["acc"] == 0.5
    with pytest.raises(BadInput, match="has no task no_such_task"):
        harness(model, tokenizer, ["no_such_task"], task_manager=manager)
