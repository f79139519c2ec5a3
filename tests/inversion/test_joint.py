"""Joint search: hidden tokens, encoders, next-token distributions, pooled embeddings; and
gradients.
"""

import pytest
import torch
from transformers import T5Config, T5ForConditionalGeneration

from headscan.inversion import Joint, invert
from headscan.inversion.joint_search import JointSearch, joint
from headscan.inversion.observation import EmbeddingSlice, NextTokenSlice
from headscan.leaks.gradient_span import gradients_of, tokens_in_gradient
from headscan.model import Lens
from headscan.model.slicing import Slice
from headscan.run import BadInput
from tests.inversion.conftest import build

QUICK = JointSearch(restarts=2, steps=60)


def test_encoders_are_inverted_jointly(bert, ids):
    cut = Slice(sites=("block.1",)).on(bert)
    for row in ids[:2]:
        found = joint(cut, cut.run(row[None])[0], 6, QUICK)
        assert found.tokens == row.tolist()
        assert found.residual < 1e-5
        assert found.compared is not None
        assert not any(one.within for one in found.compared)


def test_the_texts_to_run_are_told_from_the_start(bert, ids):
    """The total counts the texts of the first fit and of the comparison; a guess that gives the
    outputs ends the fits.
    """
    cut = Slice(sites=("block.1",)).on(bert)
    told = list[tuple[str, int, int, str]]()
    found = joint(cut, cut.run(ids[:1])[0], 6, QUICK, progress=lambda *entry: told.append(entry))
    assert found.evaluations == 1
    assert {entry[0] for entry in told} == {"joint search · fit 1", "joint search · candidates"}
    assert {entry[2] for entry in told} == {512 // 6 + 6 * cut.vocabulary_size}
    assert 0.95 * told[0][2] < told[-1][1] <= told[0][2]


def test_hidden_tokens_are_found_from_the_outputs_after_them(gpt2, llama, ids):
    for lens in (gpt2, llama):
        cut = Slice(tokens="1:").on(lens)
        found = joint(cut, cut.run(ids[:1, :4])[0], 4, QUICK)
        assert found.tokens == ids[0, :4].tolist()


def test_known_tokens_stay(bert, ids):
    cut = Slice().on(bert)
    found = joint(cut, cut.run(ids[:1])[0], 6, QUICK, known={0: int(ids[0, 0]), 5: int(ids[0, 5])})
    assert found.tokens == ids[0].tolist()


def test_a_budget_is_kept(bert, ids):
    cut = Slice(pool="mean").on(bert)
    search = JointSearch(restarts=1, steps=1, budget=50)
    found = joint(cut, cut.run(ids[:1])[0], 6, search)
    assert found.evaluations <= 50 + 2


def test_the_next_token_distribution_gives_short_prompts_away(gpt2):
    cut = NextTokenSlice(gpt2)
    row = torch.tensor([31, 77])
    target = cut.run(row[None])[0]
    assert target.shape == (1, 120)
    assert abs(float(target.exp().sum()) - 1) < 1e-5
    assert joint(cut, target, 2, QUICK).tokens == row.tolist()


def test_a_pooled_embedding_gives_short_texts_away(bert):
    cut = EmbeddingSlice(bert)
    row = torch.tensor([8, 90, 41])
    target = cut.run(row[None])[0]
    assert abs(float(target.norm()) - 1) < 1e-5
    assert joint(cut, target, 3, QUICK).tokens == row.tolist()


def test_a_gradient_shows_which_tokens_were_in_the_batch():
    for kind in ("gpt2", "llama"):
        lens = build(kind, vocabulary=200, width=64, depth=1)
        rows = torch.randint(0, 200, (2, 5), generator=torch.Generator().manual_seed(2))
        found = tokens_in_gradient(lens, gradients_of(lens, rows)[0], 5)
        # The last token of a row is predicted but predicts nothing, yet its keys and values are
        # never used either.
        used = rows[:, :-1]
        if kind == "gpt2":
            for position in range(4):
                assert set(found.tokens[position]) == set(used[:, position].tolist())
        else:
            assert set(found.tokens[-1]) == set(used.flatten().tolist())
        assert found.rank <= 10 < found.width
        assert found.nearest_other > 0.05


@pytest.mark.parametrize("at", ["encoder.block.1", "decoder.block.1"])
def test_an_encoder_decoder_gives_its_prompt_back(at):
    """The decoder reads the prompt, too, one token later."""
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=100,
        d_model=32,
        d_kv=16,
        d_ff=64,
        num_layers=2,
        num_heads=2,
        decoder_start_token_id=0,
    )
    lens = Lens(T5ForConditionalGeneration(config), name="t5")
    [entry] = invert(lens, [7, 13, 29, 40], at=at, method=Joint(restarts=2, steps=60)).prompts
    assert entry.recovered == [7, 13, 29, 40]
    assert (
        entry.verdict == "recovered, unique among those tried"
    )  # prompts of two other tokens were not run
    with pytest.raises(BadInput, match="use the method 'joint'"):
        invert(lens, [7, 13], at=at, method="exact")
