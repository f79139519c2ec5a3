"""What is said while a command works: what, how much and how long; no word without a number, no
minute without a word.
"""

import io
import sys
import time
from contextlib import redirect_stderr

from headscan.cli import guard, output


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_in_a_pipe_work_that_says_nothing_is_still_told_of(monkeypatch):
    monkeypatch.setattr(output, "EVERY", 0.02)
    monkeypatch.setattr(output, "SILENT", 0.05)
    with redirect_stderr(io.StringIO()) as stream, output.progress_bar() as progress:
        progress("solving", 17, 100, "%")
        time.sleep(0.3)
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("headscan: solving: 17 %")
    assert lines[0].endswith("s so far)")
    assert len(lines) >= 2


def test_a_bar_has_the_unit_of_its_numbers_and_no_empty_clock(monkeypatch):
    shown = Terminal()
    monkeypatch.setattr(
        output, "console", lambda _: guard.console(shown, force_terminal=True, width=120)
    )
    with redirect_stderr(Terminal()), output.progress_bar() as progress:
        progress("gpt · loading", 0, None, "steps")
        progress("gpt", 512, 1024, "tokens")
        time.sleep(0.25)
        print("a library says \x1b]0;owned\x07", file=sys.stderr)
        progress("gpt", 1024, 1024, "tokens")
    text = shown.getvalue()
    assert "1,024 tokens" in text
    assert "1,024 steps" not in text
    assert "-:--" not in text
    assert "a library says <U+001B>]0;owned<U+0007>" in text
    assert "\x1b]0;" not in text
