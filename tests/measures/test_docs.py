"""The pages of lab/docs/methods/measures: their examples run, and every probe and extra measure
points at one of them.
"""

import doctest
from pathlib import Path

import pytest

from headscan.measures import PROBES

PAGES = Path(__file__).resolve().parents[2] / "lab" / "docs" / "methods" / "measures"


@pytest.mark.parametrize("page", sorted(path.name for path in PAGES.glob("*.md")))
def test_the_examples_of_a_page_run(page):
    result = doctest.testfile(str(PAGES / page), module_relative=False, encoding="utf-8")
    assert result.failed == 0


def test_every_probe_has_its_page_and_its_function():
    from importlib import import_module

    for probe in PROBES.values():
        assert (PAGES / probe.words.docs).is_file(), probe.words.name
        module, _, name = probe.words.function.rpartition(".")
        assert callable(getattr(import_module(module), name)), probe.words.name
        assert probe.words.name in (PAGES / probe.words.docs).read_text(), probe.words.name
        assert (PAGES.parents[3] / "docs" / "generated" / "tables.md").read_text().count(
            f"### `{probe.words.name}`"
        ) == 1
