import base64
import json
import zlib

import hypothesis.strategies as st
from hypothesis import given, settings

from headscan.report.kit.html import packed, script_json
from headscan.report.kit.words import literal


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        st.text(), st.text() | st.floats(allow_nan=False, allow_infinity=False) | st.none()
    )
)
def test_json_in_a_script_says_the_same_and_cannot_end_it(value):
    text = str(script_json(value))
    assert json.loads(text) == value
    assert not set("<>&\u2028\u2029") & set(text)


def test_infinities_become_null():
    assert json.loads(script_json({"a": [float("inf"), (float("nan"), 1)]})) == {
        "a": [None, [None, 1]]
    }


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_no_text_is_plotlys_markup_template_or_tex(text):
    shown = literal(text)
    assert not set("<>$%") & set(shown)
    assert not any(ord(c) < 32 for c in shown)


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_what_is_packed_comes_back_and_is_no_markup(text):
    written = str(packed(text))
    assert not set("<\"'\\") & set(written)
    sized = base64.b85decode(written.replace("/", "<"))
    assert zlib.decompress(sized[4 : 4 + int.from_bytes(sized[:4], "big")]).decode() == text
