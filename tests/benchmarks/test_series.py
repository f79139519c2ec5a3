"""A series of benchmarks: a section a script, and one that was stopped goes on."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from headscan.run import BadInput, Run

RUN = Path(__file__).resolve().parents[2] / "benchmarks" / "run.py"
COUNTS = """'''One is {name}.'''
from pathlib import Path
with Path(__file__).with_suffix(".n").open("a") as file:
    file.write("x")
print("| {name} |")
"""


@pytest.fixture
def bench(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("bench_run", RUN)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "bench_run", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "HERE", tmp_path)
    monkeypatch.setattr(module, "PAGE", tmp_path / "BENCHMARKS.md")
    for name in ("first", "second", "third"):
        (tmp_path / f"{name}.py").write_text(COUNTS.format(name=name))
    return module


def series(bench, names=(), **options):
    with Run("benchmarks", out=bench.HERE / "out", **options) as run:
        bench.series(names, run)


def test_a_stopped_series_goes_on(bench):
    broken = bench.HERE / "absent"
    (bench.HERE / "second.py").write_text(
        f'"""Two."""\nfrom pathlib import Path\nprint(Path({str(broken)!r}).read_text())\n'
    )
    with pytest.raises(BadInput, match=r"^second failed"):
        series(bench)
    assert list(bench.sections()) == ["first", "third"]
    broken.write_text("| there |")
    series(bench, resume=True)
    assert list(bench.sections()) == ["first", "second", "third"]
    assert (bench.HERE / "first.n").read_text() == "x"
    assert bench.sections()["first"].startswith(
        "## One is first\n\n`python benchmarks/first.py`, 2"
    )
    assert (bench.HERE / "out" / "protocol.json").is_file()
    with pytest.raises(BadInput, match="nothing to resume"):
        series(bench, resume=True)


def test_other_sections_stay_and_odd_names_are_refused(bench):
    series(bench)
    series(bench, names=["third"])
    assert [len((bench.HERE / f"{name}.n").read_text()) for name in ("first", "third")] == [1, 2]
    assert list(bench.sections()) == ["first", "second", "third"]
    with pytest.raises(BadInput, match="no benchmark fourth; there are first, second, third"):
        series(bench, names=["fourth"])


def test_a_changed_script_is_measured_again_and_what_was_written_by_hand_stays(bench):
    (bench.HERE / "second.py").write_text("raise SystemExit(1)\n")
    with pytest.raises(BadInput):
        series(bench)
    bench.PAGE.write_text(
        bench.PAGE.read_text().replace("| first |", f"| first |\n\n{bench.BY_HAND}\nWhy so.")
    )
    for name in ("first", "second"):
        (bench.HERE / f"{name}.py").write_text(COUNTS.format(name=f"new {name}"))
    series(bench, resume=True)
    assert [
        len((bench.HERE / f"{name}.n").read_text()) for name in ("first", "second", "third")
    ] == [2, 1, 1]
    assert bench.sections()["first"].endswith(f"| new first |\n\n{bench.BY_HAND}\nWhy so.")


def test_what_no_clock_decides_runs_first(bench, monkeypatch):
    assert {path.stem for path in RUN.parent.glob("*.py")} >= bench.UNTIMED | bench.HOURS
    monkeypatch.setattr(bench, "UNTIMED", {"third"})
    order = []
    monkeypatch.setattr(bench, "measured", lambda script: order.append(script.stem) or "")
    series(bench)
    assert order == ["third", "first", "second"]


def test_the_claims_quote_their_sections():
    """Every number of the table of BENCHMARKS.md is in the section of its script."""
    root = Path(__file__).resolve().parents[2]
    page = (root / "BENCHMARKS.md").read_text(encoding="utf-8")
    assert len(page.split()) < 700  # two screens
    measurements = (root / "lab/docs/benchmarks.md").read_text(encoding="utf-8")
    parts = re.split(r"<!-- (\w{9,}) -->\n", measurements)[1:]
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    assert len(rows) > 12
    for claim, numbers, _, script in rows[1:]:
        assert (root / "benchmarks" / f"{script}.py").is_file(), claim
        for number in re.findall(r"\d[\d,.]*\d%?", numbers.split(" (goal")[0].split(" (1 and")[0]):
            assert number in sections[script], (claim, number)
