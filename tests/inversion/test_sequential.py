"""Inversion of one token after another by gradients, and the parameters of the published losses."""

from dataclasses import replace

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from headscan import BadInput
from headscan.inversion import Descent, descend, invert
from headscan.inversion.continuous import loss_of
from headscan.inversion.sequential import one_after_another
from headscan.model import Lens
from headscan.model.slicing import Slice


@pytest.fixture(scope="module")
def lens():
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=60,
        n_positions=16,
        n_embd=32,
        n_layer=1,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    return Lens(GPT2LMHeadModel(config).eval())


PROMPT = (7, 3, 9, 41)


def test_with_the_prefix_a_prompt_is_found(lens):
    behind = invert(lens, list(PROMPT), method="sequential:steps=80")
    assert behind.method == "sequential"
    assert behind.token_accuracy == 1.0
    assert behind.verdict == "recovered and unique"


def test_as_published_each_token_is_descended_on_by_itself(lens):
    cut = Slice().on(lens)
    target = cut.run([list(PROMPT)])
    settings = Descent(steps=20, seed=5)
    alone = one_after_another(cut, target, 4, settings, prefix=False)
    for position in range(4):
        own = replace(settings, seed=5 + position)
        by_itself = descend(cut, target[:, position : position + 1], 1, own)
        assert alone[0, position] == by_itself.tokens[0, 0]
    result = invert(lens, list(PROMPT), method="sequential:prefix=false,steps=20")
    assert result.parameters["prefix"] is False


def test_the_target_of_logits_ten(lens):
    found = {}
    for scale in (1, 10):
        result = invert(lens, list(PROMPT), method=f"direct:scale={scale},steps=150")
        found[scale] = result.token_accuracy
    assert found[1] == 1.0
    assert found[10] >= 0.75


def test_the_combined_loss_has_two_weights(lens):
    outputs = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(1))
    targets = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(2))
    combined = loss_of("linear", outputs, targets, alpha=2.0, beta=0.5)
    parts = 2 * loss_of("cosine", outputs, targets) + 0.5 * loss_of("l1", outputs, targets)
    assert torch.allclose(combined, parts)
    result = invert(lens, list(PROMPT), method="indirect:loss=linear,alpha=1,beta=0.01,steps=80")
    assert result.token_accuracy == 1.0


def test_answers_may_be_decoded_with_another_table(lens):
    at = "block.0 embedding=random:0"
    own = invert(lens, list(PROMPT), method="indirect:steps=80", at=at)
    other = invert(lens, list(PROMPT), method="indirect:steps=80,decode_with=model", at=at)
    assert own.token_accuracy == 1.0
    assert other.token_accuracy < 0.6


@pytest.mark.parametrize(
    ("method", "at", "message"),
    [
        ("indirect:alpha=2", "block.0", "alpha and beta weight"),
        ("sequential", "block.0[:, 1:, :]", "output of every position"),
        ("sequential", "block.0 causal=false", "needs a causal slice"),
    ],
)
def test_bad_input(lens, method, at, message):
    with pytest.raises(BadInput, match=message):
        invert(lens, list(PROMPT), method=method, at=at)


def test_leaked_states_have_no_scale(lens):
    leak = lens.run([list(PROMPT)], sites="block.0")["block.0"][0]
    with pytest.raises(BadInput, match="scale belongs to --prompt"):
        invert(lens, states=leak, method="direct:scale=10")
