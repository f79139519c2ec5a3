"""What a resumed run rests on, and that its files are those of a run that was never stopped."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModel, TrainerCallback

from headscan import BadInput
from headscan.training import fit_tokenizer, last_checkpoint, recipe_of, train
from headscan.training.checkpoints import seal
from tests.tiny import two_blocks

TINY = {
    "steps": 12,
    "batch": 4,
    "context": 16,
    "vocabulary": 300,
    "trainer": {"logging_steps": 3, "save_steps": 4},
    "geometry_every": 5,
}
BARE = TINY | {"geometry_every": 0}
"""Where what is measured on the way is not looked at."""
PLAN = recipe_of("gpt").but(rate=1e-3, warmup=2, architecture=two_blocks)


class Killed(BaseException):
    """As if the process had gone."""


class _KillAt(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_begin(self, args, state, control, **_):
        if state.global_step == self.step:
            raise Killed


def _killed(text, folder, at=6, **options):
    with pytest.raises(Killed):
        train(PLAN, str(text), out=folder, callbacks=[_KillAt(at)], **(BARE | options))
    assert last_checkpoint(folder) is not None
    assert not (folder / "result.json").exists()


def _killed_at_the_last_checkpoint(output_dir, *_):
    if (Path(output_dir) / f"checkpoint-{TINY['steps']}").exists():
        raise Killed


@pytest.fixture
def text(story_file, tmp_path):
    """A copy of the story that may be changed."""
    return shutil.copy(story_file, tmp_path / "story.txt")


@pytest.fixture(scope="module")
def undisturbed(story_file, tmp_path_factory):
    """The folder and the result of a run that nothing stopped."""
    folder = tmp_path_factory.mktemp("undisturbed")
    return folder, train(PLAN, str(story_file), out=folder, **TINY)


def test_a_changed_text_is_refused(text, tmp_path):
    options = {"tokenizer": fit_tokenizer([Path(text).read_text()], 300), "vocabulary": None}
    _killed(text, tmp_path / "run", **options)
    content = Path(text).read_text()
    Path(text).write_text(re.sub("ba", "fi", content))
    with pytest.raises(BadInput, match=r"[Tt]he (content of the )?text"):
        train(PLAN, str(text), out=tmp_path / "run", resume=True, **(BARE | options))
    Path(text).write_text(content)
    assert train(PLAN, str(text), out=tmp_path / "run", resume=True, **(BARE | options)).steps == 12


def test_a_fitted_tokenizer_does_not_hide_a_changed_text(text, tmp_path):
    _killed(text, tmp_path / "run")
    with open(text, "a") as file:
        file.write(" ba de fi go ku" * 10)
    with pytest.raises(BadInput, match="the content of the text was"):
        train(PLAN, str(text), out=tmp_path / "run", resume=True, **BARE)


def test_another_tokenizer_setting_recipe_or_start_is_refused(text, tmp_path, monkeypatch):
    _killed(text, tmp_path / "run")

    def again(plan=PLAN, **changes):
        return train(plan, str(text), out=tmp_path / "run", resume=True, **(BARE | changes))

    for changes, message in (
        ({"context": 8}, "--context was 16 and is 8"),
        ({"seed": 1}, "--seed was 0"),
        ({"steps": 13}, "--steps was 12 and is 13"),
        ({"objective": "ce"}, "the objective was"),
        ({"regulariser": "cosine:1"}, "--regulariser was null"),
        (
            {"tokenizer": fit_tokenizer(["ku la ma"] * 9, 290), "vocabulary": None},
            "--vocabulary was 300",
        ),
        ({"plan": PLAN.but(warmup=3)}, "the recipe was"),
        ({"trainer": "adam_epsilon=0.1"}, "the Trainer's arguments"),
    ):
        with pytest.raises(BadInput, match=re.escape(message)):
            again(**changes)
    monkeypatch.setattr("headscan.training.run.set_seed", lambda seed: torch.manual_seed(seed + 1))
    with pytest.raises(BadInput, match="the weights at the start"):
        again()


def test_a_checkpoint_of_another_run_is_not_taken_up(text, tmp_path):
    """A folder whose own record was lost, or was overwritten before the old checkpoints
    were gone.
    """
    train(PLAN, str(text), out=tmp_path / "run", **BARE)
    copy = tmp_path / "kept"
    shutil.copytree(tmp_path / "run", copy)
    content = Path(text).read_text()
    Path(text).write_text(re.sub("ba", "fi", content))
    train(PLAN, str(text), out=tmp_path / "run", **BARE)
    for checkpoint in (tmp_path / "run").glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
        shutil.copytree(copy / checkpoint.name, checkpoint)
    with pytest.raises(BadInput, match="the content of the text"):
        train(PLAN, str(text), out=tmp_path / "run", resume=True, **BARE)
    Path(text).write_text(content)
    newest = last_checkpoint(copy)
    (newest / "headscan.json").write_text("{")
    seal(newest)
    with pytest.raises(BadInput, match="does not say what it was made of"):
        train(PLAN, str(text), out=copy, resume=True, **BARE)
    (
        newest / "headscan.sha256.json"
    ).unlink()  # killed before it was written: nothing vouches for the files
    assert last_checkpoint(copy) != newest


def test_a_damaged_checkpoint_is_refused(text, tmp_path):
    """A turned bit in the weights, a cut optimizer, a state that is gone."""
    _killed(text, tmp_path / "run")
    checkpoint = last_checkpoint(tmp_path / "run")
    for name, change in (
        ("model.safetensors", lambda data: data[:-1] + bytes([data[-1] ^ 1])),
        ("optimizer.pt", lambda data: data[: len(data) // 2]),
        ("headscan.sha256.json", lambda data: data[:-3]),
    ):
        content = (checkpoint / name).read_bytes()
        (checkpoint / name).write_bytes(change(content))
        with pytest.raises(BadInput, match=f"{name} is damaged"):
            train(PLAN, str(text), out=tmp_path / "run", resume=True, **BARE)
        (checkpoint / name).write_bytes(content)
    assert train(PLAN, str(text), out=tmp_path / "run", resume=True, **BARE).steps == 12


@pytest.mark.parametrize("at", [4, 6, 11, "the last checkpoint"])
def test_a_resumed_run_leaves_the_files_of_an_undisturbed_one(
    story_file, undisturbed, tmp_path, monkeypatch, at
):
    """Log lines that end between checkpoints, measurements that fall on none, and older checkpoints
    that had to go yet.
    """
    a, undisturbed_result = undisturbed
    b = tmp_path / "b"
    if isinstance(at, str):
        with monkeypatch.context() as patched:
            patched.setattr(
                "headscan.training.trainer.rotate_checkpoints", _killed_at_the_last_checkpoint
            )
            _killed(story_file, b, at=None, **TINY)
        assert len([*b.glob("checkpoint-*")]) == 3
    else:
        _killed(story_file, b, at=at, **TINY)
    resumed = train(PLAN, str(story_file), out=b, resume=True, **TINY)
    assert sorted(path.name for path in a.iterdir()) == sorted(path.name for path in b.iterdir())
    assert [snapshot.step for snapshot in resumed.scan] == [0, 5, 10, 12]
    documents = [json.loads((folder / "result.json").read_text()) for folder in (a, b)]
    for document in documents:
        del document["files"]["report.html"]  # the page has the times
        for name in ("started", "seconds"):
            document["protocol"].pop(name)
    assert documents[0] == documents[1]
    for name in ("geometry.jsonl", "monitor.jsonl"):
        assert (a / name).read_text() == (b / name).read_text()
    for name in ("config.json", "tokenizer_config.json", "tokenizer.json"):
        assert (a / "model" / name).read_text() == (b / "model" / name).read_text()
    first, second = (AutoModel.from_pretrained(folder / "model").state_dict() for folder in (a, b))
    assert all(first[name].equal(second[name]) for name in first)
    assert resumed.curve == undisturbed_result.curve


def test_what_is_stored_by_time_is_resumed_from_to_the_same_end(text, tmp_path, monkeypatch):
    """Between the steps of `save_steps`, where storing is due; a dear checkpoint waits for its
    share of the time.
    """
    options = TINY | {"trainer": {"logging_steps": 3, "save_steps": 100}, "geometry_every": 0}
    monkeypatch.setattr("headscan.run.parts.Parts.FIRST", 0.0)
    # 2 % of a run that stood still is enough for one
    monkeypatch.setattr("headscan.run.parts.Parts.SHARE", 1e-6)
    result = train(PLAN, str(text), out=tmp_path / "whole", **options)
    assert [path.name for path in (tmp_path / "whole").glob("checkpoint-*")] == ["checkpoint-12"]
    monkeypatch.setattr("headscan.run.parts.Parts.SHARE", 1e9)
    _killed(text, tmp_path / "run", **options)
    assert last_checkpoint(tmp_path / "run").name == "checkpoint-6"
    again = train(PLAN, str(text), out=tmp_path / "run", resume=True, **options)
    assert again.curve == result.curve
    weights = Path("model") / "model.safetensors"
    assert (tmp_path / "run" / weights).read_bytes() == (tmp_path / "whole" / weights).read_bytes()


def test_a_run_stopped_by_the_clock_and_continued_forgets_that_end(story_file, tmp_path):
    class Stop(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            control.should_training_stop = control.should_save = state.global_step == 7

    half = train(PLAN, str(story_file), out=tmp_path, callbacks=[Stop()], **TINY)
    assert [snapshot.step for snapshot in half.scan] == [0, 5, 7]
    resumed = train(PLAN, str(story_file), out=tmp_path, resume=True, **TINY)
    assert [snapshot.step for snapshot in resumed.scan] == [0, 5, 10, 12]
