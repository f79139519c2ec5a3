"""Lenses: exact where they must be, and told apart from another token's reading."""

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from headscan import Lens, scan
from headscan.measures.lenses import LensHead, read
from headscan.model import ByteTokenizer
from tests.model.tiny import family

TEXT = "Once upon a time there was a cone, and it was very narrow. " * 20


def lens(name: str = "GPT-2") -> Lens:
    return Lens(family(name), name=name)


@pytest.mark.parametrize("name", ["GPT-2", "Llama", "GPT-NeoX, Pythia (parallel)", "Mamba"])
def test_the_readout_of_the_last_block_is_the_model_s_own_output(name):
    model = lens(name)
    ids = torch.randint(3, 97, (2, 9))
    readout = LensHead.of(model)
    states = model.run(ids, sites=[readout.last, "head"])
    assert torch.allclose(
        readout(states[readout.last]), states["head"].float().log_softmax(-1), atol=1e-4
    )


def test_the_sums_are_those_of_scipy_token_by_token():
    from scipy.stats import entropy

    model = lens()
    readout = LensHead.of(model)
    states = model.run(torch.randint(3, 97, (2, 9)), sites=["block.0", readout.last])
    final = states[readout.last].flatten(0, 1)
    early = states["block.0"].flatten(0, 1)
    following = torch.tensor([*range(3, 11), -1] * 2)
    tally = read(readout, final, early, following)
    p, q = (readout(x).double().exp().numpy() for x in (final, early))
    assert float(tally["kl"]) == pytest.approx(
        sum(entropy(a, b) for a, b in zip(p, q, strict=True)), rel=1e-4
    )
    shifted = np.roll(q, 9, axis=0)
    assert float(tally["kl_shuffled"]) == pytest.approx(
        sum(entropy(a, b) for a, b in zip(p, shifted, strict=True)), rel=1e-4
    )
    assert float(tally["agree"]) == (p.argmax(1) == q.argmax(1)).sum()
    losses = [-np.log(q[i, k]) for i, k in enumerate(following.tolist()) if k >= 0]
    assert (float(tally["loss"]), float(tally["predicted"])) == (
        pytest.approx(sum(losses), rel=1e-4),
        16,
    )


def test_in_a_scan_it_is_exact_at_the_end_and_no_other_token_is():
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=256, n_positions=64, n_embd=16, n_layer=2, n_head=2, initializer_range=0.3
    )
    model = Lens(GPT2LMHeadModel(config).eval(), ByteTokenizer(), name="tiny")
    rows = scan(model, TEXT, context=32, max_tokens=1024, measures="logit_lens").tables[
        "logit_lens"
    ]
    assert [row["site"] for row in rows] == ["embedding", "block.0", "block.1"]
    assert rows[-1]["kl"] < 1e-6
    assert rows[-1]["agreement"] == 1
    for row in rows:
        assert row["kl_shuffled"] > row["kl"]
        assert row.interval("kl") is not None
    assert rows[0]["kl"] > 0.01


def test_a_model_that_predicts_no_next_token_says_why():
    model = Lens(family("Bert (masked LM)"), ByteTokenizer(), name="bert")
    # the family's vocabulary is 97
    model.tokenizer.encode = lambda text, **_: [3 + ord(c) % 90 for c in text]
    result = scan(model, [TEXT], context=8, max_tokens=64, measures="logit_lens")
    assert result.tables["logit_lens"] == []
    assert "no prediction of the next" in result.probes[0].notes[0]
