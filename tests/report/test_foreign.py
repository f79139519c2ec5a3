"""Results that another program wrote, with nothing in them: each shows something or is refused in
one sentence.
"""

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Literal

import pytest

import headscan
from headscan.run import BadInput, Result
from tests.command_line import headscan as command

for home in headscan._KINDS.values():
    import_module(f"headscan.{home}")
for entry in entry_points(group=headscan.RESULTS):
    entry.load()
KINDS = sorted(kind for kind in Result.kinds if kind and not kind.startswith("test"))
METHODS = ("table", "to_latex", "frame", "plot", "_repr_html_", "__repr__", "page")


def blank(hint: Any) -> Any:
    """Return the emptiest value of a type."""
    if typing.is_typeddict(hint):
        return {name: blank(kind) for name, kind in typing.get_type_hints(hint).items()}
    hint = getattr(hint, "__value__", hint)
    origin = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    if origin is typing.Annotated:
        return blank(arguments[0])
    if origin is Literal:
        return arguments[0]
    if origin in (typing.Union, types.UnionType):
        return None if type(None) in arguments else blank(arguments[0])
    if origin is tuple and Ellipsis not in arguments:
        return [blank(argument) for argument in arguments]
    if dataclasses.is_dataclass(hint):
        return blank_fields(hint)
    kind = origin or hint
    if kind in (dict, Mapping):
        return {}
    if kind in (list, tuple, Sequence, set, frozenset):
        return []
    return {bool: False, int: 0, float: 0.0, str: ""}.get(kind)


def blank_fields(kind: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that have no default."""
    hints = typing.get_type_hints(kind, include_extras=True)
    missing = dataclasses.MISSING
    return {
        field.name: blank(hints[field.name])
        for field in dataclasses.fields(kind)
        if field.init and field.default is missing and field.default_factory is missing
    }


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_result_shows_something_or_is_refused_in_a_sentence(kind):
    result = None
    with suppress(BadInput):
        result = Result.kinds[kind].of_document(blank_fields(Result.kinds[kind]))
    for method in METHODS if result is not None else ():
        with suppress(BadInput):
            getattr(result, method)()


def test_open_refuses_a_result_whose_arrays_are_gone(tmp_path):
    out = tmp_path / "out"
    made = command("weights", "gpt-vanilla-early", "--out", str(out))
    assert made.status == 0, made.stderr
    document = (out / "result.json").read_text()
    for name in ("arrays.safetensors", "report.html"):
        (out / name).unlink()
    ended = command("open", str(out))
    assert (ended.status, "arrays.safetensors is not the one" in ended.stderr) == (2, True)
    (out / "result.json").write_text(document.replace('"files"', '"other"'))
    ended = command("open", str(out))
    assert ended.status in (0, 2)
    assert "Traceback" not in ended.stderr
