"""The next command that a run names is run, with what only the user has filled in."""

import shlex
from pathlib import Path

import pytest

from headscan.cli import command_of
from headscan.cli.again import FOLLOWING, FURTHER
from headscan.run import VERBS
from tests.command_line import headscan
from tests.tiny import save_tiny

READ = ["--text", "stories", "--max-tokens", "256", "--context", "32"]
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
    "scan": ["scan", "tiny", *READ],
    "scan with a control": ["scan", "tiny", *READ, "--null"],
    "checkup": ["checkup", "tiny", *READ],
    "checkup with an alarm": ["checkup", "cone.npy"],
    "checkup of few vectors": ["checkup", "few.npy"],
    "states": ["states", "tiny", *READ, "--sites", "block.0"],
    "compare": [
        "compare",
        "tiny",
        "tiny",
        *READ,
        "--sites",
        "block.0",
        "--draws",
        "19",
    ],
    "compare two models": [
        "compare",
        "tiny",
        "shallow",
        *READ,
        "--sites",
        "embedding",
        "--draws",
        "19",
    ],
    "compare two columns": ["compare", "few.npy", "moved.npy", "--draws", "19"],
    "ntp": [
        *("ntp", "stories", "--tokenizer", "tiny", "--order", "1", "--max-tokens", "200"),
        *("--groups", "5", "--gap", "1e-3"),
    ],
    "attribute": ["attribute", "tiny", *PROMPT],
    "flow": ["flow", "tiny", *PROMPT, "--at", "block.0"],
    "invert": ["invert", "tiny", *PROMPT, "--at", "block.0"],
    "channel": ["channel", "tiny", *PROMPT],
    "weights": ["weights", "tiny"],
    "privacy": ["privacy", "tiny", "--text", "stories", *SMALL_PRIVACY],
    "train": ["train", "gpt", "--text", "stories", "--steps", "2", "--vocabulary", "300"],
    "recover": ["recover", "tiny", *READ],
}
"""A small run of each verb that names a next command."""
CHEAPER = {
    "scan": ["--max-tokens", "256", "--context", "32"],
    "checkup": ["--max-tokens", "256", "--context", "32"],
    "privacy": SMALL_PRIVACY,
    "compare": ["--sample", "64"],
    "attribute": ["--no-faithfulness"],
}
"""Options by which the next command ends in seconds, where it has none of them."""


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Return the folder of two small models, of two blocks and of one."""
    folder = tmp_path_factory.mktemp("models")
    save_tiny(folder / "tiny")
    save_tiny(folder / "shallow", blocks=1)
    return folder


@pytest.fixture
def folder(models, tmp_path, monkeypatch):
    import numpy as np

    monkeypatch.chdir(tmp_path)
    for path in models.iterdir():
        Path(path.name).symlink_to(path)
    draw = np.random.default_rng(0)
    np.save("cone.npy", draw.standard_normal((2100, 16)) * 0.1 + 1)
    np.save("moved.npy", draw.standard_normal((300, 16)))
    np.save("few.npy", draw.standard_normal((300, 16)) * 0.1 + 1)
    return tmp_path


def following(printed: str) -> list[str]:
    """Return the words of the next command that a run printed."""
    [line] = [line for line in printed.splitlines() if line.startswith("next: ")]
    words = shlex.split(line.removeprefix("next: "))
    filled = {"TEXT": "stories", "MODEL": "tiny"}
    return [filled.get(word, word) for word in words]


@pytest.mark.parametrize("name", RUNS)
def test_the_next_command_of_a_run_runs(name, folder):
    first = headscan(*RUNS[name], "--out", str(folder / "first"))
    assert first.status == 0, first.stderr
    program, verb, *rest = following(first.stdout)
    assert program == "headscan"
    cheaper = CHEAPER.get(verb, []) if "--text" in rest or verb != "scan" else []
    for option, value in zip(cheaper[::2], cheaper[1::2], strict=False):
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
