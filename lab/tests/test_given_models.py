"""Models that are given: which claims they decide, how an experiment is carried over to them, and
what is kept of it.
"""

import gc
import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch
from headscan_lab.ledger.claim import CLAIMS
from headscan_lab.ledger.experiment import ExperimentOutcome
from headscan_lab.ledger.experiments.descents import FEW, START, Recovered
from headscan_lab.ledger.experiments.inversion import Cliff
from headscan_lab.ledger.experiments.readings import READINGS
from headscan_lab.ledger.measurement import share_of
from headscan_lab.ledger.record import kept, tried
from headscan_lab.ledger.stand_ins import TWIN, decides, lens_of, twin_of
from transformers import LlamaConfig, LlamaForCausalLM

from headscan.model import ByteTokenizer, Lens


@pytest.fixture(scope="module")
def llama(tmp_path_factory) -> str:
    """A folder with a Llama of bytes, 32 wide, 4 blocks."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=4,
        num_attention_heads=2,
        max_position_embeddings=64,
        bos_token_id=0,
        eos_token_id=0,
    )
    folder = tmp_path_factory.mktemp("llama")
    LlamaForCausalLM(config).save_pretrained(folder)
    return str(folder)


@pytest.fixture
def read(llama, monkeypatch) -> str:
    lens = lens_of(llama)
    monkeypatch.setattr(lens, "tokenizer", ByteTokenizer())
    return llama


def test_a_given_model_decides_what_is_said_of_its_family(read):
    assert decides("huggyllama/llama-7b, 8-bit", read)
    assert decides("mistralai/Mistral-7B-v0.1, 8-bit", read)
    assert decides("huggyllama/llama-7b, untrained, 8-bit", read)
    for other_models in (
        "gpt2",
        "gpt2, untrained",
        "EleutherAI/gpt-j-6b, 8-bit",
        "larger models, not named",
    ):
        assert not decides(other_models, read)
    assert twin_of(read, "gpt2") is None
    assert tried(CLAIMS["9"], read, 0) == []  # of trained GPT-2


def test_a_slice_is_carried_over_to_the_given_models_width_and_depth(read):
    half = Recovered(at="block.0[:, :, 32:96]").on(read)
    assert half is not None
    assert (half.at, half.model, half.least) == ("block.0[:, :, 8:24]", read, FEW)
    assert Recovered(at="block.2", deep="block.3").on(read) is None  # said of wide models
    assert Recovered(at="block.2").on(read).at == "block.2"
    assert Recovered(at="block.4").on(read) is None  # there is no such block
    assert Recovered(width=256).on(read) is None  # a claim about a width
    assert Recovered(model="llama").on(read).model == TWIN + read
    assert lens_of(TWIN + read, 1, depth=1).depth == 1
    assert Recovered(model="gpt2").on(read) is None


def test_the_descent_for_a_hidden_token_is_told_from_its_start(read):
    (trial,) = tried(
        replace(CLAIMS["72"], experiment=replace(CLAIMS["72"].experiment, steps=2)), read, 0
    )
    assert trial.decides
    assert trial.effect < 0.1
    assert START in trial.why


def test_rogue_share_is_that_of_the_plant(read):
    with torch.no_grad():
        table = lens_of(read).model.model.embed_tokens.weight
        table[:, :3] = 50.0
    share, turned = READINGS["rogue"][0](read, 0)
    assert share > 0.95
    assert turned < 0.7


def test_what_a_model_said_is_kept_and_read_back(read, tmp_path):
    calls = []

    def make():
        calls.append(1)
        return tried(CLAIMS["15"], read, 0)

    first = kept(str(tmp_path), ("claim", "hash"), make)
    assert kept(str(tmp_path), ("claim", "hash"), make) == first
    assert len(calls) == 1
    kept(str(tmp_path), ("claim", "another model's hash"), make)
    assert len(calls) == 2
    assert kept(None, ("claim", "hash"), make) == first
    assert len(calls) == 3
    assert np.isfinite(first[0].effect)


def test_no_cliff_is_told_of_where_the_descent_finds_nothing(read, monkeypatch):
    nothing = ExperimentOutcome(effect=share_of("found", [np.zeros((8, 6))] * 5))
    monkeypatch.setattr(Recovered, "observe", lambda *_: nothing)
    assert Cliff().on(read).observe(0).effect is None


def test_models_of_seeds_that_are_past_free_their_memory(monkeypatch):
    references = []
    real = Lens.random_init

    def random_init(*args, **options):
        lens = real(*args, **options)
        references.append(weakref.ref(lens.model))
        return lens

    monkeypatch.setattr(Lens, "random_init", random_init)
    gc.disable()  # what the parts of a model hold of one another is freed by this alone
    Recovered(model=f"{TWIN}gpt-vanilla", depth=1, steps=2, least=1, search=False).observe(91)
    gc.enable()
    assert len(references) == 5
    assert sum(reference() is not None for reference in references) <= 3
