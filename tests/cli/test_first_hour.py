"""What happens to a finished result, and how one is found again."""

import re
import shutil

import numpy as np
import pytest

import headscan as package
from tests.command_line import headscan


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    for name in ("one", "two"):
        np.save(tmp_path / f"{name}.npy", draw.standard_normal((64, 8)))
    return tmp_path


def test_a_finished_result_is_replaced_only_where_that_is_said(place):
    assert headscan("scan", "one.npy", "--out", "kept").status == 0
    before = (place / "kept" / "result.json").read_bytes()
    for words in (("one.npy",), ("two.npy",), ("one.npy", "--seed", "3")):
        said = headscan("scan", *words, "--out", "kept")
        assert (said.status, said.stdout) == (2, "")
        assert (
            "kept holds a finished result (headscan scan one.npy --out kept). Give --overwrite"
            in said.stderr
        )
    assert (place / "kept" / "result.json").read_bytes() == before
    assert not (place / "kept" / ".resume").exists()
    assert headscan("scan", "two.npy", "--out", "kept", "--overwrite").status == 0
    assert package.load("kept").models[0].name != package.load("kept").protocol.command
    assert "two.npy" in package.load("kept").protocol.command


def test_the_resume_of_a_finished_run_prints_it(place):
    first = headscan("scan", "one.npy", "--out", "kept")
    again = headscan("scan", "one.npy", "--out", "kept", "--resume")
    assert (again.status, again.stdout) == (0, first.stdout)
    other = headscan("scan", "two.npy", "--out", "kept", "--resume")
    assert (other.status, "is finished, and was another one" in other.stderr) == (2, True)
    nothing = headscan("scan", "one.npy", "--out", "new", "--resume")
    assert (nothing.status, "nothing to resume" in nothing.stderr) == (2, True)


def test_the_default_folder_is_a_new_one_where_it_is_taken(place):
    said = [headscan("scan", "one.npy").stdout for _ in range(3)]
    pages = [
        re.search(r"page: file://\S*/(headscan-results/\S+)/report.html", one)[1] for one in said
    ]
    assert pages == [f"headscan-results/scan-one.npy{end}" for end in ("", "-2", "-3")]
    again = headscan("scan", "one.npy", "--resume")
    assert (again.status, again.stdout) == (0, said[2])


def test_open_shows_a_page_and_a_list_of_pages(place):
    for name in ("one", "two"):
        assert headscan("scan", f"{name}.npy", "--out", f"headscan-results/<{name}>").status == 0
    shutil.copytree("headscan-results/<one>", "headscan-results/damaged")
    (place / "headscan-results" / "damaged" / "result.json").write_text("[")
    said = headscan("open")
    assert (said.status, said.stderr) == (0, "")
    listed = (place / "headscan-results" / "index.html").read_text()
    assert re.findall(r'href="(\S+?)/report.html">([^<]*)<', listed) == [
        ("%3Ctwo%3E", "&lt;two&gt;"),
        ("%3Cone%3E", "&lt;one&gt;"),
    ]
    (place / "headscan-results" / "<one>" / "report.html").unlink()
    assert headscan("open", "headscan-results/<one>").stdout.endswith("%3Cone%3E/report.html\n")
    assert (place / "headscan-results" / "<one>" / "report.html").stat().st_size > 1_000_000
    for words, why in (
        (("nowhere",), "There is no folder nowhere"),
        (("headscan-results/<one>/..",), None),
        ((".",), "no result in ."),
    ):
        done = headscan("open", *words)
        assert (
            (done.status, done.stderr) == (0, "")
            if why is None
            else (done.status == 2 and why in done.stderr)
        )
