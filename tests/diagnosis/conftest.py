"""A small model of random weights and a text for it."""

import pytest

from headscan.model import ByteTokenizer
from tests.inversion.conftest import build

TEXT = ["Once upon a time there was a cat that sat on a mat. " * 60]


@pytest.fixture(scope="module")
def lens():
    lens = build("gpt2", vocabulary=256, width=32, depth=2)
    lens.tokenizer = ByteTokenizer()
    return lens
