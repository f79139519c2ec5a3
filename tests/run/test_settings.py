import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
import torch

from headscan.run import BadInput, Option, Out, Result, Resume, Run, Seed, Settings, verb
from headscan.run.verbs import VERBS

Dtype = Annotated[Literal["auto", "float32"], Option("Weights.")]


@dataclass(frozen=True, kw_only=True)
class Loading(Settings):
    dtype: Dtype = "auto"
    device: Annotated[str, Option("Where.")] = "cpu"


@verb("test-verb")
def work(
    run: Run,
    model: str,
    text: Annotated[str, Option("A text.", content=True)],
    *,
    share: Annotated[float, Option("A share.", low=0, high=1)] = 0.5,
    rate: Annotated[float | None, Option("A rate.", above=0)] = None,
    kind: Annotated[str, Option("A kind.", choices=("a", "b"))] = "a",
    dtype: Dtype = "auto",
    out: Out = None,
    resume: Resume = False,
    seed: Seed = 0,
):
    raise AssertionError("the work must not begin")


@pytest.mark.parametrize(
    ("change", "message"),
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
def test_a_value_that_cannot_be_is_refused_by_its_name(change, message):
    with pytest.raises(BadInput, match=message):
        work("m", "t", **change)


def test_fields_come_in_order_and_those_without_default_are_required():
    fields = {field.name: field for field in work.verb.options()}
    assert fields["text"].required
    assert fields["text"].positional
    assert not fields["dtype"].required
    assert not fields["dtype"].positional
    assert fields["share"].flag == "--share"


def test_the_arguments_of_a_call_are_checked_and_complete():
    arguments = work.verb.arguments(("m", "t"), {"dtype": "float32"})
    assert arguments["dtype"] == "float32"
    assert set(arguments) == set(inspect.signature(work).parameters)


def test_a_verb_keeps_its_signature_and_refuses_what_is_not_there():
    assert inspect.signature(work).parameters["share"].annotation is float
    for options, message in (
        ({"nosuchoption": 3}, r"test-verb\(\) has no option"),
        ({"shares": 1}, "'share'"),
    ):
        with pytest.raises(TypeError, match=message):
            work("m", "t", **options)
    with pytest.raises(TypeError, match="text"):
        work("m")
    with pytest.raises(BadInput, match="cannot be written"):
        work("m", "t", out="/dev/null/x")


def test_several_numbers_may_be_written_as_one_text():
    @dataclass(frozen=True, kw_only=True)
    class Several(Settings):
        noise: Annotated[Sequence[float], Option("Noise.", low=0)] = (0.5,)
        bits: Annotated[Sequence[int], Option("Bits.", low=2)] = ()

    several = Several(noise="0, 0.8", bits="8,4")  # type: ignore[arg-type]
    assert (several.noise, several.bits) == ((0.0, 0.8), (8, 4))
    refused = (
        ({"noise": "0,-1"}, "at least 0"),
        ({"bits": "8,4.5"}, "whole numbers"),
        ({"noise": "nan"}, "finite"),
    )
    for options, message in refused:
        with pytest.raises(BadInput, match=message):
            Several(**options)


def test_no_verb_multiplies_in_tf32_whatever_a_script_allowed():
    allowed = []

    @verb("multiplied")
    def multiplied(run: Run, model: str) -> Result:
        allowed.extend([torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32])
        raise BadInput("enough")

    allowed_before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        with pytest.raises(BadInput, match="enough"):
            multiplied("x")
        assert (allowed, torch.backends.cuda.matmul.allow_tf32) == ([False, False], True)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = allowed_before
        VERBS.pop("multiplied")
