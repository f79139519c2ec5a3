"""Every probe and extra measure points at one of the pages of lab/docs/methods/measures, whose
examples pytest runs by itself.
"""

from pathlib import Path

from headscan.measures import PROBES

PAGES = Path(__file__).resolve().parents[2] / "lab" / "docs" / "methods" / "measures"


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
