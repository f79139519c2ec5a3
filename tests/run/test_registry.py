from dataclasses import dataclass
from typing import Annotated

import pytest

from headscan.run import BadInput, Option, Registry


@dataclass(frozen=True)
class Plain:
    pass


@dataclass(frozen=True)
class Stepped:
    steps: Annotated[int | None, Option("Steps.", low=1)] = None


@pytest.fixture
def methods():
    registry: Registry[type] = Registry("method")
    registry.add("plain", Plain)
    registry.add("stepped", Stepped)
    return registry


def test_an_item_is_built_from_its_own_parameters(methods):
    assert methods.build("stepped", {"steps": 3}) == Stepped(3)
    assert methods.build("stepped: steps=3") == Stepped(3)
    assert methods.build("stepped:steps=none") == methods.build("stepped:") == Stepped()


def test_a_parameter_that_the_item_does_not_use_is_refused_by_name(methods):
    with pytest.raises(
        BadInput, match="steps is not a parameter of the method plain; it belongs to stepped"
    ):
        methods.build("plain", {"steps": 3})
    with pytest.raises(
        BadInput,
        match=r"stepp is not a parameter of the method stepped; it has steps\. Did you mean",
    ):
        methods.build("stepped:stepp=3")
    with pytest.raises(BadInput, match=r"written stepped:KEY=VALUE,\.\.\., not '3'"):
        methods.build("stepped:3")


def test_several_items_are_built_from_one_text(methods):
    assert methods.build_each("plain, stepped:steps=3") == [Plain(), Stepped(3)]
    assert methods.build_each("stepped:steps=3,plain") == [Stepped(3), Plain()]
    assert methods.build_each("all") == [Plain(), Stepped()]
    assert methods.build_each("all,stepped:steps=3") == [Plain(), Stepped(3)]
    assert methods.build_each([Stepped(2), "plain"]) == [Stepped(2), Plain()]
    assert methods.build_each(()) == []
    with pytest.raises(BadInput, match="',,' names no method; there are: plain, stepped"):
        methods.build_each(",,")


def test_a_value_out_of_bounds_is_refused(methods):
    with pytest.raises(BadInput, match=r"^steps must be at least 1"):
        methods.build("stepped", {"steps": 0})
    with pytest.raises(BadInput, match="steps takes int, not 'many'"):
        methods.build("stepped:steps=many")


def test_an_unknown_name_lists_what_there_is(methods):
    with pytest.raises(BadInput, match="no method 'x'; there are: plain, stepped"):
        methods["x"]
    with pytest.raises(BadInput, match="no method"):
        methods.match("z*")


def test_several_names_where_one_is_taken_are_refused(methods):
    with pytest.raises(BadInput, match="Only one method can be chosen; there are: plain, stepped"):
        methods.build(["plain", "stepped"])


def test_a_name_is_given_once(methods):
    with pytest.raises(BadInput, match="two methods named 'plain'"):
        methods.add("plain", Stepped)
    assert methods.add("plain", Plain) is Plain
