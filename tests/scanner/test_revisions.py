"""A series of checkpoints of one model: revisions of an id, or the folders of a training run,
scanned in their order.
"""

import json
import re
import shlex
from glob import glob
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel

import headscan
from headscan import BadInput
from headscan.cli import run as command
from headscan.model.available import specimen_path
from headscan.model.finding import revisions_of
from tests.command_line import headscan as line
from tests.hub import cached

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "training-run.md"

TEXT = (
    "the cat sat on the mat and the dog lay under the table while rain fell on the roof of the "
    "house. " * 6
)


def model(seed):
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=4096,
        n_positions=128,
        n_embd=16,
        n_layer=1,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(config)


@pytest.fixture
def series(tmp_path):
    for seed, name in enumerate(("checkpoint-5", "checkpoint-10", "checkpoint-100", "model")):
        model(seed).save_pretrained(tmp_path / "run" / name)
        AutoTokenizer.from_pretrained(specimen_path("gpt-vanilla")).save_pretrained(
            tmp_path / "run" / name
        )
    (tmp_path / "run" / "checkpoint-7").mkdir()  # nothing in it
    return tmp_path / "run"


def test_folders_of_a_run_are_read_in_the_order_of_their_steps(series, capsys):
    options = ["--text", TEXT, "--context", "32", "--json", "--out", str(series.parent / "out")]
    assert command(["scan", str(series), "--revisions", "checkpoint-*", *options]) == 0
    result = json.loads(capsys.readouterr().out)
    names = [row["name"] for row in result["models"]]
    assert names == ["checkpoint-5", "checkpoint-10", "checkpoint-100"]
    one_by_one = headscan.scan([series / name for name in names], TEXT, context=32)
    assert result["sites"] == one_by_one.document["sites"]
    assert result["differences"] == one_by_one.document["differences"]
    # in the order of the names
    named = headscan.scan(series, TEXT, revisions=["model", "checkpoint-5"], context=32)
    assert [row.name for row in named.models] == ["run/model", "checkpoint-5"]
    assert [row.rpartition("/")[2] for row in revisions_of(series, "*")] == [*names, "model"]
    assert (
        "From checkpoint to checkpoint"
        in headscan.scan(series, TEXT, revisions="*", context=32).page()
    )


def test_revisions_of_an_id_are_those_written_one_by_one(tmp_path, monkeypatch):
    cached(model(0), tmp_path, "someone/tiny", "step1", "step2", monkeypatch=monkeypatch)
    result = headscan.scan(
        "someone/tiny", TEXT, revisions="step2, step1", tokenizer="bytes", context=32
    )
    assert [row.name for row in result.models] == ["someone/tiny@step2", "someone/tiny@step1"]
    assert [row["model"] for row in result.sites][:1] == ["someone/tiny@step2"]


def test_what_is_no_series_is_refused(series):
    for message, source, revisions in (
        ("nothing between two commas", series, "checkpoint-5,,checkpoint-10"),
        ("nothing at all", series, []),
        (
            "no checkpoint 'checkpoint-7'; there are: checkpoint-5, checkpoint-10, "
            "checkpoint-100, model",
            series,
            "checkpoint-7",
        ),
        ("no checkpoint '../run/model'", series, "../run/model"),
        ("there are: none", series / "checkpoint-7", "*"),
        ("a checkpoint twice", series, "checkpoint-*,checkpoint-5"),
        ("is one model and has no revisions", "gpt-vanilla", "main"),
        ("a revision already", "someone/tiny@main", "step1"),
        ("'someone/tiny@step1' is no folder", "someone/tiny", "step1"),
        ("a revision is written ID@REVISION", "someone/tiny", "a b"),
        ("one model, named by", [series, "gpt-vanilla"], "*"),
        ("one model, named by", model(0), "*"),
    ):
        with pytest.raises(BadInput, match=message):
            headscan.scan(source, TEXT, revisions=revisions, context=32)


def test_the_commands_of_the_how_to_run(series, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("my.txt").write_text(TEXT * 15)
    page = PAGE.read_text()
    assert len(page.split()) < 300
    commands = re.findall(r"^    headscan (.*)$", page, re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["scan", "checkup", "weights"]
    for written in commands:
        quoted = shlex.split(written, posix=False)  # what a shell would expand is not in quotes
        arguments = [path for word in quoted for path in (sorted(glob(word)) or [word.strip("'")])]
        ended = line(*arguments, "--out", f"out-{arguments[0]}")
        assert ended.status == 0, ended.output
