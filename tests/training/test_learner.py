"""What the Trainer trains: objectives by name, faults of batches, pools and shares."""

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    PreTrainedTokenizerFast,
)

from headscan import BadInput
from headscan.training import (
    OBJECTIVES,
    Learner,
    Masker,
    PackedText,
    ce_loss,
    cwt_loss,
    fit_tokenizer,
    train,
)

SIZE = 40
CONFIG = GPT2Config(
    vocab_size=SIZE, n_embd=8, n_layer=1, n_head=2, n_positions=16, bos_token_id=0, eos_token_id=0
)
COUNTS = torch.arange(1, SIZE + 1)


AIMS = {
    "cwt": OBJECTIVES.build("cwt"),
    **{
        f"cwt {form}": OBJECTIVES.build("cwt", {"form": form})
        for form in ("dense", "chunked", "fused")
    },
    "ce": OBJECTIVES.build("ce"),
    **{f"ce {form}": OBJECTIVES.build("ce", {"projection": form}) for form in ("chunked", "fused")},
    **{name: OBJECTIVES.build(name) for name in OBJECTIVES if name not in ("ce", "cwt")},
}


def _model(name="cwt"):
    torch.manual_seed(0)
    kind = AutoModel if AIMS[name].headless else AutoModelForCausalLM
    return kind.from_config(CONFIG).eval()


def _batch(rows=4, length=10):
    ids = torch.randint(1, SIZE, (rows, length), generator=torch.Generator().manual_seed(1))
    return {"input_ids": ids, "labels": ids}


@pytest.mark.parametrize("name", AIMS)
def test_every_objective_gives_a_gradient_to_the_body(name):
    learner = Learner(_model(name), AIMS[name], counts=COUNTS)
    answer = learner(**_batch())
    answer["loss"].backward()
    assert torch.isfinite(answer["loss"])
    assert answer["targets"] == 36
    weight = learner.model.get_input_embeddings().weight
    assert weight.grad.abs().sum() > 0
    assert not weight.grad.is_sparse


@pytest.mark.parametrize("name", AIMS)
def test_a_batch_without_targets_gives_zero_and_no_nan(name):
    learner = Learner(_model(name), AIMS[name], counts=COUNTS)
    batch = _batch() | {"labels": torch.full((4, 10), -100)}
    loss = learner(**batch)["loss"]
    loss.backward()
    assert loss == 0
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in learner.parameters())


def test_the_losses_are_those_of_the_functions():
    batch = _batch()
    for name in ("cwt", "cwt dense", "cwt chunked", "ce", "ce chunked"):
        model = _model(name)
        body = model if AIMS[name].headless else model.transformer
        rows = body(batch["input_ids"]).last_hidden_state[:, :-1].flatten(0, 1)
        targets = batch["labels"][:, 1:].flatten()
        table = model.get_input_embeddings().weight
        want = (
            cwt_loss(rows, table, targets)
            if name.startswith("cwt")
            else ce_loss(rows, table, targets)
        )
        assert Learner(model, AIMS[name])(**batch)["loss"].item() == pytest.approx(
            want.item(), rel=1e-5
        )


def test_pool_and_share_replace_the_batch_and_the_mean():
    learner = Learner(_model(), "cwt")
    batch = _batch()
    at_once = learner(**batch)["loss"]
    pool = batch["labels"][:, 1:].flatten()
    halves = [
        {key: value[:1] for key, value in batch.items()},
        {key: value[1:4] for key, value in batch.items()},
    ]
    parts = [
        learner(**half, pool=pool, share=torch.tensor(1 / len(pool)))["loss"] for half in halves
    ]
    assert sum(parts).item() == pytest.approx(at_once.item(), rel=1e-5)


def test_a_masked_model_projects_through_its_own_transform():
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=SIZE,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
    )
    model = BertForMaskedLM(config).eval()
    ids = _batch()["input_ids"]
    labels = ids.masked_fill(
        torch.rand(ids.shape, generator=torch.Generator().manual_seed(3)) < 0.8, -100
    )
    want = model(ids, labels=labels).loss.item()
    for name in ("ce", "ce chunked"):
        assert Learner(model, AIMS[name], masked=True)(input_ids=ids, labels=labels)[
            "loss"
        ].item() == pytest.approx(want, rel=1e-5)


def test_faults_are_named():
    with pytest.raises(BadInput, match="no head"):
        Learner(_model("cwt"), "ce")
    with pytest.raises(BadInput, match="token counts"):
        Learner(_model("ce"), "ce:head_bias=unigram")
    with pytest.raises(BadInput, match="outside the vocabulary"):
        Learner(_model(), "cwt")(
            input_ids=torch.ones(1, 3, dtype=torch.long), labels=torch.tensor([[1, 2, SIZE]])
        )
    with pytest.raises(BadInput, match="mask token"):
        Masker(fit_tokenizer(["a b"], 260))


def test_a_tokenizer_that_does_not_know_the_text_is_refused(tmp_path):
    word_level = Tokenizer(models.WordLevel({"[UNK]": 0, "the": 1}, unk_token="[UNK]"))
    word_level.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=word_level, unk_token="[UNK]")
    text = ["the cat sat on the mat"] * 100
    with pytest.raises(BadInput, match="does not know 67 %"):
        train("gpt", text, out=tmp_path, tokenizer=tokenizer, steps=1, context=8)


def test_fitting_is_deterministic_and_special_tokens_are_kept_from_the_masks():
    text = ["ba de fi go", "ku la ma"] * 20
    first, second = (fit_tokenizer(text, 280, masked=True) for _ in range(2))
    assert first.get_vocab() == second.get_vocab()
    rows = np.array([[*first.encode("ba de fi go"), first.eos_token_id]])
    batch = Masker(first, share=0.9)([PackedText(rows)[0]])
    again = Masker(first, share=0.9, seed=0)([PackedText(rows)[0]])
    other_seed = Masker(first, share=0.9, seed=1)([PackedText(rows)[0]])
    assert torch.equal(batch["labels"], again["labels"])
    assert not torch.equal(batch["input_ids"], other_seed["input_ids"])
    assert batch["labels"][0, -1] == -100
    assert batch["input_ids"][0, -1] == first.eos_token_id
