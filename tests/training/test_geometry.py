"""The live geometry: right numbers, in anyone's Trainer, without touching the run."""

import json

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

from headscan import BadInput, Lens
from headscan.run import plain
from headscan.training import Monitor, PackedText, measure_sites
from headscan.training.data import collate
from tests.reference.geometry import average_cosine

ROWS = np.random.default_rng(0).integers(0, 50, (40, 8))


def _model():
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=16, n_layer=2, n_head=2, n_positions=8))


def _run(folder, *callbacks):
    model = _model()
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=5,
        per_device_train_batch_size=4,
        save_strategy="no",
        report_to=["tensorboard"],
        logging_steps=1,
        use_cpu=True,
        disable_tqdm=True,
        seed=1,
    )
    trainer = Trainer(
        model,
        arguments,
        train_dataset=PackedText(ROWS),
        data_collator=collate,
        callbacks=list(callbacks),
    )
    trainer.train()
    return model, trainer.state.log_history


def test_a_plain_trainer_is_watched_and_not_disturbed(tmp_path):
    watcher = Monitor(windows=ROWS[:10], every=2)
    watched, log = _run(tmp_path / "a", watcher)
    alone, plain_log = _run(tmp_path / "b")
    assert [snapshot.step for snapshot in watcher.history] == [0, 2, 4, 5]
    assert all(
        torch.equal(a, b) for a, b in zip(watched.parameters(), alone.parameters(), strict=True)
    )
    assert [entry.get("loss") for entry in log] == [entry.get("loss") for entry in plain_log]
    lines = (tmp_path / "a" / "geometry.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == plain(watcher.history)


class _Break(TrainerCallback):
    def on_step_end(self, args, state, control, model=None, **_):
        if state.global_step == 3:
            with torch.no_grad():
                model.transformer.wte.weight.fill_(float("nan"))


def test_a_model_that_broke_is_not_measured_and_the_run_is_left_alone(tmp_path, caplog):
    watcher = Monitor(windows=ROWS[:10], every=2)
    _, log = _run(tmp_path, _Break(), watcher)
    assert [snapshot.step for snapshot in watcher.history] == [0, 2]
    assert "after step 4 is left out" in caplog.text
    assert log[-1]["step"] == 5


def test_the_numbers_are_the_definition():
    model = _model().eval()
    by_site = {entry["site"]: entry for entry in measure_sites(Lens(model), ROWS[:6], batch=4)}
    with torch.no_grad():
        states = model(torch.from_numpy(ROWS[:6]), output_hidden_states=True).hidden_states
    last = states[-1].double()
    assert by_site["final_norm"]["average_cosine"] == pytest.approx(
        average_cosine(last.flatten(0, 1).numpy()), abs=1e-6
    )
    without_first = last[:, 1:].flatten(0, 1).numpy()
    assert by_site["final_norm"]["average_cosine_without_first"] == pytest.approx(
        average_cosine(without_first), abs=1e-6
    )
    table = model.transformer.wte.weight.detach().double().numpy()
    assert by_site["embedding_table"]["average_cosine"] == pytest.approx(
        average_cosine(table), abs=1e-6
    )


def test_bad_input():
    with pytest.raises(BadInput, match="every 0"):
        Monitor(windows=ROWS, every=0)
    with pytest.raises(BadInput, match="no measure"):
        measure_sites(Lens(_model()), ROWS[:2], measures=["beauty"])
