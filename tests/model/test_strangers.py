"""Model folders of strangers: files without end, rules without end, programs without end."""

import json
import os
import shutil
import time

import pytest

from headscan.model.available import specimen_path
from headscan.run import BadInput
from headscan.text import limited as limits
from headscan.text.limited import limited
from tests.command_line import headscan

HUGE = 2**30


@pytest.fixture
def folder(tmp_path):
    model = tmp_path / "model"
    shutil.copytree(specimen_path("gpt-vanilla-early"), model)
    return model


def scan(folder, text="stories"):
    return headscan(
        *("scan", str(folder), "--text", str(text), "--context", "16", "--max-tokens", "320"),
        *("--out", str(folder.parent / "out")),
    )


@pytest.mark.parametrize(
    "name", ["tokenizer_config.json", "generation_config.json", "config.json", "tokenizer.json"]
)
def test_a_file_without_end_is_not_read(folder, name):
    with (folder / name).open("r+b" if (folder / name).exists() else "wb") as file:
        file.truncate(HUGE)  # a sparse file takes no room
    for arguments in (("scan", str(folder), "--text", "stories"), ("weights", str(folder))):
        began = time.monotonic()
        ended = headscan(*arguments, "--out", str(folder.parent / "out"))
        assert time.monotonic() - began < 20  # reading would take longer
        assert (ended.status, name in ended.stderr) == (2, True)


@pytest.mark.parametrize("name", ["modules.json", "tokenizer_config.json"])
def test_a_pipe_is_not_waited_for(folder, name):
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    ended = scan(folder)
    assert (ended.status, "is no regular file" in ended.stderr) == (2, True)


def rewrite_tokenizer(folder, **rules):
    file = folder / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | rules))


def replaced(content):
    return {"type": "Replace", "pattern": {"String": "e"}, "content": content}


@pytest.mark.parametrize(
    "normalizer",
    [
        replaced("e" * 100_000),
        {"type": "Sequence", "normalizers": [replaced("e" * 20), replaced("e" * 20)]},
    ],
)
def test_a_normaliser_that_multiplies_a_text_is_refused(folder, normalizer):
    rewrite_tokenizer(folder, normalizer=normalizer)
    ended = scan(folder)
    assert (ended.status, "times as long" in ended.stderr) == (2, True)


@pytest.mark.parametrize("verb", ["scan", "attribute"])
def test_a_regular_expression_that_never_ends_is_one_sentence(folder, tmp_path, verb):
    pattern = {"Regex": "(a+)+$"}
    rule = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
    rewrite_tokenizer(folder, pre_tokenizer=rule)
    text = "a" * 60 + "! "
    if verb == "scan":
        file = tmp_path / "text.txt"
        file.write_text(text * 100)
        ended = scan(folder, file)
    else:
        ended = headscan("attribute", str(folder), "--prompt", text, "--out", str(tmp_path / "out"))
    assert ended.status == 2
    assert "headscan: The tokenizer" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "out").exists()


def test_a_program_is_ended_at_its_limits(monkeypatch):
    monkeypatch.setattr(limits, "MEMORY", 2**28)
    assert limited(lambda: "text", "It") == "text"
    with pytest.raises(BadInput, match=r"^It refuses the messages: it takes more than .* memory"):
        limited(lambda: "a" * 2**29, "It")
    monkeypatch.setattr(limits, "SECONDS", 0.3)
    with pytest.raises(BadInput, match=r"^It has not ended after"):
        limited(lambda: time.sleep(60) or "", "It")
    with pytest.raises(BadInput, match=r"^It refuses the messages: division by zero"):
        limited(lambda: str(1 / 0), "It")
