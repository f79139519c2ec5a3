"""A scan in Python: a tidy table, a row by its site, a page."""

from dataclasses import replace

import pytest

import headscan


def test_a_result_is_read_as_a_table_and_by_its_sites():
    result = headscan.scan(["gpt-vanilla", "gpt-headless"], "stories", context=32, max_tokens=256)
    wide = result.frame(long=False)
    long = result.frame()
    assert wide.index.names == long.index.names == ["model", "site"]
    assert list(long.columns) == ["measure", "value", "low", "high"]
    assert not any(name.endswith("_interval") for name in wide.columns)
    row = result["gpt-headless", "block.0"]
    assert (row["model"], row["site"]) == ("gpt-headless", "block.0")
    low, high = row.interval("average_cosine")
    at = ("gpt-headless", "block.0")
    assert wide.loc[
        at, ["average_cosine", "average_cosine_low", "average_cosine_high"]
    ].tolist() == [row["average_cosine"], low, high]
    assert long.loc[at].set_index("measure").loc["average_cosine"].tolist() == [
        row["average_cosine"],
        low,
        high,
    ]
    assert len(result) == len(wide) == len(list(result)) == 14
    assert "block.0" in result
    assert "block.99" not in result
    for name in ("block.0", "block.99", ("nobody", "block.0")):
        with pytest.raises(KeyError):  # two models have the first
            result[name]
    alone = replace(result, sites=[row for row in result.sites if row["model"] == "gpt-vanilla"])
    assert alone["block.0"] is alone.site("block.0")
    assert replace(result, sites=[])


def test_the_page_is_html_and_saved_beside_the_result(tmp_path):
    result = headscan.scan("gpt-vanilla", "stories", context=32, max_tokens=128)
    html = result.page()  # of one that was not saved, too
    assert html.startswith("<!doctype html>")
    folder = result.save(tmp_path)
    assert (folder / "report.html").read_text("utf-8") == html
    (tmp_path / "report.html").unlink()
    assert headscan.load(tmp_path).page().startswith("<!doctype html>")
    assert not (tmp_path / "report.html").exists()  # a folder that was only read is left as it is
