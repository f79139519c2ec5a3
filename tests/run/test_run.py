"""A run's folder is held by one process, what it stored is whole or refused, and it goes on only
where nothing changed.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import pytest
import torch

import headscan
from headscan.run import (
    PENDING,
    BadInput,
    Finding,
    Option,
    Out,
    Parts,
    Result,
    Resume,
    Row,
    Run,
    Seed,
    halving,
    verb,
)
from headscan.run.files import write_atomic


@dataclass(frozen=True)
class Square:
    of: int
    value: float | None


@dataclass(frozen=True, kw_only=True, repr=False)
class CountResult(Result):
    kind: ClassVar[str] = "test-count"
    squares: list[Square]
    rows: list[Row]


DONE: list[int] = []


def square(number):
    DONE.append(number)
    return Square(number, number**2 + 0.1)


@verb("test-count")
def count(
    run: Run,
    name: str,
    *,
    upto: Annotated[int, Option("How far.", low=0)] = 3,
    batch: Annotated[int, Option("At once.", identity=False)] = 1,
    out: Out = None,
    resume: Resume = False,
    seed: Seed = 0,
) -> CountResult:
    if name == "refused":
        raise BadInput("No.")
    run.identify(f"the content of {name}", len(name))
    squares = []
    for number in range(upto):
        squares.append(run.unit(f"square-{number}", Square, lambda number=number: square(number)))
        if name == "stops" and number == 1 and not run.resume:
            raise KeyboardInterrupt
        if name == "refused late" and number == 1:
            raise BadInput("No.")
    return CountResult(
        protocol=run.protocol(), squares=squares, rows=[Row(a=1.5, a_interval=(1, 2))]
    )


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    DONE.clear()
    monkeypatch.setattr(CountResult, "page", lambda self: "<p>")


def test_an_interrupted_run_goes_on_and_ends_as_an_undisturbed_one(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        count("stops", out=tmp_path / "a")
    assert DONE == [0, 1]
    resumed = count("stops", out=tmp_path / "a", resume=True, batch=7)
    assert DONE == [0, 1, 2]
    undisturbed = count("other", out=tmp_path / "b")
    assert resumed.squares == undisturbed.squares
    assert not (tmp_path / "a" / ".resume").exists()
    assert not (tmp_path / "a" / ".lock").exists()


def test_a_name_that_no_file_can_have_is_refused_in_a_sentence(tmp_path):
    with pytest.raises(BadInput, match="no file or folder of so long a name"):
        headscan.scan("x" * 5000, "stories", out=tmp_path / "new")
    assert not (tmp_path / "new").exists()
    with pytest.raises(
        BadInput, match=r"The output folder .* cannot be written: File name too long"
    ):
        headscan.scan("gpt-vanilla", "stories", out=tmp_path / ("x" * 5000))


def test_what_is_refused_before_any_work_leaves_nothing(tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "mine.txt").write_text("kept")
    for folder in ("new", "old"):
        with pytest.raises(BadInput):
            count("refused", out=tmp_path / folder)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["mine.txt", "old"]
    with pytest.raises(BadInput):
        count("refused late", out=tmp_path / "new")
    with pytest.raises(BadInput, match="No"):
        count("refused late", out=tmp_path / "new", resume=True)
    assert DONE == [0, 1]
    assert (tmp_path / "new" / ".resume").is_dir()


@pytest.mark.parametrize(
    ("change", "message"),
    [({"upto": 5}, "--upto was 3 and is 5 now"), ({"seed": 1}, "--seed was 0 and is 1 now")],
)
def test_a_changed_setting_is_named(tmp_path, change, message):
    with pytest.raises(KeyboardInterrupt):
        count("stops", out=tmp_path)
    with pytest.raises(BadInput, match=message):
        count("stops", out=tmp_path, resume=True, **change)


def test_a_changed_content_is_named(tmp_path):
    with Run("v", out=tmp_path) as run:
        run.identify("the text my.txt", "abc")
    with Run("v", out=tmp_path, resume=True) as run:
        run.identify("the text my.txt", "abc")
        run.identify("the weights of m", "new things may be named")
        with pytest.raises(BadInput, match=r'the text my\.txt was "abc" and is "abd" now'):
            run.identify("the text my.txt", "abd")


def test_inputs_are_two_closed_sets(tmp_path):
    """Each stored input is named again and is equal, and before the last of them no other may be
    named.
    """
    with Run("v", out=tmp_path) as run:
        run.identify("model 1", "abc")
        run.identify("model 2", "abc")
    record = (tmp_path / ".resume" / "identity.json").read_bytes()
    with Run("v", out=tmp_path, resume=True) as run:
        run.identify("model 1", "abc")
        with pytest.raises(BadInput, match="cannot be resumed: it stored nothing of model 3"):
            run.identify("model 3", "abc")
        with pytest.raises(
            BadInput,
            match="cannot be resumed: it was made of model 2, which is not among the inputs now",
        ):
            run.finish(CountResult(protocol=run.protocol(), squares=[], rows=[]))
    assert (tmp_path / ".resume" / "identity.json").read_bytes() == record
    assert not (tmp_path / "result.json").exists()
    with Run("v", out=tmp_path, resume=True) as run:
        run.identify("model 1", PENDING)
        run.identify("model 2", "abc")
        run.identify("model 3", "an input that the interrupted run had not come to")
    with (
        Run("v", out=tmp_path, resume=True) as run,
        pytest.raises(BadInput, match='model 1 was "abc" and is "abd" now'),
    ):
        run.identify("model 1", "abd")


def test_an_input_that_was_not_there_yet_is_named_later(tmp_path):
    with Run("v", out=tmp_path) as run:
        run.identify("model 1", PENDING)
        run.identify("model 2", "abc")
    for _ in range(2):
        with Run("v", out=tmp_path, resume=True) as run:
            run.identify("model 1", "downloaded")
            run.identify("model 2", "abc")
    with (
        Run("v", out=tmp_path, resume=True) as run,
        pytest.raises(BadInput, match='model 1 was "downloaded"'),
    ):
        run.identify("model 1", "another")


@pytest.mark.parametrize(
    ("change", "message"),
    [("add", "it was made of --later, which is"), ("drop", "it stored nothing of --upto")],
)
def test_settings_are_two_closed_sets(tmp_path, change, message):
    with pytest.raises(KeyboardInterrupt):
        count("stops", out=tmp_path)
    record = tmp_path / ".resume" / "identity.json"
    identity = json.loads(record.read_text())
    if change == "add":
        identity["settings"]["--later"] = None
    else:
        del identity["settings"]["--upto"]
    record.write_text(json.dumps(identity))
    with pytest.raises(BadInput, match=message):
        count("stops", out=tmp_path, resume=True)
    assert json.loads(record.read_text()) == identity


def test_nothing_to_resume_is_said(tmp_path):
    with pytest.raises(BadInput, match="nothing to resume"):
        count("x", out=tmp_path, resume=True)


def test_a_second_run_is_told_who_holds_the_folder(tmp_path):
    code = f"""
from headscan.run import BadInput, Run
try:
    with Run("v", out={str(tmp_path)!r}):
        print("taken twice")
except BadInput as error:
    print(error)
"""
    with Run("v", out=tmp_path, command="headscan v --the-first"):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
    assert "is in use by process" in done.stdout
    assert "headscan v --the-first" in done.stdout
    with Run("v", out=tmp_path):
        pass  # free again


def test_large_parts_are_cut_into_files_and_replaced_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(Parts, "PIECE", 100)
    for rank in (0, 1):
        parts = Parts(tmp_path, rank=rank)
        for round in range(3):
            parts.write(
                "pass", {f"x{k}": torch.full((6,), float(k + round)) for k in range(10)}, note=round
            )
            left = tmp_path / f"pass.{rank}.9.{'0' * 16}.safetensors"
            left.touch()  # of a write that was killed
        parts.write("other", {"y": torch.zeros(1)})
        assert not left.exists()
    assert len(list(tmp_path.glob("*.safetensors"))) == 2 * (3 + 1)
    part = Parts(tmp_path, rank=1).read("pass")
    assert (part.note, sorted(part.tensors)) == (2, [f"x{k}" for k in range(10)])
    assert all(part.tensors[f"x{k}"].tolist() == [float(k + 2)] * 6 for k in range(10))


def test_storing_takes_a_bounded_share_of_the_time(tmp_path, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("headscan.run.parts.time.monotonic", lambda: clock[0])
    monkeypatch.setattr(
        "headscan.run.parts.write_atomic", lambda *_: clock.__setitem__(0, clock[0] + 0.5)
    )
    parts = Parts(tmp_path)
    state = {"x": torch.zeros(2**19)}
    stored = []
    while clock[0] < 1000:
        clock[0] += 1
        if parts.due() and parts.affordable(2**21):
            stored.append(clock[0])
            parts.write("pass", state)
    assert stored[0] == 10  # by the rate that is supposed
    assert stored[1] > 90  # by what it took
    assert 15 <= len(stored) <= 0.02 * 1000 + 1  # one second each
    assert not Parts(tmp_path).affordable(1e12)


@pytest.mark.parametrize("harm", ["cut", "flip", "gone"])
def test_a_torn_part_is_refused(tmp_path, harm):
    parts = Parts(tmp_path)
    parts.write("pass", {"x": torch.arange(5), "y": np.ones(2)}, note={"n": 1})
    parts.write("pass", {"x": torch.arange(6)}, note={"n": 2})
    (file,) = tmp_path.glob("*.safetensors")
    assert parts.read("pass").tensors["x"].tolist() == [0, 1, 2, 3, 4, 5]
    data = file.read_bytes()
    if harm == "gone":
        file.unlink()
    else:
        file.write_bytes(data[:-3] if harm == "cut" else data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(BadInput, match="damaged"):
        parts.read("pass")


def test_no_bit_of_the_index_of_parts_turns_unseen(tmp_path):
    """Results of units stand in it: a digit or a name that turned would be read as what was
    measured.
    """
    parts = Parts(tmp_path)
    parts.write("unit", {"x": torch.ones(1)}, note={"accuracy": 0.25})
    data = parts._index.read_bytes()
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        parts._index.write_bytes(changed)
        with pytest.raises(BadInput, match="damaged"):
            parts.read("unit")
    for end in range(len(data)):
        parts._index.write_bytes(data[:end])
        with pytest.raises(BadInput, match="damaged"):
            parts.names()


def test_a_result_comes_back_from_its_folder(tmp_path):
    counted = count("x", out=tmp_path)
    loaded = CountResult.load(tmp_path)
    assert loaded == counted or loaded.document == counted.document
    assert loaded.rows[0].interval("a") == (1, 2)
    assert json.loads(counted.json())["schema"] == 2
    schema = CountResult.json_schema()
    assert schema["properties"]["squares"]["type"] == "array"
    assert "arrays" not in schema["properties"]


def test_a_result_of_0_1_says_why_it_does_not_load(tmp_path):
    (tmp_path / "result.json").write_text('{"kind": "test-count", "headscan": "0.1.0"}')
    with pytest.raises(BadInput, match=r"headscan 0\.1\.0 wrote in an older form"):
        CountResult.load(tmp_path)


def test_what_is_no_such_result_is_refused_with_its_place():
    with pytest.raises(BadInput, match=r"squares\.0\.of"):
        CountResult.of_document(
            {"protocol": {"verb": "x"}, "squares": [{"of": "one", "value": 1}], "rows": []}
        )


def test_findings_are_shown_in_the_repr():
    result = CountResult(
        protocol=Run.quiet().protocol(),
        squares=[],
        rows=[],
        findings=[Finding(code="HS101", name="CONE", level="alarm", sentence="a cone")],
    )
    assert "HS101 CONE: a cone" in repr(result)


def test_pieces_are_halved_until_they_fit():
    indices = []

    def work(begin, end):
        if end - begin > 3:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        indices.extend(range(begin, end))

    assert halving(10, work) == 2
    assert indices == list(range(10))
    with pytest.raises(MemoryError):
        halving(3, lambda a, b: (_ for _ in ()).throw(MemoryError()))
    with pytest.raises(RuntimeError, match="other"):
        halving(3, lambda a, b: (_ for _ in ()).throw(RuntimeError("other")))


def test_what_a_killed_writer_left_aside_is_cleared(tmp_path, monkeypatch):
    monkeypatch.setattr("headscan.run.files.os.replace", lambda *_: os._exit(9))
    process = os.fork()
    if not process:
        write_atomic(tmp_path / "result.json", "{}")
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 9
    monkeypatch.undo()
    assert [path.suffix for path in tmp_path.iterdir()] == [".unfinished"]
    with Run("test", out=tmp_path):
        assert not list(tmp_path.glob("*.unfinished"))
    assert not [path for path in tmp_path.iterdir() if path.is_file()]


@pytest.mark.parametrize("name", ["scan", "compare", "checkup", "privacy", "attribute", "train"])
def test_an_option_that_is_given_with_its_default_is_given(name):
    """Not given, and given the default, are two things for every option of every verb."""
    record = getattr(headscan, name).verb
    required = {
        parameter.name: "x"
        for parameter in record.signature.parameters.values()
        if parameter.default is parameter.empty
    }
    for option in record.options():
        if option.required or option.default is None:
            continue
        assert option.name not in record.given((), required)
        assert option.name in record.given((), required | {option.name: option.default})
