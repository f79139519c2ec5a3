"""Training end to end: recipes, checkpoints that load anywhere, resuming, faults."""

import json
import os
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer, BertModel

import headscan.training.trainer as trainer_module
import headscan.training.trainer_arguments as trainer_arguments
from headscan import BadInput, load
from headscan.training import (
    OBJECTIVES,
    RECOVERIES,
    LossIsNotFinite,
    build,
    last_checkpoint,
    recipe_of,
    recover,
    train,
)
from tests.forked import fork, status_of

LOGGED = {"logging_steps": 1, "save_steps": 4}
UNSAVED = {"trainer": {"logging_steps": 1, "save_strategy": "no"}}
TINY = {"steps": 12, "batch": 4, "context": 16, "vocabulary": 300, "trainer": LOGGED}


def _small(name="gpt"):
    return recipe_of(name).but(rate=1e-3, warmup=2)


def _losses(result):
    return [point.loss for point in result.curve]


@pytest.fixture(scope="module")
def headless(story_file, tmp_path_factory):
    folder = tmp_path_factory.mktemp("headless")
    return folder, train(_small(), str(story_file), out=folder, geometry_every=6, **TINY)


def test_result_has_its_fields_and_loads_again(headless):
    folder, result = headless
    again = load(folder)
    assert again.kind == "train"
    document = json.loads((folder / "result.json").read_text())
    assert document["steps"] == 12
    assert document["tokens"] == 12 * 4 * 16
    assert 0 < document["floor_corrected_loss"] < document["loss"]
    assert (
        document["heldout"]["bias"]["nats_per_token"]
        < document["heldout"]["tied"]["nats_per_token"]
    )
    assert document["heldout_bits_per_byte"] == document["heldout"]["bias"]["bits_per_byte"] > 0
    assert [entry["step"] for entry in document["scan"]] == [0, 6, 12]
    assert "block.3" in [site["site"] for site in document["scan"][-1]["sites"]]
    assert (folder / "report.html").read_text().startswith("<!doctype html>")
    assert len(result.frame()) == 12
    assert _losses(result)[-1] < _losses(result)[0]


def test_the_model_loads_anywhere_and_has_no_head(headless):
    folder, _ = headless
    model = AutoModel.from_pretrained(folder / "model")
    assert model.get_output_embeddings() is None
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    assert len(tokenizer) == 300
    assert not any(path.suffix in (".bin", ".pkl") for path in (folder / "model").iterdir())


def test_the_same_seed_gives_the_same_curve_and_a_resumed_run_too(story_file, headless, tmp_path):
    _, uninterrupted = headless
    options = TINY | {"geometry_every": 0, "device": "cpu"}
    half = train(_small(), str(story_file), out=tmp_path, callbacks=[_StopAt(7)], **options)
    assert half.document["steps"] == 7
    for path in tmp_path.glob("checkpoint-7"):  # what a kill between two checkpoints leaves
        (path / "trainer_state.json").unlink()
    assert last_checkpoint(tmp_path).name == "checkpoint-4"
    resumed = train(_small(), str(story_file), out=tmp_path, resume=True, **options)
    assert resumed.document["steps"] == 12
    assert _losses(resumed) == _losses(uninterrupted)
    a, b = (
        AutoModel.from_pretrained(folder / "model").state_dict()
        for folder in (headless[0], tmp_path)
    )
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_a_finished_run_takes_no_step_more_and_a_stopped_one_is_not_thrown_away(
    story_file, headless, tmp_path
):
    options = TINY | {"geometry_every": 6}
    _, uninterrupted = headless
    shutil.copytree(headless[0], tmp_path, dirs_exist_ok=True)
    again = train(_small(), str(story_file), out=tmp_path, resume=True, **options)
    assert (again.steps, again.curve) == (12, uninterrupted.curve)
    assert again.document["heldout"] == uninterrupted.document["heldout"]
    assert again.document["scan"] == uninterrupted.document["scan"]
    # a finished run is replaced
    afresh = train(_small(), str(story_file), out=tmp_path, **options | {"steps": 8, "seed": 1})
    assert afresh.document["steps"] == 8
    assert last_checkpoint(tmp_path).name == "checkpoint-8"
    (tmp_path / "result.json").unlink()  # what a kill leaves
    with pytest.raises(BadInput, match="stopped after 8 steps: --resume goes on"):
        train(_small(), str(story_file), out=tmp_path, **options)
    assert last_checkpoint(tmp_path).name == "checkpoint-8"


from transformers import TrainerCallback  # noqa: E402


class _StopAt(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **_):
        control.should_training_stop = state.global_step >= self.step


def test_a_killed_process_resumes(story_file, tmp_path):
    options = TINY | {"trainer": LOGGED | {"save_steps": 2}, "steps": 400, "geometry_every": 0}
    plan = recipe_of("gpt").but(warmup=2)
    out = tmp_path / "out"
    printed = tmp_path / "said.txt"
    process = fork(lambda: train(plan, str(story_file), out=out, **options), printed)
    limit = time.monotonic() + 120
    while last_checkpoint(out) is None and time.monotonic() < limit:
        assert os.waitpid(process, os.WNOHANG) == (0, 0), printed.read_text()
        time.sleep(0.05)
    os.kill(process, signal.SIGKILL)
    assert status_of(process) == -signal.SIGKILL
    reached = int(last_checkpoint(out).name.rpartition("-")[2])
    result = train(
        plan, str(story_file), out=out, resume=True, callbacks=[_StopAt(reached + 3)], **options
    )
    assert result.document["steps"] == reached + 3
    assert [point.step for point in result.curve] == list(range(1, reached + 4))


@pytest.mark.parametrize("objective", ["ce", "ce+cwt"])
def test_every_objective_learns(story_file, tmp_path, objective):
    options = TINY | UNSAVED | {"steps": 15}
    result = train(
        _small(), str(story_file), out=tmp_path, objective=objective, geometry_every=0, **options
    )
    losses = _losses(result)
    assert np.mean(losses[-3:]) < np.mean(losses[:3])
    assert np.isfinite(losses).all()


def test_what_is_read_out_is_what_was_trained(story_file, tmp_path):
    """A temperature is part of the model; without it the reading is that of noise."""
    options = TINY | UNSAVED | {"steps": 40, "geometry_every": 0, "rate": 3e-3}
    out = tmp_path / "cwt"
    result = train(_small(), str(story_file), out=out, objective="cwt:temperature=5", **options)
    held_out_loss = result.document["heldout"]
    assert held_out_loss["bias"]["nats_per_token"] < held_out_loss["tied"]["nats_per_token"] - 0.2
    again = recover(str(out / "model"), str(story_file), out=tmp_path / "again", temperature=5)
    with_bias = held_out_loss["bias"]["nats_per_token"]
    assert again.after.nats_per_token == pytest.approx(with_bias, abs=0.02)


@pytest.mark.parametrize(
    ("name", "objective"),
    [
        ("bert", "cwt"),
        ("bert", "ce"),
        ("multilingual", "cwt"),
        ("multilingual", "ce"),
        ("mixer", "cwt"),
    ],
)
def test_every_recipe_trains(story_file, tmp_path, name, objective):
    options = TINY | UNSAVED | {"steps": 15, "rate": 1e-3}
    result = train(
        name, str(story_file), out=tmp_path, objective=objective, geometry_every=15, **options
    )
    losses = _losses(result)
    assert np.mean(losses[-3:]) < np.mean(losses[:3])
    model = AutoModel.from_pretrained(tmp_path / "model")
    assert type(model).__name__.startswith(
        {"bert": "Bert", "multilingual": "DistilBert", "mixer": "Mixer"}[name]
    )
    assert (result.document["heldout_bits_per_byte"] is None) == (name != "mixer")
    if name == "bert":
        assert isinstance(model, BertModel)


def test_recovery_by_bias_probe_and_finetuning(story_file, headless, tmp_path):
    folder, result = headless
    losses = {}
    for mode in ("tied", "bias", "probe", "finetune"):
        out = tmp_path / mode
        how = RECOVERIES.build(
            mode, {"steps": 30, "rate": 1e-3} if mode in ("probe", "finetune") else {}
        )
        recovered = recover(str(folder / "model"), str(story_file), out=out, mode=how)
        losses[mode] = recovered.after.nats_per_token
        model = AutoModelForCausalLM.from_pretrained(out / "model")
        tokenizer = AutoTokenizer.from_pretrained(out / "model")
        ids = tokenizer("ba", return_tensors="pt")["input_ids"]
        assert model.generate(ids, max_new_tokens=3, do_sample=False).shape == (1, ids.shape[1] + 3)
    assert losses["finetune"] < losses["bias"] < losses["tied"]
    assert losses["probe"] < losses["tied"]
    assert losses["bias"] == pytest.approx(
        result.document["heldout"]["bias"]["nats_per_token"], abs=0.02
    )


def test_pooled_negatives_make_the_loss_independent_of_the_cut(story_file, tmp_path):
    curves = []
    for batch, accumulation in ((8, 1), (2, 4)):
        options = TINY | UNSAVED | {"steps": 3, "batch": batch}
        result = train(
            _small(),
            str(story_file),
            out=tmp_path / str(batch),
            accumulation=accumulation,
            pool="accumulation",
            geometry_every=0,
            **options,
        )
        curves.append(_losses(result))
    assert curves[0] == pytest.approx(curves[1], abs=2e-5)


@pytest.mark.parametrize(
    "options", [{"batch": 32}, {"batch": 8, "accumulation": 4, "pool": "accumulation"}]
)
def test_the_end_of_an_epoch_is_no_dip_in_the_loss(story_file, tmp_path, options):
    """The text has 975 windows: a last step of 15 among 30 of 32 would have fewer negatives, and a
    loss .7 lower.
    """
    options = TINY | UNSAVED | {"steps": 36, "geometry_every": 0} | options
    losses = np.array(_losses(train(_small(), str(story_file), out=tmp_path, **options)))
    assert np.abs(np.diff(losses[20:])).max() < 0.3


def test_nan_stops_with_clear_words_and_loses_nothing(story_file, tmp_path):
    with pytest.raises(LossIsNotFinite, match="Lower the learning rate"):
        train(
            _small(),
            str(story_file),
            out=tmp_path,
            geometry_every=0,
            callbacks=[_Poison(6)],
            **TINY,
        )
    checkpoint = last_checkpoint(tmp_path)
    assert checkpoint.name == "checkpoint-4"
    weights = AutoModel.from_pretrained(checkpoint).state_dict()
    assert all(torch.isfinite(value).all() for value in weights.values())


class _Poison(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, model=None, **_):
        if state.global_step == self.step:
            with torch.no_grad():
                model.model.get_input_embeddings().weight[:] = float("nan")


def _full_disk():
    from safetensors import SafetensorError

    return [
        OSError(28, "No space left on device"),
        SafetensorError(
            "Error while serializing: I/O error: No space left on device (os error 28)"
        ),
        RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed"),
    ]


def test_a_full_disk_costs_checkpoints_and_not_the_run(story_file, tmp_path, monkeypatch, caplog):
    faults = _full_disk()
    save = trainer_module.Trainer._save_checkpoint

    def full(self, model, trial):
        if faults and self.state.global_step > 4:
            (Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}").mkdir(
                exist_ok=True
            )
            raise faults.pop()
        save(self, model, trial)

    monkeypatch.setattr(trainer_module.Trainer, "_save_checkpoint", full)
    result = train(
        _small(),
        str(story_file),
        out=tmp_path,
        geometry_every=0,
        **(TINY | {"trainer": LOGGED | {"save_steps": 2}}),
    )
    assert result.document["steps"] == 12
    assert sorted(path.name for path in tmp_path.glob("checkpoint-*")) == [
        "checkpoint-12",
        "checkpoint-4",
    ]
    for step in (6, 8, 10):
        assert f"checkpoint-{step} could not be written" in caplog.text
    assert "the last whole one is" in caplog.text


def test_a_model_that_cannot_be_written_is_said_so(story_file, tmp_path, monkeypatch):
    def full(self, output_dir=None, _internal_call=False):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(trainer_module.HeadlessTrainer, "save_model", full)
    with pytest.raises(BadInput, match="free some disk space and --resume from the beginning"):
        train(
            _small(),
            str(story_file),
            out=tmp_path,
            geometry_every=0,
            **(TINY | UNSAVED | {"steps": 1}),
        )


def test_a_headless_bert_resumes(story_file, tmp_path):
    options = TINY | {"rate": 1e-3, "geometry_every": 0}
    result = train("bert", str(story_file), out=tmp_path / "a", **options)
    train("bert", str(story_file), out=tmp_path / "b", callbacks=[_StopAt(4)], **options)
    resumed = train("bert", str(story_file), out=tmp_path / "b", resume=True, **options)
    assert _losses(resumed) == _losses(result)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "magic"}, "no objective"),
        ({"pool": "galaxy"}, "--pool must be"),
        ({"trainer": "bf16"}, "--trainer is written KEY=VALUE"),
        ({"tokenizer": "/nowhere/at/all", "vocabulary": None}, "No tokenizer"),
        ({"vocabulary": 100}, "at least 259"),
        ({"held_out": 1.0}, "too few"),
        ({"context": 10**6}, "less than one window"),
        pytest.param(
            {"device": "cuda"},
            "no CUDA",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
        ),
    ],
)
def test_bad_input_in_one_sentence(story_file, tmp_path, options, message):
    recipe = options.pop("recipe", "gpt")
    with pytest.raises(BadInput, match=message):
        train(recipe, str(story_file), out=tmp_path, **(TINY | {"geometry_every": 0} | options))


@pytest.mark.parametrize(("device", "on_cpu"), [("cpu", True), ("cuda", False), ("auto", False)])
def test_the_device_reaches_the_trainer(tmp_path, monkeypatch, device, on_cpu):
    given = {}

    def arguments(**options):
        given.update(options)

    monkeypatch.setattr(trainer_arguments, "TrainingArguments", arguments)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    trainer_arguments.training_arguments(_small(), {}, folder=tmp_path, seed=0, device=device)
    assert given["use_cpu"] is on_cpu


def test_recipes_and_sizes():
    assert recipe_of("bert", "paper").config().hidden_size == 768
    assert recipe_of("multilingual", "small").masked
    for bad in (("gru", "tiny"), ("gpt", "huge")):
        with pytest.raises(BadInput):
            recipe_of(*bad)


@pytest.mark.parametrize(("name", "millions"), [("bert", 110), ("gpt", 70), ("multilingual", 135)])
def test_published_sizes_have_the_published_parameters(name, millions):
    """bert-base 110 M (its own vocabulary is 15 M smaller), pythia-70m, distilbert multilingual 135
    M.
    """
    plan = recipe_of(name, "paper")
    with torch.device("meta"):
        model = build(plan, OBJECTIVES.build("ce"), plan.vocabulary)
    tensors = {id(p): p for p in model.parameters()}
    parameters = sum(p.numel() for p in tensors.values()) / 1e6
    unpublished = (50_277 - 30_522) * 768 / 1e6 if name == "bert" else 0
    assert parameters - unpublished == pytest.approx(millions, rel=0.02)
