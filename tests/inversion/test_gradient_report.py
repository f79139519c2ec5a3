"""Which tokens a training step's gradient shows, as a result, a page and a command."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import headscan
from headscan.cli import app
from headscan.errors import BadInput
from headscan.inversion import GradientResult, leaked_gradient
from headscan.model import ByteTokenizer
from tests.inversion.conftest import build


def model(kind="gpt2", width=64):
    lens = build(kind, vocabulary=256, width=width, depth=1)
    lens.tokenizer = ByteTokenizer()
    return lens


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_all_tokens_but_the_last_are_found_and_no_other(kind):
    document = leaked_gradient(model(kind), ["My pack0d!?", "is <b>UVON!"]).document
    assert document["recall"] == document["precision"] == 1
    assert document["with_positions"] is (kind == "gpt2")
    found = {(entry["position"], entry["token"]) for entry in document["tokens"]}
    rows = [b"My pack0d!", b"is <b>UVON"]
    wanted = {(place if kind == "gpt2" else None, byte) for row in rows for place, byte in enumerate(row)}
    assert found == wanted
    assert document["nearest_other"] > 10 * document["tolerance"]
    assert document["certified"].startswith("Certified")


def test_a_token_at_two_positions_makes_others_seem_to_stand_at_both():
    """(v at 6) - (u at 6) + (u at 1) is v at 1: in the span, though it was not there. The result says which are such."""
    document = leaked_gradient(model(), ["abcdefa!", "ghijklm!"]).document
    assert document["recall"] == document["precision_anywhere"] == 1
    assert document["precision"] < 1
    mirages = {(entry["position"], entry["token"]) for entry in document["tokens"] if not entry["in_batch"]}
    assert mirages == {(0, ord("m")), (6, ord("g"))}
    assert "two positions" in document["certified"]


def test_a_batch_larger_than_the_width_shows_nothing_and_says_so():
    document = leaked_gradient(
        model("llama", width=16), ["the quick brown fox jumps over", "a lazy dog, and then it ran a"]
    ).document
    assert document["rank"] == document["width"] == 16
    assert document["precision"] < 0.5
    assert document["certified"].startswith("Nothing is certified")


def test_bad_input(bert):
    bert.tokenizer = ByteTokenizer()
    with pytest.raises(BadInput, match="no next-token head"):
        leaked_gradient(bert, ["abc"])
    with pytest.raises(BadInput, match="empty"):
        leaked_gradient(model(), [])
    with pytest.raises(BadInput, match="at least two tokens"):
        leaked_gradient(model(), ["a", "abc"])
    with pytest.raises(BadInput, match="takes at most 32"):
        leaked_gradient(model(), ["a" * 33])
    with pytest.raises(BadInput, match="leaked_gradient"):
        headscan.invert(model(), "abc", given="gradient")


def test_the_command_the_page_and_the_disk(assets, tmp_path):
    command = ["invert", str(assets / "models/stories260K"), "--given", "gradient"]
    texts = ["--prompt", "Once upon a time there was a cat", "--prompt", "The dog went to the park to play"]
    done = CliRunner().invoke(app, [*command, *texts, "--out", str(tmp_path), "--json"])
    assert done.exit_code == 0, done.stdout
    document = json.loads(done.stdout)
    assert document["kind"] == "gradient"
    assert document["recall"] > 0.95
    again = headscan.load(tmp_path)
    assert isinstance(again, GradientResult)
    assert len(again.frame()) == len(document["tokens"])
    assert again.plot().data
    assert "The gradient of one training step" in (tmp_path / "report.html").read_text()
    shown = CliRunner().invoke(app, [*command, *texts, "--out", str(tmp_path)])
    assert "rank of the gradient" in shown.stdout
    assert CliRunner().invoke(app, command).exit_code == 2
