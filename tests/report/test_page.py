from __future__ import annotations

import json

import hypothesis.strategies as st
import plotly.graph_objects as go
import pytest
from hypothesis import given, settings

from headscan.report import page
from headscan.report.words import literal


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(), st.text() | st.floats(allow_nan=False, allow_infinity=False) | st.none()))
def test_json_in_a_script_says_the_same_and_cannot_end_it(value):
    text = str(page.script_json(value))
    assert json.loads(text) == value
    assert not set("<>&\u2028\u2029") & set(text)


def test_infinities_become_null():
    assert json.loads(page.script_json({"a": [float("inf"), (float("nan"), 1)]})) == {"a": [None, [None, 1]]}


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_no_text_is_plotlys_markup_template_or_tex(text):
    shown = literal(text)
    assert not set("<>$%") & set(shown)
    assert not any(ord(c) < 32 for c in shown)


def test_the_shell_takes_any_figure_and_escapes_the_title():
    html = page.render(
        "page.html.j2", title="<i>t</i>", figures={"one": go.Figure(go.Scatter(y=[1, 2]))}, data={"x": "</script>"}
    )
    assert "<title>&lt;i&gt;t&lt;/i&gt;</title>" in html
    payload = json.loads(html.split('id="data">')[1].split("\n</script>")[0])
    assert payload["data"] == {"x": "</script>"}
    assert payload["figures"]["one"]["data"][0]["y"] == [1, 2]


def test_a_name_the_template_does_not_get_is_an_error():
    with pytest.raises(Exception, match="undefined"):
        page.render("scan.html.j2", title="t")
