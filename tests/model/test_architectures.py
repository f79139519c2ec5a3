"""Architectures of every kind of wiring give their own states; docs/generated/coverage.md has all.

`make architectures` examines every entry of transformers' mappings and writes the page.
"""

import importlib.util
import sys

import pytest

from tests.model.tiny import ROOT

CHEAP = {
    "causal": "gpt2 llama gemma3_text gpt_neox mamba rwkv mixtral qwen3_moe granite cohere bloom "
    "mpt falcon opt phi jamba big_bird roc_bert olmo2",
    "masked": "bert roberta albert longformer funnel modernbert xlm ibert",
    "sequence to sequence": "t5 led marian",
    "encoder": "umt5",
    "multimodal": "llava",
}


def architectures():
    """scripts/architectures.py as a module."""
    if "architectures" not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            "architectures", ROOT / "scripts" / "architectures.py"
        )
        sys.modules["architectures"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["architectures"])
    return sys.modules["architectures"]


script = architectures()
CHOSEN = [entry for entry in script.entries() if entry.model_type in CHEAP[entry.kind].split()]


@pytest.mark.parametrize("entry", CHOSEN, ids=lambda entry: f"{entry.kind} {entry.model_type}")
def test_the_row_of_an_entry(entry):
    row = script.examine(entry)
    assert row.state == ("refused" if entry.model_type == "xlm" else "equal"), row.text
    assert str(row) in script.PAGE.read_text("utf-8"), "run: make architectures"


def test_the_page_counts_250_equal_entries_and_none_wrong():
    text = script.PAGE.read_text("utf-8")
    assert int(text.partition("equal to the model's own (to 1e-9) | ")[2].split()[0]) >= 250
    assert "| wrong | 0 |" in text
    assert "| raised an error | 0 |" in text
    assert "RAISED" not in text


def test_every_verb_ends_with_a_result_or_a_sentence_on_two_towers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    entry = next(entry for entry in script.entries() if entry.model_type == "t5")
    cells = dict(zip(script.VERBS, script.try_verbs(entry), strict=True))
    assert cells["checkup"] == cells["weights"] == "done"
    assert not [cell for cell in cells.values() if cell.startswith("RAISED")]
