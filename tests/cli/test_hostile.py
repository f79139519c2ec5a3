"""What users and the systems they work on may do to a command: it ends with one sentence and status 2, never a traceback."""

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from unittest import mock

import pytest

import headscan
from headscan.cli import main
from tests.model.tiny import gpt2

STORY = "Once upon a time there was a hen.\n" * 40
ODD = os.fsdecode(b"caf\xe9")  # a name that is not UTF-8


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A folder with a tiny model and texts of good and odd names."""
    monkeypatch.chdir(tmp_path)
    gpt2(vocab_size=256).save_pretrained("tiny")
    (tmp_path / "text.txt").write_text(STORY)
    (tmp_path / f"{ODD}.txt").write_text(STORY)


def run(*words: str, out: io.TextIOBase | None = None) -> tuple[int, str, str]:
    """Status, standard output and error of a command in this process."""
    said, err = out or io.StringIO(), io.StringIO()
    with mock.patch.object(sys, "argv", ["headscan", *words]), redirect_stdout(said), redirect_stderr(err):
        try:
            main()
            status = 0
        except SystemExit as leaving:
            status = leaving.code or 0
    return status, said.getvalue() if isinstance(said, io.StringIO) else "", err.getvalue()


TINY = ("tiny", "--tokenizer", "bytes")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("scan", *TINY, "--text", f"{ODD}.txt"), r"The name of the file caf\xe9.txt is not UTF-8"),
        (("scan", *TINY, "--text", "x" * 5000), "tokens"),
        (("scan", *TINY, "--text=missing.txt"), "There is no file or folder missing.txt."),
        (("ntp", f"{ODD}.txt", "--order", "1", "--tokenizer", "bytes"), "is not UTF-8"),
        (("flow", *TINY, "--prompt", "Once", "--trials", "-1"), "--trials must be at least 1, not -1"),
        (("invert", *TINY, "--prompt", "Once", "--tolerance", "nan"), "--tolerance must be a finite number"),
        (("invert", *TINY, "--prompt", "Once", "--tolerance", "inf"), "--tolerance must be a finite number"),
        (("scan", "nowhere/tiny/x", "--text", "text.txt"), "nowhere/tiny/x"),
        (("scan", ODD, "--text", "text.txt"), "caf"),
        (("scan", *TINY, "--text", "text.txt", "--out", "text.txt"), "cannot be written"),
        (("scan", *TINY, "--text", "text.txt", "--out", "a\0b"), "cannot be written"),
        (("scan", *TINY, "--text", "a\0b.txt"), ""),
    ],
    ids=lambda value: None if isinstance(value, str) else " ".join(value)[:50].encode("ascii", "replace").decode(),
)
def test_one_sentence(words, sentence):
    status, said, err = run(*words)
    assert status == 2, err
    assert sentence in err
    assert "Traceback" not in err
    assert said == ""


def test_odd_folders_hold_results_as_others_do(tmp_path):
    for folder in ("-x [red] émigré", "x" * 200):
        status, said, err = run("scan", *TINY, "--text", "text.txt", "--context", "16", f"--out=./{folder}")
        assert status == 0, err
        assert (tmp_path / folder / "report.html").is_file()
    assert f"{'x' * 200}/report.html" in said


def test_a_terminal_of_ascii_shows_what_it_can():
    raw = io.BytesIO()
    screen = io.TextIOWrapper(raw, encoding="ascii")
    status, _, err = run("scan", *TINY, "--text", "text.txt", "--context", "16", out=screen)
    assert status == 0, err
    screen.flush()
    assert b"block.0" in raw.getvalue()


def test_a_missing_text_is_told_before_the_libraries_are_imported():
    code = (
        "import sys; from headscan.cli import main; sys.argv = ['headscan', 'scan', 'gpt-vanilla', '--text', 'missing.txt']\n"
        "try:\n    main()\nexcept SystemExit as leaving:\n    sys.exit(leaving.code + 10 * ('torch' in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "headscan: There is no file or folder missing.txt.\n")


def test_an_edited_result_has_a_page():
    lens = headscan.Lens(gpt2(vocab_size=256), headscan.model.ByteTokenizer(), name="hen")
    whole = headscan.scan(lens, STORY, context=16, batch=2)
    edits = {
        "sites": whole.sites[:1], "findings": [], "models": whole.models[:0], "arrays": {}, "probes": [], "pictures": {},
    }  # fmt: skip
    for name, value in edits.items():
        assert "<html" in replace(whole, **{name: value}).page(), name
