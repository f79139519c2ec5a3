"""The program speaks plain English: no private words, no sentence of more than 35 words, and
numbers with a leading zero.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "scripts"))
import words


def test_what_the_program_prints_is_plain():
    """It is read by people who have never seen the project."""
    faulty = []
    for place, text in words.program_strings():
        faulty += [f"{place}: {fault}" for fault in words.faults(text)]
    assert faulty == []
