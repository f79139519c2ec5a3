"""Isotropy in the loss: its value, how it adds up over micro-batches, and what it does to
a model.
"""

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForCausalLM, GPT2Config

from headscan import BadInput
from headscan.training import Learner, LossInputs, recipe_of, train
from headscan.training.objective import parse_regularisers, penalty_of

CONFIG = GPT2Config(
    vocab_size=40, n_embd=8, n_layer=1, n_head=2, n_positions=16, bos_token_id=0, eos_token_id=0
)


def _model(kind=AutoModel, **changes):
    torch.manual_seed(0)
    config = GPT2Config(**(CONFIG.to_dict() | changes))
    return kind.from_config(config).eval()


def _mean_cosine(rows):
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = unit @ unit.T
    return (cosines.sum() - np.trace(cosines)) / (len(rows) * (len(rows) - 1))


def test_each_term_is_what_its_name_says():
    headless = _model()
    vanilla = _model(AutoModelForCausalLM, tie_word_embeddings=False)
    states = torch.randn(30, 8, generator=torch.Generator().manual_seed(1)) + 1
    table = headless.get_input_embeddings().weight.detach().double().numpy()
    head = vanilla.get_output_embeddings().weight.detach().double().numpy()
    rows = states.double().numpy()
    for model, terms, want in (
        (headless, {"cosine": 2.0}, 2 * _mean_cosine(table)),
        (vanilla, {"cosine": 2.0}, 2 * _mean_cosine(head)),
        (headless, {"cosine-states": 0.5}, 0.5 * _mean_cosine(rows)),
        (
            headless,
            {"cosine": 1.0, "cosine-states": -1.0},
            _mean_cosine(table) - _mean_cosine(rows),
        ),
    ):
        inputs = LossInputs(model, None, states[None], None, states, None, None, "mean")
        assert penalty_of(terms, inputs).item() == pytest.approx(want, abs=1e-6)


@pytest.mark.parametrize("terms", ["cosine:1", "cosine-states:1"])
def test_gradient_reaches_the_body_and_few_states_do_no_harm(terms):
    learner = Learner(_model(), "cwt", regulariser=terms)
    ids = torch.randint(1, 40, (2, 8), generator=torch.Generator().manual_seed(0))
    plain = Learner(_model(), "cwt")(ids, ids)
    answer = learner(ids, ids)
    assert answer["loss"].item() == pytest.approx(
        plain["loss"].item() + answer["penalty"].item(), abs=1e-6
    )
    answer["loss"].backward()
    assert all(
        torch.isfinite(p.grad).all() for p in learner.model.parameters() if p.grad is not None
    )
    for length in (1, 2):  # no state, one state
        assert torch.isfinite(learner(ids[:1, :length], ids[:1, :length])["loss"])


def test_micro_batches_add_up_to_the_mean_over_targets():
    learner = Learner(_model(), "cwt", regulariser="cosine:3")
    ids = torch.randint(1, 40, (2, 8), generator=torch.Generator().manual_seed(0))
    parts = [(ids[:1], ids[:1]), (ids[1:, :4], ids[1:, :4])]
    share = torch.tensor(1 / (7 + 3))
    with_penalty = sum(learner(*part, share=share)["loss"].item() for part in parts)
    without = sum(Learner(_model(), "cwt")(*part, share=share)["loss"].item() for part in parts)
    table = learner.model.get_input_embeddings().weight.detach().numpy()
    assert with_penalty - without == pytest.approx(3 * _mean_cosine(table), abs=1e-5)


def test_training_takes_it_and_the_states_spread(story_file, tmp_path):
    options = {
        "steps": 30,
        "batch": 4,
        "context": 16,
        "vocabulary": 300,
        "trainer": {"logging_steps": 5, "save_strategy": "no"},
    }
    options["geometry_every"] = 30  # at both ends
    plan = recipe_of("gpt").but(rate=2e-3, warmup=2)
    cosine = {}
    for terms in (None, "cosine-states:2"):
        result = train(
            plan,
            str(story_file),
            out=tmp_path / str(terms),
            objective="ce",
            regulariser=terms,
            **options,
        )
        cosine[terms] = result.scan[-1].site("final_norm").number("average_cosine")
        assert (result.curve[-1].penalty is not None) == (terms is not None)
        assert ("penalty at the end" in result.page()) == (terms is not None)
    assert result.curve[-1].penalty < result.curve[0].penalty
    assert abs(cosine["cosine-states:2"]) < cosine[None] / 2


@pytest.mark.parametrize(
    "text", ["cosine", "cosine:x", "cosine:nan", "sine:1", "cosine:1,cosine:2"]
)
def test_bad_terms_in_one_sentence(text):
    with pytest.raises(BadInput):
        Learner(_model(), "cwt", regulariser=text)
    assert parse_regularisers(None) == {}
