"""Fine-tuning on labelled sentences: it learns what a frozen body does not say, and leaves the
model alone.
"""

import random

import numpy as np
import pytest
import torch
from headscan_lab.evaluation.task import TASKS, Evaluated, tasks_for
from headscan_lab.evaluation.tasks import finetuned
from transformers import GPT2Config, GPT2LMHeadModel

from headscan import BadInput
from headscan.model import ByteTokenizer


def _sentences(count, seed):
    draw = random.Random(seed)
    labels = [draw.randrange(2) for _ in range(count)]
    return ["".join(draw.choices("xyz", k=6)) + "ab"[label] for label in labels], np.array(labels)


def test_it_learns_the_classes_and_leaves_the_model_alone(tmp_path):
    torch.manual_seed(0)
    shape = {
        "vocab_size": 260,
        "n_embd": 16,
        "n_layer": 1,
        "n_head": 2,
        "n_positions": 16,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    model = GPT2LMHeadModel(
        GPT2Config(**shape, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    ).eval()
    weights_before = [parameter.clone() for parameter in model.parameters()]
    evaluated = Evaluated(model, ByteTokenizer(), tmp_path)
    train = _sentences(96, 0)
    test = _sentences(64, 1)
    scores = finetuned(evaluated, train, test, epochs=8, rate=1e-2, batch=8)
    assert scores["finetuned_accuracy"] > 0.9
    assert scores["finetuned_on"] == 96
    assert 0.5 <= scores["largest_class"] < 0.7
    assert all(
        torch.equal(parameter, weight)
        for parameter, weight in zip(model.parameters(), weights_before, strict=True)
    )
    assert finetuned(evaluated, train, test, epochs=8, rate=1e-2, batch=8) == scores
    shuffled = (train[0], np.random.default_rng(0).permutation(train[1]))
    assert (
        finetuned(evaluated, shuffled, test, epochs=8, rate=1e-2, batch=8)["finetuned_accuracy"]
        < 0.8
    )
    with pytest.raises(BadInput, match="two classes"):
        finetuned(evaluated, (train[0], np.zeros(96, dtype=np.int64)), test)
    (tmp_path / "sst2").mkdir()
    for part, (texts, labels) in (("train", train), ("dev", test)):
        lines = [f"{label} {text}" for text, label in zip(texts, labels, strict=True)]
        (tmp_path / "sst2" / f"stsa.binary.{part}").write_text("\n".join(lines))
    assert "sst2-finetuned" not in tasks_for(evaluated)  # it is done only where it is named
    assert TASKS["sst2-finetuned"]().scores(evaluated)["finetuned_on"] == 96
