"""Fine-tuning on labelled sentences: it learns what a frozen body does not say, and leaves the
model alone.
"""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from headscan_lab.evaluation.finetuning import finetuned
from headscan_lab.evaluation.sentence_tasks import Labelled
from headscan_lab.evaluation.task import TASKS, Evaluated, tasks_for
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
    before = [one.clone() for one in model.parameters()]
    given = Evaluated(model, ByteTokenizer(), tmp_path)
    train = Labelled(*_sentences(96, 0))
    test = Labelled(*_sentences(64, 1))

    def values(train):
        numbers = finetuned(given, train, test, epochs=8, rate=1e-2, batch=8)
        return {name: number.value for name, number in numbers.items()}

    found = values(train)
    assert found["finetuned_accuracy"] > 0.9
    assert found["finetuned_on"] == 96
    assert 0.5 <= found["largest_class"] < 0.7
    assert all(
        torch.equal(one, other) for one, other in zip(model.parameters(), before, strict=True)
    )
    assert values(train) == found
    shuffled = replace(train, labels=np.random.default_rng(0).permutation(train.labels))
    assert values(shuffled)["finetuned_accuracy"] < 0.8
    with pytest.raises(BadInput, match="two classes"):
        finetuned(given, replace(train, labels=np.zeros(96, dtype=np.int64)), test)
    (tmp_path / "sst2").mkdir()
    for part, data in (("train", train), ("dev", test)):
        pairs = zip(data.sentences, data.labels, strict=True)
        lines = [f"{label} {text}" for text, label in pairs]
        (tmp_path / "sst2" / f"stsa.binary.{part}").write_text("\n".join(lines))
    assert "sst2-finetuned" not in tasks_for(given)  # it is done only where it is named
    assert TASKS["sst2-finetuned"]().numbers(given)["finetuned_on"].value == 96


def test_pairs_are_fine_tuned_as_one_text_by_language(tmp_path):
    assert {"mrpc-finetuned", "mnli-finetuned", "xnli-finetuned"} <= set(TASKS)
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=260,
        n_embd=16,
        n_layer=1,
        n_head=2,
        n_positions=32,
        bos_token_id=0,
        eos_token_id=0,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    given = Evaluated(GPT2LMHeadModel(config).eval(), ByteTokenizer(), tmp_path)
    sentences, labels = _sentences(40, 0)
    folder = tmp_path / "xnli"
    folder.mkdir()
    rows = [
        f"{'en' if index % 2 else 'de'}\t{text}\t{text[::-1]}\t{label}"
        for index, (text, label) in enumerate(zip(sentences, labels, strict=True))
    ]
    table = "\n".join(["language\tsentence1\tsentence2\tlabel", *rows])
    for name in ("train.tsv", "xnli.test.tsv"):
        (folder / name).write_text(table)
    found = TASKS["xnli-finetuned"]().numbers(given)
    assert found["finetuned_on"].value == 40
    assert {"finetuned_accuracy de", "finetuned_accuracy en"} <= set(found)
