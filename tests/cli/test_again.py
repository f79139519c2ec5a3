"""The commands for the first week: sites, rerun, the next command, and a gate in a pipeline."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import headscan as package
from headscan.cli import command_of
from headscan.cli.again import next_command
from headscan.cli.command import Invocation
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


def test_lists_name_the_next_command():
    sites = headscan("sites", "gpt-vanilla").stdout
    assert "next: headscan scan gpt-vanilla --text TEXT --sites 'block.*'" in sites
    assert "next: headscan checkup MODEL --text TEXT" in headscan("models").stdout


def test_every_verb_with_findings_can_fail_on_one():
    table = Path(__file__).parents[2] / "docs" / "findings.md"
    rows = re.findall(r"^\| \*\*HS\d+\*\*[^|]*\|([^|]+)\|", table.read_text(), flags=re.M)
    verbs = {verb.strip() for row in rows for verb in row.split(",")}
    assert {"checkup", "compare", "train", "weights"} <= verbs
    for verb in sorted(verbs):
        app = command_of(verb).app(verb)
        names = [name for argument in app.assemble_argument_collection() for name in argument.names]
        assert "--fail-on" in names, verb


def test_training_ends_with_a_finding_that_is_named(folder):
    """Any result will do for the exit status: an alarm of a training run takes minutes."""
    result = package.scan("one.npy")
    command = command_of("train")
    statuses = [
        Invocation(command, "train", command.verb().verb, {"subject": "gpt", "fail_on": codes})
        for codes in ("HS114", "HS5*")
    ]
    assert [invocation._status(result) for invocation in statuses] == [3, 0]


def test_a_model_in_the_place_of_a_verb_gets_a_hint():
    said = headscan("gpt-vanilla").stderr
    assert "To examine a model: headscan checkup gpt-vanilla --text TEXT." in said
    assert "Did you mean" in headscan("scna").stderr


def test_a_result_is_run_again_and_fails_on_what_is_named(folder):
    first = headscan("scan", "one.npy", "--out", "first", "--fail-on", "HS113")
    assert first.status == 0
    assert "next: headscan checkup one.npy" in first.stdout  # vectors have no text
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
        (
            "headscan compare gpt2 --against 4bit --damage --text a.txt",
            "headscan compare gpt2 --against 4bit --damage --text a.txt --limit 0.05 "
            "--fail-on HS701",
        ),
    ],
)
def test_a_scan_names_the_next_command(command, following):
    result = package.scan("gpt-vanilla", ["a text " * 40], context=16, sites="block.0")
    protocol = result.protocol
    object.__setattr__(protocol, "command", command)
    object.__setattr__(protocol.text, "source", "a.txt")
    assert next_command(result, None) == following


def test_a_remedy_without_a_gain_names_the_next_command(folder):
    np.save("queries.npy", np.random.default_rng(1).standard_normal((64, 8)))
    first = headscan("remedy", "one.npy", "--out", "first")
    assert "next: headscan remedy one.npy --partners QUERIES" in first.stdout
    second = headscan("remedy", "one.npy", "--partners", "queries.npy", "--out", "second")
    assert "--partners queries.npy --compress BYTES" in second.stdout
    third = headscan("compare", "one.npy", "queries.npy", "--draws", "19", "--out", "third")
    assert "next: headscan remedy queries.npy --against one.npy" in third.stdout
