"""The program speaks plain English: no private words, no sentence of more than 35 words, and
numbers with a leading zero.
"""

import re
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


def test_numbers_of_all_pages_have_a_leading_zero():
    """In tables, too, and in the laboratory's pages; code is left out."""
    bare = {}
    for page in (page for kind in words.KINDS for page in words.pages(kind)):
        text = re.sub(r"^(```|~~~).*?^\1", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        text = re.sub(r"^ {4}.*$|`[^`\n]*`|\]\([^)]*\)", "", text, flags=re.M)
        if words.BARE_NUMBER.search(text):
            bare[page.name] = words.BARE_NUMBER.findall(text)
    assert bare == {}
    assert words.BARE_NUMBER.findall("it is .5 and | .25 |") == [".5", ".2"]
