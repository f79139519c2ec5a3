"""Files of a result are replaced as one: readers and kills find the old or the new result."""

import json
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import headscan
from headscan.run import BadInput, Out, Overwrite, Result, Resume, Run, saving, verb
from headscan.run.files import write_atomic


@dataclass(frozen=True, kw_only=True, repr=False)
class SavedResult(Result):
    kind: ClassVar[str] = "test-saved"
    value: int

    def page(self) -> str:
        return f"<p>{self.value}"


@verb("test-saved")
def save_value(
    run: Run,
    value: int,
    *,
    out: Out = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
) -> SavedResult:
    number = run.unit("value", int, lambda: value)
    return result_of(number, run)


def result_of(value: int, run: Run) -> SavedResult:
    arrays = {"values": np.full(3, value)} if value >= 0 else {}
    return SavedResult(protocol=run.protocol(), value=value, arrays=arrays)


def save(value: int, folder: Path) -> None:
    with Run.quiet() as run:
        result_of(value, run).save(folder)


def loaded_value(folder: Path) -> int:
    """Return the value of a saved result, whose arrays and page must have the same."""
    result = SavedResult.load(folder)
    if result.value >= 0:
        assert result.arrays["values"].tolist() == [result.value] * 3
    else:
        assert result.arrays == {}
    return result.value


def test_a_reader_during_overwrites_finds_one_result(tmp_path):
    """The writer goes on until the reader saw several results, however slow either is."""
    save(0, tmp_path)
    saved = [0]
    several_seen = threading.Event()

    def write() -> None:
        for number in range(1, 3000):
            saved.append(number if number % 3 else -number)
            save(saved[-1], tmp_path)
            if number >= 39 and number % 3 == 0 and several_seen.is_set():
                return

    writer = threading.Thread(target=write)
    writer.start()
    seen = set()
    try:
        while writer.is_alive():
            seen.add(loaded_value(tmp_path))
            if len(seen) > 3:
                several_seen.set()
    finally:
        several_seen.set()
        writer.join()
    assert len(seen) > 3
    assert loaded_value(tmp_path) == saved[-1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "result.json"]


@pytest.mark.parametrize("step", range(9))
def test_a_writer_that_is_killed_leaves_one_whole_result(tmp_path, monkeypatch, step):
    """It ends before each of its steps in turn: writing, renaming and removing files."""
    save(1, tmp_path)
    steps = 0

    def counted(action):
        def call(*args, **named):
            nonlocal steps
            if steps == step:
                raise KeyboardInterrupt
            steps += 1
            return action(*args, **named)

        return call

    with monkeypatch.context() as patched:
        patched.setattr(saving, "write_atomic", counted(write_atomic))
        for name in ("replace", "rename", "unlink", "rmdir"):
            patched.setattr(Path, name, counted(getattr(Path, name)))
        patched.setattr(saving.shutil, "rmtree", lambda *_, **__: None)  # a kill tidies nothing
        try:
            save(2, tmp_path)
        except KeyboardInterrupt:
            assert loaded_value(tmp_path) in (1, 2)
        else:
            assert step == 8
    assert loaded_value(tmp_path) in (1, 2)
    save(3, tmp_path)
    assert loaded_value(tmp_path) == 3
    assert not (tmp_path / saving.CURRENT).exists()


@pytest.mark.parametrize("name", ["arrays.safetensors", "report.html"])
def test_files_of_two_results_are_refused(tmp_path, monkeypatch, name):
    for number in (1, 2):
        save(number, tmp_path / str(number))
    os.replace(tmp_path / "1" / name, tmp_path / "2" / name)
    monkeypatch.setattr(saving, "PAUSE", 0.0)
    with pytest.raises(BadInput, match=rf"{name} is not the one that was saved with result\.json"):
        headscan.load(tmp_path / "2")


def test_a_missing_page_is_no_fault_and_missing_arrays_are_one(tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "PAUSE", 0.0)
    save(1, tmp_path)
    (tmp_path / "report.html").unlink()
    assert loaded_value(tmp_path) == 1
    (tmp_path / "arrays.safetensors").unlink()
    with pytest.raises(BadInput, match=r"arrays\.safetensors is not the one"):
        headscan.load(tmp_path)


def test_a_killed_overwrite_leaves_the_old_result_protected(tmp_path, monkeypatch):
    save_value(1, out=tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(SavedResult, "page", lambda _self: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            save_value(2, out=tmp_path, overwrite=True)
    assert loaded_value(tmp_path) == 1
    assert (tmp_path / ".resume").exists()
    with pytest.raises(BadInput, match="holds a finished result"):
        save_value(3, out=tmp_path)
    assert save_value(2, out=tmp_path, resume=True).value == 2
    assert loaded_value(tmp_path) == 2


def test_what_a_verb_returns_is_what_it_saved(tmp_path):
    result = save_value(1, out=tmp_path)
    assert json.loads((tmp_path / "result.json").read_bytes()) == json.loads(result.json())
    assert result.files.keys() == {"arrays.safetensors", "report.html"}
