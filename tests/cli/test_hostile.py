"""What users and the systems they work on may do to a command: it ends with one sentence and status
2, never a traceback.
"""

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

import headscan
from headscan.cli import main
from tests.model.tiny import gpt2

STORY = "Once upon a time there was a hen.\n" * 40
ODD = os.fsdecode(b"caf\xe9")  # a name that is not UTF-8


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    """A folder with a tiny model and texts of good and odd names."""
    monkeypatch.chdir(tmp_path)
    gpt2(vocab_size=256).save_pretrained("tiny")
    (tmp_path / "text.txt").write_text(STORY)
    (tmp_path / f"{ODD}.txt").write_text(STORY)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def run(*args: str, out: io.TextIOBase | None = None) -> tuple[int, str, str]:
    """Status, standard output and error of a command in this process."""
    stdout = out or io.StringIO()
    err = io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["headscan", *args]),
        redirect_stdout(stdout),
        redirect_stderr(err),
    ):
        try:
            main()
            status = 0
        except SystemExit as leaving:
            status = leaving.code or 0
    return status, stdout.getvalue() if isinstance(stdout, io.StringIO) else "", err.getvalue()


TINY = ("tiny", "--tokenizer", "bytes")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("scan", *TINY, "--text", f"{ODD}.txt"), r"The name of the file caf\xe9.txt is not UTF-8"),
        (("scan", *TINY, "--text", "x" * 5000), "tokens"),
        (("scan", *TINY, "--text=missing.txt"), "There is no file or folder missing.txt."),
        (("ntp", f"{ODD}.txt", "--order", "1", "--tokenizer", "bytes"), "is not UTF-8"),
        (
            ("flow", *TINY, "--prompt", "Once", "--trials", "-1"),
            "--trials must be at least 1, not -1",
        ),
        (
            ("invert", *TINY, "--prompt", "Once", "--tolerance", "nan"),
            "--tolerance must be a finite number",
        ),
        (
            ("invert", *TINY, "--prompt", "Once", "--tolerance", "inf"),
            "--tolerance must be a finite number",
        ),
        (("scan", "nowhere/tiny/x", "--text", "text.txt"), "nowhere/tiny/x"),
        (("scan", ODD, "--text", "text.txt"), "caf"),
        (("scan", *TINY, "--text", "text.txt", "--out", "text.txt"), "cannot be written"),
        (("scan", *TINY, "--text", "text.txt", "--out", "a\0b"), "cannot be written"),
        (("scan", *TINY, "--text", "a\0b.txt"), ""),
        (("scan", *TINY, "--text", "text.txt", "--out", "x" * 5000), "File name too long"),
    ],
    ids=lambda value: (
        None if isinstance(value, str) else " ".join(value)[:50].encode("ascii", "replace").decode()
    ),
)
def test_one_sentence(arguments, sentence):
    status, stdout, err = run(*arguments)
    assert status == 2, err
    assert sentence in err
    assert "Traceback" not in err
    assert stdout == ""


ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\u2066[red]"
SHORT = "\x1b[2J\x9b\u202e[red]"
UNSENT = ("\x1b", "\x07", "\x9b", "\u202e", "\u2066")


def _case_name(value):
    """Name a case by its verb and the beginning of its last argument."""
    if isinstance(value, int):
        return None
    return value[0] if len(value) < 4 else f"{value[0]} {value[-1][:8]!r}"


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (
            (
                "scan",
                f"tiny{ESCAPES}",
                "--tokenizer",
                "bytes",
                "--text",
                "text.txt",
                "--context",
                "16",
            ),
            0,
        ),
        (("scan", *TINY, "--text", f"text{ESCAPES}.txt", "--context", "16", "--json"), 0),
        (("scan", f"states{ESCAPES}.npy"), 0),
        (("scan", *TINY, "--text", "odd.jsonl"), 2),
        (("scan", *TINY, "--text", "odd.jsonl", "--context", "16", "--field", ESCAPES), 0),
        (("scan", *TINY, "--text", "text.txt", "--sites", ESCAPES), 2),
        (("scan", *TINY, "--text", "text.txt", "--context", "16", "--out", ESCAPES), 0),
        (("scan", ESCAPES, "--text", "text.txt"), 2),
        (
            (
                "invert",
                f"tiny{ESCAPES}",
                "--tokenizer",
                "bytes",
                "--prompt",
                SHORT,
                "--at",
                "block.0",
            ),
            0,
        ),
        ((ESCAPES,), 2),
        (("scan", *TINY, f"--{ESCAPES}"), 2),
    ],
    ids=_case_name,
)
def test_what_commands_a_terminal_is_shown_and_not_sent(arguments, status, tmp_path):
    (tmp_path / "tiny").rename(tmp_path / f"tiny{ESCAPES}")
    (tmp_path / "tiny").symlink_to(f"tiny{ESCAPES}")
    (tmp_path / f"text{ESCAPES}.txt").write_text(STORY + ESCAPES)
    np.save(
        tmp_path / f"states{ESCAPES}.npy",
        np.random.default_rng(0).standard_normal((300, 8)).astype(np.float32),
    )
    (tmp_path / "odd.jsonl").write_text(
        "".join(json.dumps({ESCAPES: STORY}) + "\n" for _ in range(4))
    )
    ended, stdout, err = run(*arguments)
    assert (ended, "Traceback" in err) == (status, False), err
    assert [mark for mark in UNSENT if mark in stdout + err] == []
    if status:
        assert "[red]" in err
    if "--json" in arguments:
        json.loads(stdout)


@pytest.mark.parametrize("arguments", [("--help",), ("scan", "--help")], ids=" ".join)
@pytest.mark.parametrize("terminal", [False, True])
def test_what_a_plug_in_says_of_itself_commands_no_terminal(arguments, terminal, monkeypatch):
    monkeypatch.setattr("headscan.cli.verbs", lambda: {"scan": f"about {ESCAPES} [/] it"})
    _, stdout, err = run(*arguments, out=Terminal() if terminal else None)
    assert [mark for mark in ("\x1b]", *UNSENT[1:]) if mark in stdout + err] == []
    assert "[/] it" in stdout


def test_odd_folders_hold_results_as_others_do(tmp_path):
    for folder in ("-x [red] émigré", "x" * 200):
        status, stdout, err = run(
            "scan", *TINY, "--text", "text.txt", "--context", "16", f"--out=./{folder}"
        )
        assert status == 0, err
        assert (tmp_path / folder / "report.html").is_file()
    assert f"{'x' * 200}/report.html" in stdout


def test_a_terminal_of_ascii_shows_what_it_can():
    raw = io.BytesIO()
    screen = io.TextIOWrapper(raw, encoding="ascii")
    status, _, err = run("scan", *TINY, "--text", "text.txt", "--context", "16", out=screen)
    assert status == 0, err
    screen.flush()
    assert b"block.0" in raw.getvalue()


def refused_before_import(arguments, module):
    """Return the exit status of a scan, ten more where it has imported a module, and its errors."""
    code = (
        "import sys; from headscan.cli import main; sys.argv[1:] = ['scan', 'gpt-vanilla', "
        f"*{arguments!r}]\n"
        "try:\n    main()\nexcept SystemExit as leaving:\n    sys.exit(leaving.code + 10 * "
        f"({module!r} in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return done.returncode, done.stderr


def test_a_missing_text_is_told_before_the_libraries_are_imported():
    assert refused_before_import(["--text", "missing.txt"], "torch") == (
        2,
        "headscan: There is no file or folder missing.txt.\n",
    )


def test_a_wrong_option_is_told_before_the_models_of_transformers_are_imported():
    assert refused_before_import(["--contxt", "64"], "transformers.modeling_utils") == (
        2,
        "headscan: Unknown option: --contxt. Did you mean --context? See headscan scan --help.\n",
    )


def test_an_edited_result_has_a_page():
    model = gpt2(vocab_size=256, n_layer=1)
    lens = headscan.Lens(model, headscan.model.ByteTokenizer(), name="hen")
    result = headscan.scan(lens, STORY, context=16, batch=2)
    edits = {
        "sites": result.sites[:1],
        "findings": [],
        "models": result.models[:0],
        "arrays": {},
        "probes": [],
        "pictures": {},
    }
    for name, value in edits.items():
        assert "<html" in replace(result, **{name: value}).page(), name
