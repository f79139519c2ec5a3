"""The next command that a run names is run, with what only the user has filled in."""

import shlex
from pathlib import Path

import pytest

from headscan.cli import command_of
from headscan.cli.again import FOLLOWING, FURTHER
from headscan.run import VERBS
from tests.command_line import headscan

READ = ["--text", "stories", "--max-tokens", "256"]
PROMPT = ["--prompt", "Once upon a time"]
SMALL_PRIVACY = [
    "--sites",
    "block.0",
    "--windows",
    "1",
    "--length",
    "3",
    "--candidates",
    "16",
    "--noise",
    "0.8",
]
RUNS = {
    "scan": ["scan", "gpt-vanilla", *READ, "--context", "32"],
    "scan with a control": ["scan", "gpt-vanilla", *READ, "--context", "32", "--null"],
    "checkup": ["checkup", "gpt-vanilla", *READ, "--context", "32"],
    "checkup with an alarm": ["checkup", "cone.npy"],
    "checkup of few vectors": ["checkup", "few.npy"],
    "states": ["states", "gpt-vanilla", *READ, "--sites", "block.0"],
    "compare": [
        "compare",
        "gpt-vanilla",
        "gpt-vanilla",
        *READ,
        "--sites",
        "block.0",
        "--draws",
        "19",
    ],
    "compare two models": [
        "compare",
        "gpt-vanilla",
        "gpt-vanilla-early",
        *READ,
        "--sites",
        "embedding",
        "--draws",
        "19",
    ],
    "compare two columns": ["compare", "few.npy", "moved.npy", "--draws", "19"],
    "ntp": ["ntp", "stories", "--tokenizer", "gpt-vanilla", "--order", "1", "--max-tokens", "200"],
    "attribute": ["attribute", "gpt-vanilla", *PROMPT],
    "flow": ["flow", "gpt-vanilla", *PROMPT, "--at", "block.0"],
    "invert": ["invert", "gpt-vanilla", *PROMPT, "--at", "block.0"],
    "channel": ["channel", "gpt-vanilla", *PROMPT],
    "weights": ["weights", "gpt-vanilla"],
    "privacy": ["privacy", "gpt-vanilla", "--text", "stories", *SMALL_PRIVACY],
    "train": ["train", "gpt", "--text", "stories", "--steps", "2", "--vocabulary", "300"],
    "recover": ["recover", "gpt-vanilla", *READ],
}
"""A small run of each verb that names a next command."""
CHEAPER = {
    "checkup": ["--max-tokens", "256", "--context", "32"],
    "privacy": SMALL_PRIVACY,
    "compare": ["--sample", "64"],
    "attribute": ["--no-faithfulness"],
}
"""Options by which the next command ends in seconds, where it has none of them."""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    import numpy as np

    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    np.save("cone.npy", draw.standard_normal((2100, 16)) * 0.1 + 1)
    np.save("moved.npy", draw.standard_normal((300, 16)))
    np.save("few.npy", draw.standard_normal((300, 16)) * 0.1 + 1)
    return tmp_path


def following(printed: str) -> list[str]:
    """Return the words of the next command that a run printed."""
    [line] = [line for line in printed.splitlines() if line.startswith("next: ")]
    words = shlex.split(line.removeprefix("next: "))
    filled = {"TEXT": "stories", "MODEL": "gpt-vanilla"}
    return [filled.get(word, word) for word in words]


@pytest.mark.parametrize("name", RUNS)
def test_the_next_command_of_a_run_runs(name, folder):
    first = headscan(*RUNS[name], "--out", str(folder / "first"))
    assert first.status == 0, first.stderr
    program, verb, *rest = following(first.stdout)
    assert program == "headscan"
    for option, value in zip(CHEAPER.get(verb, [])[::2], CHEAPER.get(verb, [])[1::2], strict=False):
        if option not in rest:
            rest += [option, value]
    second = headscan(verb, *rest, "--out", str(folder / "second"))
    assert second.status in (0, 3), second.stderr  # 3: a finding that the command fails on
    assert (Path("second") / "result.json").is_file()


def test_what_a_run_may_name_next_has_the_options_of_its_verb():
    named = {verb: " ".join(additions) for verb, additions in FURTHER.items()}
    for template in FOLLOWING.values():
        _, verb, rest = template.split(" ", 2)
        named[verb] = f"{named.get(verb, '')} {rest}"
    for verb, words in named.items():
        real_verb = "compare" if verb in ("changes", "damage") else verb
        command = command_of(real_verb)
        command.verb()
        flags = {option.flag for option in VERBS[real_verb].options()}
        flags |= {f"--{name.replace('_', '-')}" for name in command.extra}
        used = {word for word in words.split() if word.startswith("--")}
        assert used <= flags, verb
