import inspect
import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Literal

import pytest

from headscan.run import BadInput, Option, Run, Running, Settings, options_of, takes, verb


@dataclass(frozen=True, kw_only=True)
class Loading(Settings):
    dtype: Annotated[Literal["auto", "float32"], Option("Weights.")] = "auto"


@dataclass(frozen=True)
class Working(Loading, Running):
    text: Annotated[str, Option("A text.", content=True)]
    _: KW_ONLY
    share: Annotated[float, Option("A share.", low=0, high=1)] = 0.5
    rate: Annotated[float | None, Option("A rate.", above=0)] = None
    kind: Annotated[str, Option("A kind.", choices=("a", "b"))] = "a"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"share": -0.1}, "--share must be at least 0"),
        ({"share": 1.5}, "--share must be at most 1"),
        ({"share": math.nan}, "--share must be a finite number"),
        ({"rate": math.inf}, "--rate must be a finite number"),
        ({"rate": 0.0}, "--rate must be greater than 0"),
        ({"kind": "c"}, "--kind must be one of a, b"),
        ({"dtype": "float8"}, "--dtype must be auto or float32"),
        ({"seed": -1}, "--seed must be at least 0"),
        ({"share": True}, "--share takes a number"),
        ({"resume": True}, "--out"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_its_name(change, said):
    with pytest.raises(BadInput, match=said):
        Working("t", **change)


def test_fields_come_in_order_and_those_without_default_are_required():
    fields = {field.name: field for field in options_of(Working)}
    assert fields["text"].required
    assert fields["text"].positional
    assert not fields["dtype"].required
    assert not fields["dtype"].positional
    assert fields["share"].flag == "--share"


def test_part_gives_the_fields_of_a_parent():
    assert Working("t", dtype="float32").part(Loading) == {"dtype": "float32"}


def test_a_function_that_takes_settings_is_called_with_their_fields():
    @takes(Loading)
    def load(name: str, loading: Loading) -> str:
        return f"{name} in {loading.dtype}"

    assert load("m", dtype="float32") == load(name="m", dtype="float32") == "m in float32"
    assert list(inspect.signature(load).parameters) == ["name", "dtype"]
    with pytest.raises(TypeError, match="nosuch"):
        load("m", nosuch=1)
    with pytest.raises(TypeError, match="name"):
        load()


def test_a_verb_refuses_an_option_that_is_not_there():
    @verb("test-verb", Working)
    def work(model: str, settings: Working, run: Run):
        raise AssertionError("the work must not begin")

    with pytest.raises(TypeError, match="nosuchoption"):
        work("m", "t", nosuchoption=3)
    with pytest.raises(BadInput, match="cannot be written"):
        work("m", "t", out="/dev/null/x")


def test_several_numbers_may_be_written_as_one_text():
    @dataclass(frozen=True, kw_only=True)
    class Several(Settings):
        noise: Annotated[Sequence[float], Option("Noise.", low=0)] = (0.5,)
        bits: Annotated[Sequence[int], Option("Bits.", low=2)] = ()

    made = Several(noise="0, 0.8", bits="8,4")  # type: ignore[arg-type]
    assert (made.noise, made.bits) == ((0.0, 0.8), (8, 4))
    refused = (({"noise": "0,-1"}, "at least 0"), ({"bits": "8,4.5"}, "whole numbers"), ({"noise": "nan"}, "finite"))
    for options, words in refused:
        with pytest.raises(BadInput, match=words):
            Several(**options)
