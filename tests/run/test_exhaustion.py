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
from tests.every_verb import CALLS, agreement, timed_document
from tests.tiny import TEXTS, save_tiny

TEXT = {"text": TEXTS, "context": 16, "max_tokens": 320}
VERBS = {
    "scan": partial(headscan.scan, batch=8, sites="block.*", **TEXT),
    "compare": partial(headscan.compare, batch=8, sites="block.1", draws=20, **TEXT),
    "attribute": partial(headscan.attribute, prompt="the hen had a fox and", method="occlusion"),
    "flow": partial(headscan.flow, prompt="the hen had", at="block.1", trials=2),
}

WITH_GRADIENTS = {"train", "train --objective cwt"}
SLOW = {"scan, every measure", "privacy --defence all"}
HALVED = [name for name in CALLS if name not in {"weights"} | WITH_GRADIENTS | SLOW]
"""Verbs that run the model without gradients."""
FITTING = {"ntp": 100, "recover": 100}
"""Tokens that fit at once, where not 250."""


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


@pytest.fixture
def small_device(monkeypatch):
    """Let a block run out of memory with more than so many tokens; the list has a token count for
    each time.
    """

    def limit(most: int) -> list[int]:
        refused = []
        call = torch.nn.Module.__call__

        def limited(module, *args, **kwargs):
            if type(module).__name__.endswith(("Block", "Layer")):
                states = next(x for x in (*args, *kwargs.values()) if torch.is_tensor(x))
                tokens = states.shape[0] * states.shape[1]
                if tokens > most:
                    refused.append(tokens)
                    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            return call(module, *args, **kwargs)

        monkeypatch.setattr(torch.nn.Module, "__call__", limited)
        return refused

    return limit


MODELS = {"compare": 2}
"""How often a verb opens one model, where that is not once; each opening warns by itself."""


@pytest.mark.parametrize("name", HALVED)
def test_a_pass_on_a_device_is_halved_and_this_is_said_once(name, model, small_device, caplog):
    expected, _ = timed_document(name, model, "cpu")
    refused = small_device(FITTING.get(name, 250))
    with caplog.at_level(logging.WARNING, "headscan"):
        document, _ = timed_document(name, model, "cpu")
    assert refused, "the limit was reached"
    assert len(refused) < 12, "a size that did not fit is not tried again and again"
    said = [record for record in caplog.records if "Memory ran out" in record.message]
    assert len(said) == MODELS.get(name, 1)
    assert any("Memory ran out" in note for note in document["protocol"]["notes"])
    compared = agreement(document, expected)
    assert compared.texts == []
    assert compared.largest < 1e-3, compared.place


@pytest.mark.parametrize("name", sorted(CALLS.keys() - {"weights"} - SLOW))
def test_one_window_that_does_not_fit_ends_every_verb_in_one_sentence(name, model, small_device):
    assert small_device(0) == []
    with pytest.raises(MachineLimit, match=r"^Memory ran out \(CUDA out of memory\)\."):
        timed_document(name, model, "cpu")


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
