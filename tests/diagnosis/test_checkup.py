"""The verb: one run, its result kept and read again, exit statuses, a fault that is found, bad
input.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import T5Config, T5ForConditionalGeneration

import headscan
from headscan.diagnosis.plan import enough_tokens, planned
from headscan.diagnosis.population import reference
from headscan.model import ByteTokenizer, Lens
from headscan.run import BadInput
from headscan.text import Windows
from tests.command_line import headscan as cli
from tests.diagnosis.conftest import TEXT


def test_one_run_answers_four_questions(lens, tmp_path):
    result = headscan.checkup(lens, TEXT * 4, context=16, max_tokens=2400, out=tmp_path)
    observations = {
        observation.code: observation for observation in result.examinations[0].observations
    }
    assert {"HS101", "HS102", "HS103", "HS104", "HS201", "HS301", "HS302", "HS303", "HS402"} <= set(
        observations
    )
    assert observations["HS201"].present  # random weights predict worse than counting does
    assert observations["HS301"].value == 1.0
    assert len(result.examinations[0].summary) == 5
    again = headscan.load(tmp_path)
    assert again.document == result.document
    assert {"code", "site", "value", "threshold", "sentence", "advice"} <= set(
        again.document["findings"][0]
    )
    page = (tmp_path / "report.html").read_text()
    assert "Predictions no better than counting" in page
    assert "Conditions" in page
    row = reference(again, 0)
    assert (row.kind, row.values["HS301"], "HS201" in row.present) == ("unjudged", 1.0, True)
    card = (tmp_path / "card.md").read_text()
    assert "| HS201 | Predictions no better than counting | **alarm** |" in card
    assert card.count("- **") == 5


def test_an_encoder_decoder_has_a_page_with_a_line_for_each_tower(tmp_path):
    """Both towers have three blocks, so that two sites share each place of the layer axis."""
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=260, d_model=32, d_kv=8, d_ff=64, num_layers=3, num_decoder_layers=3, num_heads=4
    )
    lens = Lens(T5ForConditionalGeneration(config).eval(), ByteTokenizer(), name="t5")
    result = headscan.checkup(lens, TEXT * 4, context=32, max_tokens=1024, out=tmp_path)
    assert (tmp_path / "report.html").stat().st_size > 100_000
    shape = result.plot("shape")
    solid = {
        line.name: list(line.x)
        for line in shape.data
        if line.line.dash == "solid" and line.showlegend
    }
    assert set(solid) == {"t5 encoder", "t5 decoder"}
    assert all(x_values == sorted(set(x_values)) for x_values in solid.values())


def test_stored_states_are_examined_and_the_command_fails_where_asked(tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "cone.npy", rng.standard_normal((640, 16)) + 3)
    arguments = ["checkup", str(tmp_path / "cone.npy"), "--out", str(tmp_path / "out")]
    done = cli(*arguments)
    assert done.status == 0, done.output
    assert "HS101" in done.output
    arguments.append("--overwrite")
    assert cli(*arguments, "--fail-on", "HS1*").status == 3
    assert cli(*arguments, "--fail-on", "HS2*").status == 0
    refused = cli(*arguments, "--fail-on", "HS999")
    assert refused.status == 2
    unknown = cli(*arguments, "--budget", "5x")
    assert (unknown.status, unknown.output.strip()) == (
        2,
        "headscan: --budget must be 2m, 10m or full, not '5x'.",
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [({"text": "-"}, "more than once"), ({}, "--text"), ({"text": TEXT, "budget": "1h"}, "budget")],
)
def test_bad_input_is_refused(lens, options, message):
    with pytest.raises(BadInput, match=message):
        headscan.checkup(lens, **options)


def test_less_time_reads_less_and_says_so():
    many = planned("10m", 1e-3)
    few = planned("2m", 1e-3)
    none = planned("2m", 0.1)
    assert many.tokens > few.tokens > none.tokens
    assert many.passages > few.passages > none.passages == none.prompts == none.flow == 0
    assert planned("full", 1.0).tokens is None


def test_as_many_tokens_as_an_alarm_needs_are_planned_wherever_the_budget_has_room(lens):
    # billions of weights, at the speed of two cores
    seconds = {size: 2 * size * 1e9 / 1.5e11 for size in (1.5, 2, 3, 4, 7, 13)}
    assert {size: planned("2m", size_seconds).tokens for size, size_seconds in seconds.items()} == {
        1.5: 2048,
        2: 2048,
        3: 2048,
        4: 2048,
        7: 256,
        13: 256,
    }
    assert [planned("10m", seconds[size]).tokens for size in (7, 13)] == [2048, 2048]
    assert planned("2m", seconds[1.5], 1920).tokens == 1920  # what is asked for
    assert (enough_tokens(lens, 128), enough_tokens(lens, 100)) == (2048, 2100)


def test_what_is_planned_for_a_sentence_encoder_reads_what_an_alarm_needs():
    enough = enough_tokens(SimpleNamespace(sentence=SimpleNamespace(length=24)), 128)
    assert planned("2m", 0.003, enough=enough).tokens == enough == 2048 * 16
    sentences = 0
    texts = ["A sentence of 14"] * 3000
    for _ in Windows(texts, ByteTokenizer(), 24, max_tokens=enough, alone=True):
        sentences += 1
    assert sentences >= 2048


def test_a_column_of_too_few_vectors_has_no_all_clear():
    vectors = np.random.default_rng(0).standard_normal((2100, 16)) + 3
    few, enough = (headscan.checkup(vectors[:count]) for count in (2000, 2100))
    assert few.examinations[0].too_few
    assert [(finding.code, finding.possible) for finding in few.findings] == [("HS101", True)]
    assert few.highest_level == "not examined"
    assert "array: too few vectors to raise an alarm; 1 number lies beyond its limit" in few.page()
    assert [(finding.code, finding.level) for finding in enough.findings] == [("HS101", "alarm")]


def test_the_scale_of_logits_is_found():
    from headscan.measures.head import SCALES, best_scale, scaled_losses

    torch.manual_seed(0)
    logits = torch.randn(4, 200, 32)
    targets = torch.distributions.Categorical(logits=2 * logits).sample()
    losses = scaled_losses(logits, targets).sum(0)
    plain = (
        -torch.log_softmax(logits.double() * 2.0 ** SCALES[10], -1)
        .gather(-1, targets[..., None])
        .sum()
    )
    assert losses[10].item() == pytest.approx(plain.item(), rel=1e-6)
    assert best_scale(losses.numpy()) == pytest.approx(2.0, rel=0.1)
