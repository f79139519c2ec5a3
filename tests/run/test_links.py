"""A run that was stopped and whose model is reached by a link: a link that leads elsewhere is
refused, in every verb.
"""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import headscan
from headscan import BadInput
from headscan.diagnosis.measurements import Measurements
from headscan.run import Parts, Result
from tests.attack.kills import timeless
from tests.tiny import TEXTS, save_tiny

PROMPTS = [f"A{number}" for number in range(17)]  # sixteen are stored together
VERBS: dict[str, Callable[..., Result]] = {
    "scan": partial(
        headscan.scan, text=TEXTS, context=16, batch=2, max_tokens=512, sites="block.0"
    ),
    "checkup": partial(headscan.checkup, text=TEXTS, context=16, max_tokens=160),
    "privacy": partial(
        headscan.privacy,
        text=TEXTS,
        sites="block.0",
        noise=(0.4, 0.8),
        windows=1,
        length=4,
        draws=20,
        max_tokens=640,
    ),
    "attribute": partial(headscan.attribute, prompt="the hen had", method="occlusion,combined"),
    "invert": partial(headscan.invert, prompt=PROMPTS, at="block.0"),
}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two checkpoints of one shape and of other weights: step100/gpt and step200/gpt."""
    root = tmp_path_factory.mktemp("checkpoints")
    for seed, name in enumerate(("step100", "step200")):
        save_tiny(root / name / "gpt", seed)
    return root


@pytest.fixture(autouse=True)
def _no_inversions_in_a_checkup(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take half of its time, and no other files than its other stages."""
    monkeypatch.setattr(Measurements, "leak", lambda _: (None, None))


@pytest.fixture
def copies(tmp_path: Path, checkpoints: Path) -> tuple[Path, Path]:
    """The checkpoints in a folder of a test's own."""
    shutil.copytree(checkpoints, tmp_path, dirs_exist_ok=True)
    return tmp_path / "step100" / "gpt", tmp_path / "step200" / "gpt"


def point(link: Path, target: Path) -> None:
    """Make the link, or lead it elsewhere."""
    link.unlink(missing_ok=True)
    link.symlink_to(target)


def stop_after_storing(call: Callable[[], Any]) -> None:
    """Run until something was stored for the first time, and interrupt it there."""
    write = Parts.write

    def stopping(parts: Parts, *args: Any, **named: Any) -> None:
        write(parts, *args, **named)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Parts, "FIRST", 0.0)
        patched.setattr(Parts, "SHARE", 1e9)
        patched.setattr(Parts, "write", stopping)
        with pytest.raises(KeyboardInterrupt):
            call()


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def document(result: Result) -> Any:
    return timeless(json.loads(result.json()))


@pytest.mark.parametrize("verb", VERBS)
def test_a_link_to_another_model_is_refused_and_the_same_model_goes_on(tmp_path, copies, verb):
    """The folders have different names. A refusal changes nothing, so that the same model still
    ends as an undisturbed run.
    """
    call = VERBS[verb]
    link = tmp_path / "latest"
    out = tmp_path / "out"
    named = tmp_path / "first", tmp_path / "second"
    for copy, folder in zip(copies, named, strict=True):
        copy.rename(folder)
    point(link, named[0])
    undisturbed = document(call(str(link)))
    stop_after_storing(lambda: call(str(link), out=out))
    stored = files(out)
    assert any(name.startswith(".resume/parts") for name in stored)
    point(link, named[1])
    with pytest.raises(
        BadInput, match=r'cannot be resumed: the name of .* was "first" and is "second" now'
    ):
        call(str(link), out=out, resume=True)
    assert files(out) == stored
    point(link, named[0])
    assert document(call(str(link), out=out, resume=True)) == undisturbed


@pytest.mark.parametrize("verb", VERBS)
def test_a_link_in_the_middle_of_a_path_is_followed_too(tmp_path, copies, verb):
    """The folders have one name, and so the weights are what differs."""
    call = VERBS[verb]
    link = tmp_path / "current"
    out = tmp_path / "out"
    point(link, copies[0].parent)
    stop_after_storing(lambda: call(str(link / "gpt"), out=out))
    stored = files(out)
    point(link, copies[1].parent)
    with pytest.raises(
        BadInput, match=r"cannot be resumed: model\.safetensors of (the model|model 1) was"
    ):
        call(str(link / "gpt"), out=out, resume=True)
    assert files(out) == stored


def test_a_link_of_a_model_whose_turn_is_over_is_compared(tmp_path, copies):
    """A resumed checkup does not open a model again whose stages are finished."""
    links = [tmp_path / "one", tmp_path / "two"]
    out = tmp_path / "out"
    for link, copy in zip(links, copies, strict=True):
        point(link, copy.parent)
    models = [str(link / "gpt") for link in links]
    call = partial(headscan.checkup, models, TEXTS, context=16, max_tokens=160)
    undisturbed = document(call())
    write = Parts.write

    def stopping(parts: Parts, name: str, *args: Any, **named: Any) -> None:
        write(parts, name, *args, **named)
        if name == "unit-source-1, scan":
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Parts, "write", stopping)
        with pytest.raises(KeyboardInterrupt):
            call(out=out)
    point(links[0], copies[1].parent)
    with pytest.raises(BadInput, match=r"model\.safetensors of model 1 was"):
        call(out=out, resume=True)
    point(links[0], copies[0].parent)
    assert document(call(out=out, resume=True)) == undisturbed


def test_models_that_are_opened_in_turn_are_compared_and_go_on(tmp_path, copies, monkeypatch):
    """The second model's weights are read when its turn comes: the run is stopped before that."""
    monkeypatch.setattr("headscan.scanner.sources.KEPT_BYTES", 0)
    links = [tmp_path / "one", tmp_path / "two"]
    out = tmp_path / "out"
    for link, copy in zip(links, copies, strict=True):
        point(link, copy.parent)
    call = partial(VERBS["scan"], [str(link / "gpt") for link in links])
    undisturbed = document(call())
    stop_after_storing(lambda: call(out=out))
    point(links[1], copies[0].parent)
    with pytest.raises(BadInput, match=r"model\.safetensors of model 2 was"):
        call(out=out, resume=True)
    point(links[1], copies[1].parent)
    assert document(call(out=out, resume=True)) == undisturbed
