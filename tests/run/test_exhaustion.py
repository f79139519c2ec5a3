"""Memory that runs out: every verb goes on with fewer rows and says so once, or ends in one
sentence.
"""

import logging
from functools import partial

import numpy as np
import pytest
import torch

import headscan
from headscan.model import Lens, recording
from headscan.run import MachineLimit, Out, Run, verb
from tests.command_line import headscan as command
from tests.tiny import TEXTS, save_tiny

TEXT = {"text": TEXTS, "context": 16, "max_tokens": 320}
VERBS = {
    "scan": partial(headscan.scan, batch=8, sites="block.*", **TEXT),
    "compare": partial(headscan.compare, batch=8, sites="block.1", draws=20, **TEXT),
    "attribute": partial(headscan.attribute, prompt="the hen had a fox and", method="occlusion"),
    "flow": partial(headscan.flow, prompt="the hen had", at="block.1", trials=2),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(save_tiny(tmp_path_factory.mktemp("tiny")))


@pytest.fixture
def small_memory(monkeypatch):
    """Let a forward pass of more than so many rows run out of memory, half-way."""

    def limit(rows: int) -> None:
        read_by_hook = recording.first_tensor

        def first_tensor(output):
            states = read_by_hook(output)
            if states is not None and states.ndim == 3 and len(states) > rows:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            return states

        monkeypatch.setattr(recording, "first_tensor", first_tensor)

    return limit


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_goes_on_with_fewer_rows(name, model, small_memory, caplog, tmp_path):
    call = VERBS[name]
    models = [model] * (2 if name == "compare" else 1)
    subject = models if name == "compare" else models[0]
    undisturbed = call(subject)
    small_memory(3)
    with caplog.at_level(logging.WARNING, "headscan"):
        result = call(subject, out=tmp_path)
    notes = [note for note in result.protocol.notes if "Memory ran out" in note]
    if notes:
        said = [record.message for record in caplog.records if "Memory ran out" in record.message]
        assert len(said) == len(models)
    for key, value in undisturbed.document.items():
        if key in ("sites", "cells", "rows", "scores", "leak", "parts"):
            assert_close(value, result.document[key])
    fitting = {"scan": 2, "compare": 2, "flow": 3}
    if name in fitting:
        assert f"passes have {fitting[name]} rows at most" in notes[0]


def assert_close(expected, value):
    """Numbers agree to rounding, all else is equal."""
    if isinstance(expected, dict):
        for key, item in expected.items():
            assert_close(item, value[key])
    elif isinstance(expected, list):
        for item, other in zip(expected, value, strict=True):
            assert_close(item, other)
    elif isinstance(expected, float):
        assert value == pytest.approx(expected, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory. X")])
def test_one_row_that_does_not_fit_is_one_sentence(error, model, monkeypatch, tmp_path):
    def fails(*_args, **_named):
        raise error

    monkeypatch.setattr(recording, "evaluating", fails)
    with pytest.raises(MachineLimit, match=r"^Memory ran out"):
        headscan.scan(model, out=tmp_path / "out", **TEXT)
    ended = command(
        "scan", model, "--text", "stories", "--context", "16", "--out", str(tmp_path / "x")
    )
    assert ended.status == 74
    assert "headscan: Memory ran out" in ended.stderr
    assert "--batch" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_trial_that_runs_out_of_memory_does_not_blame_the_model(model, monkeypatch):
    def fails(*_args, **_named):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr("headscan.model.stacks.trace_calls", fails)
    with pytest.raises(MachineLimit, match=r"^Memory ran out \(CUDA out of memory\)"):
        headscan.scan(model, **TEXT)


def test_a_fault_of_a_caller_is_not_repeated(model):
    """States that were added once are not added again where adding them ran out of memory."""
    lens = Lens.load(model)
    seen = []

    def add(site, _states):
        seen.append(site)
        if site == "block.1":
            raise MemoryError

    with pytest.raises(MemoryError):
        lens.run(np.zeros((4, 5), dtype=int), sites="block.*", each=add)
    assert seen == ["block.0", "block.1"]


@verb("test-exhausted")
def exhaust(run: Run, out: Out):
    raise MemoryError("Unable to allocate 8 GiB for an array")


def test_any_verb_says_it_in_one_sentence(tmp_path):
    with pytest.raises(
        MachineLimit, match=r"^Memory ran out \(Unable to allocate 8 GiB for an array\)\."
    ):
        exhaust(out=tmp_path)
