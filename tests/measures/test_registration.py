"""A new measure and a new probe are one file each: command line, JSON, frame, terminal and page
have them then.
"""

import importlib
import io
import sys

import numpy as np
import pytest
import torch
from rich.console import Console
from transformers import GPT2Config, GPT2LMHeadModel

from headscan import Lens, scan
from headscan.measures import MEASURES, PROBES
from headscan.model import ByteTokenizer
from headscan.run import BadInput
from headscan.scanner.result import ScanResult

MEASURE = '''
import numpy as np
from headscan.measures import Term, measure
from headscan.statistics.linearisation import Gradient

@measure(
    Term(
        "Share of three", "The energy on the first three directions.",
        formula="Σᵢ₌₁³ σᵢ²/Σσ²", range=(0.0, 1.0),
        source="made here", undefined="no vectors",
    ),
    group="spectra", spectral=True, core=False,
    reference=lambda rows: float((s := np.linalg.svd(rows)[1] ** 2)[:3].sum() / s.sum()),
    gradient=lambda at: Gradient(
        energies=((np.arange(16) < 3) - at.energies[:3].sum() / at.trace) / at.trace
    ),
)
def share_of_three(cloud):
    """Share of energy on the first three directions."""
    total = cloud.energies.sum() if cloud.count else 0.0
    return float(cloud.energies[:3].sum() / total) if total > 0 else None
'''
PROBE = '''
from headscan.measures.measure import Field, ProbeWords
from headscan.measures.probe import Probe

class WindowsProbe(Probe):
    """How many windows were kept."""

    words = ProbeWords(
        name="kept_windows", title="Windows kept", group="words", literature="none",
        sentence="How many windows were kept?", position="It counts windows.",
        fields={"kept": Field("windows", "Windows kept.", range=(0, None), interval="a count")},
    )

    def rows(self, setup, data):
        return [{"site": "text", "kept": len(data.windows)}]
'''


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    (tmp_path / "brought_measure.py").write_text(MEASURE)
    (tmp_path / "brought_probe.py").write_text(PROBE)
    monkeypatch.syspath_prepend(tmp_path)
    known = set(MEASURES) | set(PROBES)
    for name in ("brought_measure", "brought_probe"):
        importlib.import_module(name)
    yield known
    for registry, name in ((MEASURES, "share_of_three"), (PROBES, "kept_windows")):
        registry._items.pop(name)
    for name in ("brought_measure", "brought_probe"):
        sys.modules.pop(name)


def test_one_file_each_is_seen_everywhere(plugin, tmp_path):
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=256,
        n_positions=64,
        n_embd=16,
        n_layer=1,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    lens = Lens(GPT2LMHeadModel(config).eval(), ByteTokenizer(), name="hen")
    out = tmp_path / "out"
    result = scan(
        lens, ["A hen is a hen. " * 60], context=32, measures="share_of_three,kept_windows", out=out
    )
    assert result.measures["share_of_three"].title == "Share of three"
    assert 0 < result.site("block.0").number("share_of_three") <= 1
    assert result.site("block.0").interval("share_of_three") is not None
    assert result.tables["kept_windows"][0]["kept"] == 30
    assert [probe.name for probe in result.probes] == ["kept_windows"]
    assert "share_of_three" in result.frame(long=False).columns
    assert result.frame("kept_windows")["kept"].tolist() == [30]
    console = Console(file=io.StringIO(), width=200)
    console.print(result.table())
    for shown in (result.page(), console.file.getvalue()):
        assert "Windows kept" in shown
        assert "Share of three" in shown
    # A saved result carries the words: it is shown where nobody has the plug-in.
    assert ScanResult.load(out).document == result.document


def test_a_measure_may_be_given_as_a_function():
    def widest(cloud):
        """Energy of the first direction."""
        return float(cloud.energies[0])

    rows = np.random.default_rng(0).standard_normal((400, 8)).astype(np.float32)
    try:
        result = scan(rows, measures=[widest, "drift"])
    finally:
        MEASURES._items.pop("widest")
    long = result.frame()
    assert {"widest", "drift"} <= set(long["measure"])
    assert result.measures["widest"].sentence == "Energy of the first direction."
    assert any("widest" in name for name in result.protocol.settings["measures"])
    assert result.to_latex().count(r"\begin{tabular}") == 1
    assert "All numbers" in result.page()
    with pytest.raises(BadInput, match="There is no table 'nothing'; there are: "):
        result.to_latex("nothing")
    with pytest.raises(BadInput, match="needs a name"):
        scan(rows, measures=[lambda cloud: 1.0])
    widest.__name__ = "drift"
    with pytest.raises(BadInput, match="give your function another name"):
        scan(rows, measures=[widest])
