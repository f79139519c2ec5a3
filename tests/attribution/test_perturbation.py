"""Occlusion against its definition, with and without the shared prefix."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from headscan.attribution import (
    AttributionTarget,
    Coalitions,
    Engine,
    TargetStep,
    attribute,
    find_units,
)
from headscan.attribution.engine import plan
from headscan.attribution.faithfulness import (
    Faithfulness,
    FaithfulnessCurve,
    RandomOrders,
    over_predictions,
)
from headscan.attribution.findings import findings
from headscan.attribution.units import Unit
from headscan.text.prompts import read_prompt
from tests.attribution.attribution_cases import IDS, WIPERS, build, family
from tests.reference import attribution as reference


@pytest.mark.parametrize("kind", ["logit", "contrast", "logprob", "all"])
@pytest.mark.parametrize("family", ["gpt2", "llama"])
@pytest.mark.parametrize("substitute", [13, "zero", "remove"])
def test_occlusion_is_its_definition(family, kind, substitute, request):
    lens = request.getfixturevalue(family)
    options = {"against": 4, "token": 9} if kind == "contrast" else {"token": 9}
    found = attribute(
        lens,
        IDS,
        method="occlusion",
        target=kind,
        substitute=substitute,
        faithfulness=False,
        **options,
    )
    embeds = lens.model.get_input_embeddings()(torch.tensor(IDS)).detach()
    vector = {
        "zero": torch.zeros_like(embeds[0]),
        "remove": None,
        13: lens.input_embeddings[13].detach(),
    }[substitute]
    expected = reference.occlusion(lens.model, embeds, vector, len(IDS) - 1, kind, 9, 4)
    np.testing.assert_allclose(found.scores, expected, rtol=1e-4, atol=1e-5)
    assert found.cost.shared_prefix


def test_occlusion_on_a_real_model_is_its_definition(stories):
    ids = stories.tokenizer(WIPERS)["input_ids"]
    found = attribute(
        stories, ids, method="occlusion", substitute="eos", token=426, faithfulness=False
    )
    embeds = stories.input_embeddings[torch.tensor(ids)].detach()
    expected = reference.occlusion(
        stories.model, embeds, stories.input_embeddings[2].detach(), len(ids) - 1, "logit", 426
    )
    np.testing.assert_allclose(found.scores, expected, atol=2e-5 * np.abs(expected).max())


def game(lens, ids, packed=True, rows=None):
    engine = Engine(lens)
    prompt = read_prompt(ids, lens.tokenizer, lens.limits)
    embeds = engine.embed(torch.tensor(ids))
    target = AttributionTarget("logprob", (TargetStep(len(ids) - 1, 9),))
    planned = plan(lens, len(ids), 1)
    planned = planned if rows is None else replace(planned, rows=rows, tokens=rows * len(ids))
    return Coalitions(engine, embeds, find_units(prompt), target, embeds.mean(0), planned, packed)


def test_a_shared_prefix_and_small_batches_change_nothing(llama):
    random = np.random.default_rng(0)
    keep = random.random((40, len(IDS))) < 0.7
    plain, shared, small = (
        game(llama, IDS, packed=p, rows=r) for p, r in ((False, None), (True, None), (True, 3))
    )
    values = plain.values(keep)
    assert not np.allclose(values, values[0])
    for other in (shared, small):
        np.testing.assert_allclose(other.values(keep), values, atol=1e-5)
    assert len(small._passes(small._groups(keep))) > len(shared._passes(shared._groups(keep)))


def test_the_prefix_saves_tokens(llama):
    ids = (IDS * 5)[:60]
    counts = []
    for packed in (False, True):
        one = game(llama, ids, packed=packed, rows=6)
        before = one.engine.tokens_computed
        one.values(one.without_each())
        counts.append(one.engine.tokens_computed - before)
    assert counts[0] == 60 * 60
    assert counts[1] < 0.6 * counts[0]


UNITS = [
    Unit((0,), "a"),
    Unit((1,), "b"),
    Unit((2, 3, 4), "cde"),
    *(Unit((k,), "f") for k in range(5, len(IDS))),
]


def test_units_are_taken_away_together(gpt2, monkeypatch):
    monkeypatch.setattr("headscan.attribution.run.find_units", lambda prompt, units: UNITS)
    found = attribute(gpt2, IDS, method="occlusion", substitute="zero", token=9, faithfulness=False)
    spans = {tuple(span["tokens"]): span["score"] for span in found.document["spans"]}
    embeds = gpt2.input_embeddings[torch.tensor(IDS)].detach()
    changed = embeds.clone()
    changed[2:5] = 0
    with torch.no_grad():
        rows = gpt2.model(inputs_embeds=torch.stack([embeds, changed])).logits[:, -1, 9]
    assert spans[(2, 3, 4)] == pytest.approx(float(rows[0] - rows[1]), abs=1e-5)
    assert len(spans) == len(IDS) - 2


def test_a_continuation_is_occluded_in_one_pass_as_step_by_step(llama):
    lens = build("llama", seed=3)
    lens.tokenizer = type(
        "Bare", (), {"decode": lambda self, ids: f"<{ids[0]}>", "eos_token_id": 1}
    )()
    whole = attribute(lens, IDS[:6], method="occlusion", generate=3, faithfulness=False)
    generated = whole.document["target"]["ids"]
    steps = whole.arrays["scores/occlusion"]
    assert steps.shape == (3, 8)
    for k, token in enumerate(generated):
        alone = attribute(
            lens, (IDS[:6] + generated)[: 6 + k], method="occlusion", faithfulness=False
        )
        assert alone.document["target"]["ids"] == [token]
        np.testing.assert_allclose(steps[k, : 6 + k], alone.scores, atol=1e-4)
        np.testing.assert_allclose(steps[k, 6 + k :], 0, atol=1e-6)


def test_faithfulness_of_a_continuation_has_intervals_over_its_predictions(gpt2):
    """Student's, of numbers that are those of each prediction by itself; of one prediction random
    orders alone have any.
    """
    ids = IDS[:6]
    result = attribute(gpt2, ids, method="occlusion", substitute="mean", generate=4)
    found = result.faithfulness
    said = ids + [step.id for step in result.steps]
    alone = [
        attribute(
            gpt2, said[: 6 + k], method="occlusion", substitute="mean", token=said[6 + k]
        ).faithfulness
        for k in range(4)
    ]
    for name in ("deletion", "insertion"):
        values = np.array([getattr(one, name).area for one in alone])
        reach = 3.182446 * values.std(ddof=1) / 2
        assert getattr(found, name).area == pytest.approx(values.mean(), abs=1e-5)
        interval = (values.mean() - reach, values.mean() + reach)
        assert getattr(found, name).area_interval == pytest.approx(interval, abs=1e-5)
    assert found.deletion.area_interval[0] < found.deletion.area < found.deletion.area_interval[1]
    assert found.gain == pytest.approx(found.random.deletion - found.deletion.area)
    assert (found.no_interval, alone[0].deletion.area_interval) == (None, None)
    assert "too few" in alone[0].no_interval.lower()
    assert (
        alone[0].random.deletion_interval[0]
        < alone[0].random.deletion
        < alone[0].random.deletion_interval[1]
    )


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("qwen3", "packed"),
        ("gpt_neox", "packed"),
        ("opt", None),
        ("gemma2", None),
        ("mistral", None),
        ("bloom", None),
    ],
)
def test_the_short_cut_is_taken_where_it_holds_and_only_there(name, way):
    lens = family(name)
    embeds = lens.model.get_input_embeddings()(torch.tensor(IDS)).detach()
    engine = Engine(lens)
    engine.share(embeds)
    if way == "packed":
        assert engine.packs
    if name in (
        "mistral",
        "bloom",
        "gemma2",
    ):  # a window shorter than the prompt, biases by distance, capped scores
        assert not engine.packs
    found = attribute(lens, IDS, method="occlusion", substitute=13, token=9, faithfulness=False)
    substitute = engine.embed(torch.tensor(13))  # some families scale what the table holds
    expected = reference.occlusion(lens.model, embeds, substitute, len(IDS) - 1, "logit", 9, 4)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found.scores, expected, atol=1e-4 * scale)


def test_a_prompt_longer_than_the_window_leaves_the_short_cut_that_a_shorter_one_took():
    lens = family("mistral")
    lens.model.config.sliding_window = 10
    engine = Engine(lens)
    for length, packs in ((8, True), (9, True), (12, False)):
        engine.share(engine.embed(torch.tensor(IDS[:length])))
        assert engine.packs is packs


def trusted(gain: tuple[float, float], insertion: tuple[float, float]) -> str:
    curve = FaithfulnessCurve([0, 1], [1, 0], 0.5)
    own = Faithfulness(curve, curve, RandomOrders(0.5, 0.5), "zero", 1, 0.0, gain, 0.0, insertion)
    record = SimpleNamespace(method="occlusion", faithfulness=own, completeness=None)
    (found,) = findings([record], "probability")
    return found.name


@pytest.mark.parametrize(
    ("gain", "insertion", "code"),
    [
        ((0.01, 0.3), (-0.1, 0.1), "FAITHFUL"),
        ((0.01, 0.3), (-0.2, -0.1), "UNDECIDED"),
        ((-0.1, 0.02), (-0.1, 0.0), "UNFAITHFUL"),
        ((-0.3, -0.1), (-0.2, -0.1), "UNFAITHFUL"),
        ((-0.1, 0.02), (-0.05, 0.2), "UNDECIDED"),
        ((-0.1, 0.02), (0.01, 0.2), "UNDECIDED"),
        ((-0.1, 0.2), (-0.1, 0.1), "UNDECIDED"),
    ],
)
def test_a_map_is_called_unfaithful_only_where_that_was_seen(gain, insertion, code):
    assert trusted(gain, insertion) == code


def test_intervals_of_areas_stay_in_their_range_and_one_prediction_has_orders_enough_for_an_alarm(
    gpt2,
):
    """19 orders of one prediction: the chance that the map's own is the least of 20 is .05."""
    found = attribute(gpt2, IDS, method="occlusion", substitute="zero").faithfulness
    for low, high in (found.random.deletion_interval, found.random.insertion_interval):
        assert 0 <= low <= high <= 1
    assert over_predictions(np.array([0.0, 0.0, 0.0, 1.0]), (0.0, 1.0))[0] == 0.0
