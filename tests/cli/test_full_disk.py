"""A disk that fills up in the middle of any verb costs one sentence that says how to go on, not a
traceback.
"""

import pytest
from safetensors import SafetensorError

from headscan.run import BadInput, Out, Run, verb

FULL = [
    OSError(28, "No space left on device"),
    SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
]


@pytest.mark.parametrize("error", FULL)
def test_one_sentence_says_what_to_do(error, tmp_path):
    @verb("test-full-disk")
    def fills(run: Run, out: Out):
        raise error

    with pytest.raises(
        BadInput,
        match=r"^The disk is full \(.*\): free some space and continue with .* --resume\.$",
    ):
        fills(out=tmp_path)


def test_other_faults_stay_what_they_are(tmp_path):
    @verb("test-other-fault")
    def breaks(run: Run, out: Out):
        raise OSError(2, "No such file")

    with pytest.raises(OSError, match="No such file"):
        breaks(out=tmp_path)
