"""The commands for the first week: sites, rerun, the next command, and a gate in a pipeline."""

import json

import numpy as np
import pytest

import headscan as package
from headscan.cli.again import next_command
from tests.command_line import headscan


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("one.npy", np.random.default_rng(0).standard_normal((64, 8)) + 3)
    return tmp_path


def test_sites_are_listed_before_a_text_is_read():
    printed = headscan("sites", "gpt-vanilla").stdout
    assert "block.2.mlp" in printed
    rows = {
        row["site"]: row for row in json.loads(headscan("sites", "gpt-vanilla", "--json").stdout)
    }
    lens = package.Lens.load("gpt-vanilla")
    assert tuple(rows) == lens.sites
    assert rows["head"]["width"] == lens.vocabulary_size
    block = sum(weight.numel() for weight in lens.tap("block.0").module.parameters())
    assert rows["block.0"]["parameters"] == block
    assert headscan("sites", "no-such-model").status == 2


def test_a_model_in_the_place_of_a_verb_gets_a_hint():
    said = headscan("gpt-vanilla").stderr
    assert "To examine a model: headscan checkup gpt-vanilla --text TEXT." in said
    assert "Did you mean" in headscan("scna").stderr


def test_a_result_is_run_again_and_fails_on_what_is_named(folder):
    first = headscan("scan", "one.npy", "--out", "first", "--fail-on", "HS113")
    assert first.status == 0
    assert "next:" not in first.stdout  # vectors have no text to go on with
    assert headscan("scan", "one.npy", "--fail-on", "HS114").status == 3
    assert headscan("scan", "one.npy", "--fail-on", "HS114", "--ignore", "LENGTH").status == 0
    assert "no finding is called" in headscan("scan", "one.npy", "--fail-on", "HSX").stderr

    again = headscan("rerun", "first/result.json", "--out", "second")
    assert again.status == 0
    assert "$ headscan scan one.npy --fail-on HS113 --out second" in again.stderr
    old, new = package.load("first"), package.load("second")
    assert new.site("vectors")["average_cosine"] == old.site("vectors")["average_cosine"]
    result = package.scan("one.npy", out="third")
    assert "made in Python" in headscan("rerun", "third").stderr
    assert next_command(result, folder) == ""


@pytest.mark.parametrize(
    ("command", "following"),
    [
        ("headscan scan gpt2 --text a.txt --out x", "headscan scan gpt2 --text a.txt --null"),
        ("headscan scan gpt2 --text a.txt --null", "headscan checkup gpt2 --text a.txt"),
    ],
)
def test_a_scan_names_the_next_command(command, following):
    result = package.scan("gpt-vanilla", ["a text " * 40], context=16, sites="block.0")
    protocol = result.protocol
    object.__setattr__(protocol, "command", command)
    object.__setattr__(protocol.text, "source", "a.txt")
    assert next_command(result, None) == following
