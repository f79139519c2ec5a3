"""What happens to a finished result, and how one is found again."""

import re
import shutil

import numpy as np
import pytest

import headscan as package
from tests.command_line import headscan


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    for name in ("one", "two"):
        np.save(tmp_path / f"{name}.npy", draw.standard_normal((64, 8)))
    return tmp_path


def test_a_finished_result_is_replaced_only_where_that_is_said(folder):
    assert headscan("scan", "one.npy", "--out", "kept").status == 0
    content = (folder / "kept" / "result.json").read_bytes()
    for arguments in (("one.npy",), ("two.npy",), ("one.npy", "--seed", "3")):
        ended = headscan("scan", *arguments, "--out", "kept")
        assert (ended.status, ended.stdout) == (2, "")
        assert (
            "kept holds a finished result (headscan scan one.npy --out kept). Give --overwrite"
            in ended.stderr
        )
    assert (folder / "kept" / "result.json").read_bytes() == content
    assert not (folder / "kept" / ".resume").exists()
    assert headscan("scan", "two.npy", "--out", "kept", "--overwrite").status == 0
    assert package.load("kept").models[0].name != package.load("kept").protocol.command
    assert "two.npy" in package.load("kept").protocol.command


def test_the_resume_of_a_finished_run_prints_it(folder):
    first = headscan("scan", "one.npy", "--out", "kept")
    again = headscan("scan", "one.npy", "--out", "kept", "--resume")
    assert (again.status, again.stdout) == (0, first.stdout)
    other_file = headscan("scan", "two.npy", "--out", "kept", "--resume")
    assert (other_file.status, "is finished, and was another one" in other_file.stderr) == (2, True)
    nothing = headscan("scan", "one.npy", "--out", "new", "--resume")
    assert (nothing.status, "nothing to resume" in nothing.stderr) == (2, True)


def test_the_default_folder_is_a_new_one_where_it_is_taken(folder):
    outputs = [headscan("scan", "one.npy").stdout for _ in range(3)]
    pages = [
        re.search(r"page: file://\S*/(headscan-results/\S+)/report.html", output)[1]
        for output in outputs
    ]
    assert pages == [f"headscan-results/scan-one.npy{end}" for end in ("", "-2", "-3")]
    again = headscan("scan", "one.npy", "--resume")
    assert (again.status, again.stdout) == (0, outputs[2])


def test_open_shows_a_page_and_a_list_of_pages(folder):
    for name in ("one", "two"):
        assert headscan("scan", f"{name}.npy", "--out", f"headscan-results/<{name}>").status == 0
    shutil.copytree("headscan-results/<one>", "headscan-results/damaged")
    (folder / "headscan-results" / "damaged" / "result.json").write_text("[")
    ended = headscan("open")
    assert (ended.status, ended.stderr) == (0, "")
    listed = (folder / "headscan-results" / "index.html").read_text()
    assert re.findall(r'href="(\S+?)/report.html"><bdi>([^<]*)<', listed) == [
        ("%3Ctwo%3E", "&lt;two&gt;"),
        ("%3Cone%3E", "&lt;one&gt;"),
    ]
    assert "highest level" in listed
    assert re.search(r"<bdi>[!·+] (alarm|notice|fine)</bdi>", listed)
    assert len(listed) < 100_000  # no pictures
    (folder / "headscan-results" / "<one>" / "report.html").unlink()
    assert headscan("open", "headscan-results/<one>").stdout.endswith("%3Cone%3E/report.html\n")
    assert (folder / "headscan-results" / "<one>" / "report.html").stat().st_size > 1_000_000
    for arguments, why in (
        (("nowhere",), "There is no folder nowhere"),
        (("headscan-results/<one>/..",), None),
        ((".",), "no result in ."),
    ):
        done = headscan("open", *arguments)
        assert (
            (done.status, done.stderr) == (0, "")
            if why is None
            else (done.status == 2 and why in done.stderr)
        )
