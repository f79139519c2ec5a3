"""Each condition comes out both ways, from rows as a scan writes them."""

import math
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from headscan.diagnosis import (
    CONDITIONS,
    Grid,
    LeakedBits,
    ModelEvidence,
    PromptRead,
    Seen,
    TokenFlow,
    TriedRemedies,
    condition,
)
from headscan.diagnosis.conditions.cause import vocabulary_out_of_order
from headscan.diagnosis.evidence import BlockRemoved, EmbeddingScale, EqualRows
from headscan.diagnosis.measurements import left_out
from headscan.diagnosis.run import judged
from headscan.diagnosis.summary import ordered
from headscan.diagnosis.weights import grid_of, levels, vocabulary_order
from headscan.run import BadInput, ModelRecord, Row, TextRecord

ROOT = Path(__file__).parents[2]


def site(name: str, **options: object) -> Row:
    healthy = {
        "model": "m",
        "site": name,
        "tokens": 1000,
        "width": 64,
        "average_cosine_without_sinks": 0.1,
        "average_cosine_without_sinks_interval": [0.05, 0.15],
        "participation_ratio_without_sinks": 20.0,
        "sinks": 1,
        "sink_energy": 0.01,
        "rogue_share": 0.0,
        "rogue_coordinates": [],
    }
    return Row(healthy, **options)


def loss(**options: object) -> Row:
    return Row(
        {
            "loss": 2.0,
            "loss_interval": [1.9, 2.1],
            "best_loss": options.get("loss", 2.0),
            "counting_loss": 5.0,
            "best_scale": 1.1,
            "best_scale_interval": [0.95, 1.2],
        }
        | options
    )


def tried(gain: float, low: float, high: float) -> list[Row]:
    gains = {"recall_at_1_gain": gain, "recall_at_1_gain_interval": [low, high]}
    return [
        Row(remedy="none", recall_at_1=0.2),
        Row(gains, remedy="centre", recall_at_1=0.2 + gain),
    ]


HEALTHY = ModelEvidence(
    model="m",
    record=None,
    text=None,
    sites=[site("block.0"), site("block.1")],
    loss=loss(),
    common=[Row(site="final_norm", cosine=0.1, cosine_after=0.0)],
    grid=Grid(levels=64, groups=100, coarsest="w", coarsest_levels=60),
    read=PromptRead(
        site="block.0",
        prompts=1,
        tokens=12,
        recovered=0.1,
        interval=(0, 0.3),
        verdict="not recovered",
        seconds=1,
    ),
    bits=LeakedBits(
        site="block.0",
        noise=0.8,
        tokens=11,
        prior_bits=4.0,
        lower=0.5,
        upper=1.0,
        interval=(0.3, 1.2),
        candidates=64,
        guessed=0.2,
        named=0.3,
    ),
    flow=TokenFlow(site="block.1", prompts=3, length=12, heard=0.2, interval=(0.1, 0.3), null=0.1),
    removed=[BlockRemoved(site="block.0", tokens=2048, change=0.3, interval=(0.2, 0.4), loss=2.0)],
    order=20.0,
    later=0.0,
    repeat=0.0,
    equal_rows=EqualRows(tokens=100, equal=0, examples=[]),
    scale=EmbeddingScale(factors=[0.5, 1.0], losses=[2.5, 2.0], interval=(0.0, 0.0), tokens=512),
    cure=TriedRemedies(
        site="final_norm", length=16, fitted=50, queries=50, rows=tried(0.0, -0.02, 0.01)
    ),
)
UNTOLD = replace(HEALTHY, loss=None, removed=[])  # no loss says that the model predicts well
ILL = {
    "HS205": {"text": TextRecord(source="x", tokens=1024, windows=8, unknown=553)},
    "HS101": {
        "sites": [
            site("block.0"),
            site(
                "block.1",
                average_cosine_without_sinks=0.9,
                average_cosine_without_sinks_interval=[0.85, 0.95],
            ),
        ]
    },
    "HS102": {
        "sites": [
            site(
                "block.0",
                average_cosine_without_sinks=0.7,
                rogue_share=0.9,
                rogue_coordinates=[7, 9],
            ),
            site(
                "block.1", average_cosine_without_sinks=0.3, rogue_share=0.99, rogue_coordinates=[7]
            ),
        ]
    },
    "HS103": {"sites": [site("block.0", participation_ratio_without_sinks=1.4), site("block.1")]},
    "HS104": {"sites": [site("block.0", sink_energy=0.97), site("block.1")]},
    "HS201": {"loss": loss(loss=9.0, loss_interval=[8.0, 10.0])},
    "HS202": {"loss": loss(best_scale=0.25, best_scale_interval=[0.2, 0.3])},
    "HS207": {"removed": [replace(HEALTHY.removed[0], change=-0.2, interval=(-0.3, -0.1))]},
    "HS206": {"order": 0.5},
    "HS208": {"later": 0.2},
    "HS209": {"repeat": 0.2},
    "HS218": {"equal_rows": EqualRows(tokens=100, equal=60, examples=[3, 4])},
    "HS219": {
        "scale": EmbeddingScale(
            factors=[0.5, 1.0], losses=[1.5, 2.0], interval=(0.4, 0.6), tokens=512
        )
    },
    "HS203": {"grid": Grid(levels=64, groups=100, coarsest="w", coarsest_levels=15)},
    "HS301": {"read": replace(HEALTHY.read, recovered=1.0)},
    "HS302": {"bits": replace(HEALTHY.bits, lower=3.0, upper=3.5, interval=(2.5, 3.8))},
    "HS303": {"flow": replace(HEALTHY.flow, heard=1e-5, interval=(0.0, 1e-4))},
    "HS402": {"cure": replace(HEALTHY.cure, rows=tried(0.1, 0.04, 0.16))},
    "HS401": {"common": [Row(site="final_norm", cosine=0.6, cosine_after=0.001)]},
}


def present(evidence: ModelEvidence, earlier: list[ModelEvidence] = ()) -> set[str]:
    return {
        observation.code
        for observation in judged(evidence, list(earlier)).observations
        if observation.present
    }


def test_a_healthy_model_has_none():
    assert present(HEALTHY) == set()
    assert (
        judged(HEALTHY, [])
        .summary[-1]
        .startswith("No alarm: none of the 13 alarms checked is raised; all ")
    )


def test_what_brings_others_about_is_named_first():
    cone = ILL["HS101"]["sites"] + ILL["HS102"]["sites"]
    result = judged(replace(UNTOLD, sites=[cone[2], cone[1]]), [])
    assert result.summary[-1].startswith(
        "What to do first: Standardise coordinates, or set coordinates 7, 9 aside, before vectors "
        "are compared"
    )
    assert (
        " 2 of 10 alarms are raised: rogue coordinates (HS102); narrow cone (HS101) may follow "
        "from it. All " in result.summary[-1]
    )
    assert result.summary[0].startswith(
        "Shape, alarm HS102 (rogue coordinates): Largest coordinates 7, 9 at block.0: 0.63"
    )
    alone = judged(replace(HEALTHY, **ILL["HS102"]), [])
    cones = [
        next(observation for observation in examination.observations if observation.code == "HS102")
        for examination in (result, alone)
    ]
    assert [(cone.present, cone.level) for cone in cones] == [(True, "alarm"), (True, "notice")]
    assert alone.summary[-1].startswith("No alarm")


def test_each_sentence_has_its_number_and_what_stands_beside_it():
    shape, *_ = judged(replace(UNTOLD, **ILL["HS101"]), []).summary
    _, cause, leak, cure, _ = judged(HEALTHY, []).summary
    assert "average cosine 0.9, 95% interval 0.85 to 0.95; higher than all" in shape
    assert "factor to the best scale of the logits 1.1, 95% interval 1 to 1.2" in cause
    assert (
        "bits that leaks 0.125, 95% interval 0.075 to 0.3; tokens guessed without a state 0.2"
        in leak
    )
    assert cure.startswith("Remedy, no finding: There is hardly one")
    assert shape.startswith("Shape, alarm HS101 (narrow cone): ")
    assert all(
        "healthy models" in sentence and sentence.endswith(").")
        for sentence in (shape, cause, leak, cure)
    )
    assert "higher than 2 of 5 healthy models)" in cause
    _, cause, *_ = judged(replace(HEALTHY, **ILL["HS201"]), []).summary
    assert "higher than all 4 healthy models that have this number)" in cause


@pytest.mark.parametrize("code", CONDITIONS)
def test_a_condition_says_what_it_is_what_to_do_and_what_it_does_not_say(code):
    kind = CONDITIONS[code]
    assert all(len(text) > 20 for text in (kind.meaning, kind.todo, kind.limits))
    assert set(kind.brings) <= set(CONDITIONS)
    words = " ".join((kind.source, kind.todo, kind.limits))
    for page in re.findall(r"docs/[\w/-]+\.md", words):
        assert (ROOT / page).is_file(), page


def test_a_plug_in_adds_a_condition_by_the_decorator(monkeypatch):
    monkeypatch.setattr(CONDITIONS, "_items", dict(CONDITIONS))

    @condition(
        "HS901",
        "shape",
        "Long",
        threshold=100,
        unit="tokens",
        sentence="Tokens.",
        meaning="",
        source="",
        todo="",
        limits="",
    )
    def long(evidence, earlier):
        return Seen(
            value=evidence.sites[0].number("tokens"), sentence="It is long.", advice="Read less."
        )

    assert present(HEALTHY) == {"HS901"}
    with pytest.raises(BadInput, match="two conditions named 'HS101'"):
        condition(
            "HS101",
            "shape",
            "Other",
            threshold=1,
            unit="",
            sentence="",
            meaning="",
            source="",
            todo="",
            limits="",
        )(long)


@pytest.mark.parametrize("code", sorted(set(CONDITIONS) - {"HS204", "HS220"}))
def test_a_condition_is_named_by_its_code_and_no_other_is(code):
    ill = replace(HEALTHY, **ILL[code])
    assert present(ill) == {code}
    observation = next(
        observation for observation in judged(ill, []).observations if observation.code == code
    )
    noticed = CONDITIONS[code].known or CONDITIONS[code].unless  # the model predicts well
    assert observation.level == ("notice" if noticed else "alarm")
    assert "" not in (observation.sentence, observation.advice)


def test_no_alarm_rests_on_few_tokens_nor_on_a_text_that_the_model_cannot_read():
    text = TextRecord(source="x", tokens=1024, windows=8, unknown=0)
    few = next(
        observation
        for observation in judged(replace(UNTOLD, text=text, **ILL["HS101"]), []).observations
        if observation.code == "HS101"
    )
    assert (few.level, few.possible, few.read) == ("notice", True, "1,024 tokens in windows of 128")
    assert "An alarm needs at least 2,048 tokens; on so many this would be one." in few.sentence
    unread = replace(text, unknown=553)
    assert [
        observation.code
        for observation in judged(replace(HEALTHY, text=unread, **ILL["HS101"]), []).observations
    ] == ["HS205"]


BAD = {"loss": 9.0, "loss_interval": [8.0, 10.0]}
BLOCK = replace(HEALTHY.removed[0], change=-6.0, interval=(-7.0, -5.0), loss=9.0)
DEAD = replace(BLOCK, change=0.0, interval=(0.0, 0.0))
SHUFFLED = {"sites": ILL["HS101"]["sites"], "loss": loss(**BAD), "order": 0.5}


@pytest.mark.parametrize(
    ("ill", "codes"),
    [
        # One scale of the logits mends it: the scale alone was lost.
        (
            {"loss": loss(**BAD, best_loss=2.0, best_scale=0.1, best_scale_interval=[0.09, 0.11])},
            ["HS202"],
        ),
        (
            {"loss": loss(**BAD, best_scale=0.1, best_scale_interval=[0.09, 0.11])},
            ["HS201", "HS202"],
        ),
        ({"loss": loss(**BAD), "removed": [BLOCK]}, ["HS207", "HS201"]),
        # Without the block it predicts no better than counting either: the blocks are not to blame.
        ({"loss": loss(**BAD), "removed": [replace(BLOCK, change=-1.0)]}, ["HS201"]),
        # One that changes nothing is dead, whatever the rest is.
        ({"loss": loss(**BAD), "removed": [DEAD]}, ["HS207", "HS201"]),
        # Of many blocks each does less.
        (
            {"removed": [replace(BLOCK, loss=2.0, change=0.02, interval=(0.01, 0.03))] * 3},
            ["HS207"],
        ),
        ({"removed": [replace(BLOCK, loss=2.0, change=0.02, interval=(0.01, 0.03))] * 30}, []),
        (SHUFFLED, ["HS206", "HS101", "HS201"]),
        # Not trained yet: worse than counting, and no worse than guessing.
        (
            SHUFFLED | {"record": ModelRecord(name="m", vocabulary=round(math.exp(9.0)))},
            ["HS101", "HS201"],
        ),
        ({"order": 0.5}, []),
    ],
)
def test_a_cause_comes_before_its_consequence(ill, codes):
    assert [
        observation.code
        for observation in ordered(judged(replace(HEALTHY, **ill), []).observations)
        if observation.level == "alarm"
    ] == codes


@pytest.mark.parametrize("code", ["HS101", "HS103"])
def test_the_shape_of_a_model_that_predicts_well_is_no_alarm(code):
    alarms = [
        next(
            observation.level
            for observation in judged(replace(evidence, **ILL[code]), []).observations
            if observation.code == code
        )
        for evidence in (HEALTHY, UNTOLD, replace(HEALTHY, loss=loss(**BAD)))
    ]
    assert alarms == ["notice", "alarm", "alarm"]


def test_the_order_of_a_vocabulary_is_seen_in_its_table():
    torch.manual_seed(0)
    table = torch.randn(500, 16) + 2 * torch.linspace(-1, 1, 500)[:, None] * torch.randn(16)
    lens = SimpleNamespace(
        model=SimpleNamespace(get_input_embeddings=lambda: SimpleNamespace(weight=table))
    )
    assert (vocabulary_order(lens)[0] or 0) > 10
    table = table[torch.randperm(500)]
    assert abs(vocabulary_order(lens)[0]) < 3
    table = table[:40]
    assert vocabulary_order(lens) == (None, None)


def test_checkpoints_are_held_against_the_best_before():
    worse = replace(HEALTHY, model="later", loss=loss(loss=2.5))
    assert present(worse, [HEALTHY]) == {"HS204"}
    assert present(HEALTHY, [worse]) == set()


def test_an_interval_across_the_threshold_is_no_alert():
    loose = loss(loss=5.2, loss_interval=[4.8, 5.6])
    observation = next(
        observation
        for observation in judged(replace(HEALTHY, loss=loose), []).observations
        if observation.code == "HS201"
    )
    assert (observation.present, observation.sure, observation.level) == (True, False, "notice")


def test_what_healthy_models_have_too_is_present_and_no_alarm_until_it_is_beyond_them():
    row = site(
        "block.1",
        average_cosine_without_sinks=0.6,
        average_cosine_without_sinks_interval=[0.55, 0.65],
    )
    result = judged(replace(HEALTHY, sites=[row]), [])
    observation = next(
        observation for observation in result.observations if observation.code == "HS101"
    )
    assert (observation.present, observation.possible, observation.level) == (True, False, "notice")
    assert result.summary[-1].startswith("No alarm: none of the 13")


def test_a_gain_that_may_be_chance_is_no_remedy():
    cure = replace(HEALTHY.cure, rows=tried(0.05, -0.01, 0.11))
    observation = next(
        observation
        for observation in judged(replace(HEALTHY, cure=cure), []).observations
        if observation.code == "HS402"
    )
    assert not observation.present
    assert observation.sentence == (
        "Next-passage retrieval: 10/50 before, 12/50 after centre (not significant), final_norm."
    )
    none = next(
        observation
        for observation in judged(HEALTHY, []).observations
        if observation.code == "HS402"
    ).sentence
    assert none.endswith("10/50, not improved by any remedy, final_norm.")


def test_stored_states_have_a_shape_and_no_more():
    bare = ModelEvidence(
        model="s",
        record=None,
        text=None,
        sites=HEALTHY.sites,
        skipped=[
            left_out("states", "Only the shape", "stored states have no weights", "the model")
        ],
    )
    assert {observation.question for observation in judged(bare, []).observations} == {"shape"}
    assert judged(bare, []).summary[1] == (
        "Prediction: not examined: stored states have no weights (the model examines it)."
    )


def test_bits_are_rounded_so_that_what_is_said_of_them_is_true():
    assert replace(HEALTHY.bits, lower=2.279, upper=2.3, prior_bits=2.3).told == (99, 100)
    assert replace(HEALTHY.bits, lower=-0.1, upper=9.0).told == (0, 100)
    for lower, advice in (
        (3.999, "leaks 99% to 100% of"),
        (4.0, "leaks 100% of a token's 4.0 bits"),
    ):
        ill = replace(
            HEALTHY, read=ILL["HS301"]["read"], bits=replace(HEALTHY.bits, lower=lower, upper=4.0)
        )
        observations = {
            observation.code: observation for observation in judged(ill, []).observations
        }
        assert advice in observations["HS301"].advice
        assert ("100% or more" in observations["HS302"].sentence) is False


def test_the_grid_of_weights_is_counted():
    torch.manual_seed(0)
    smooth = nn.Linear(128, 32)
    rounded = nn.Linear(128, 32)
    groups = rounded.weight.data.view(32, 2, 64)
    step = groups.abs().amax(-1, keepdim=True) / 7
    rounded.weight.data = (groups / step).round().mul(step).view(32, 128)
    assert levels(smooth.weight).min() > 60
    assert levels(rounded.weight).max() <= 15
    blocks = torch.randn(4096, 32)  # four bits with a scale and an offset, for 32 weights each
    low = blocks.amin(1, keepdim=True)
    high = blocks.amax(1, keepdim=True)
    blocks = ((blocks - low) / (high - low) * 15).round() * (high - low) / 15 + low
    assert (
        8
        < levels(blocks.reshape(64, -1)).float().median()
        <= 16
        < 24
        < levels(torch.randn(64, 64).bfloat16()).min()
    )
    grid = grid_of(nn.ModuleDict({"a": smooth, "b": rounded}))
    assert (grid.coarsest, grid.coarsest_levels <= 15) == ("b.weight", True)
    assert grid_of(nn.ModuleList([nn.Linear(8, 8)])) is None


def test_an_alarm_is_sure_where_the_whole_interval_is_beyond_its_own_limit():
    """HS101 is named from .5 on and an alarm from .7 on: [.69, .73] holds that limit."""
    for low, sure in ((0.69, False), (0.705, True)):
        row = site(
            "block.1",
            average_cosine_without_sinks=0.71,
            average_cosine_without_sinks_interval=[low, 0.73],
        )
        observations = judged(replace(UNTOLD, sites=[site("block.0"), row]), []).observations
        assert next(
            (observation.sure, observation.level)
            for observation in observations
            if observation.code == "HS101"
        ) == (sure, "alarm" if sure else "notice")


def test_a_table_that_was_hardly_trained_is_no_permuted_one():
    """A headless model has no loss that tells the two apart: the norms of the rows do, which are
    about equal at the start.
    """
    weights = nn.Embedding(512, 64)
    order, norms = vocabulary_order(
        SimpleNamespace(model=SimpleNamespace(get_input_embeddings=lambda: weights))
    )
    assert abs(order or 9) < 4
    assert 0.8 < (norms or 0) < 1.2
    evidence = replace(HEALTHY, loss=None, order=order, norms=norms)
    observations = [
        vocabulary_out_of_order(each_evidence, [])
        for each_evidence in (evidence, replace(evidence, norms=5.0))
    ]
    assert [
        (observation.notice, "probably untrained" in observation.sentence)
        for observation in observations
        if observation
    ] == [(True, True), (False, False)]
