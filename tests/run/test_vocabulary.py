"""The vocabulary: one term a number, and everything that shows the number takes its words
from it.
"""

from dataclasses import dataclass
from typing import Annotated

import pytest
from pydantic import TypeAdapter

from headscan.run.vocabulary import Term, terms_of

GAP = Term(
    "relative gap",
    "How far the bound is away.",
    formula="(p − d)/p",
    range=(0, 1),
    undefined="p = 0",
    source="here",
)


@dataclass(frozen=True)
class Words(Term):
    cost: str = ""


@dataclass(frozen=True)
class Row:
    site: str
    gap: Annotated[float | None, GAP]
    words: dict[str, Words]


def test_terms_of_a_dataclass():
    terms = terms_of(Row)
    assert list(terms) == ["site", "gap", "words"]
    assert terms["gap"] is GAP
    assert terms["site"].title == "site"
    with pytest.raises(TypeError):
        terms_of(int)


def test_the_json_schema_says_what_the_term_says():
    schema = TypeAdapter(Row).json_schema(mode="serialization")
    gap = schema["properties"]["gap"]
    assert gap["title"] == "relative gap"
    assert (gap["minimum"], gap["maximum"]) == (0, 1)
    assert (
        gap["description"]
        == "How far the bound is away. (p − d)/p. Undefined for p = 0. Source: here."
    )
    assert "cost" in schema["$defs"]["Words"]["properties"]


def test_a_term_can_be_read_back():
    row = TypeAdapter(Row).validate_python(
        {"site": "a", "gap": None, "words": {"x": {"title": "X", "cost": "O(n)"}}}
    )
    assert row.words["x"] == Words("X", cost="O(n)")
