"""A disk that fills up in the middle of any verb costs one sentence, not a traceback."""

from __future__ import annotations

import pytest
from safetensors import SafetensorError

from headscan.cli import _guarded


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
    ],
)
@pytest.mark.parametrize("resumable", [True, False])
def test_one_sentence_says_what_to_do(error, resumable, capsys):
    def verb(**options):
        raise error

    with pytest.raises(SystemExit) as left:
        _guarded(verb)(**({"resume": False} if resumable else {}))
    assert left.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("headscan: The disk is full")
    assert said.count("\n") == 1
    assert ("--resume" in said) is resumable


def test_other_faults_stay_what_they_are():
    def verb():
        raise OSError(2, "No such file")

    with pytest.raises(OSError, match="No such file"):
        _guarded(verb)()
