"""The monitor: it logs where the Trainer logs, keeps to its share, and names what breaks."""

import copy
import re
from functools import partial

import numpy as np
import pytest
import torch
import torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

from headscan import BadInput
from headscan.training import ALARMS, Monitor, PackedText, Watch
from headscan.training.data import collate
from tests.forked import grouped

ROWS = np.random.default_rng(0).integers(0, 50, (40, 8))


def _model(width=16):
    torch.manual_seed(0)
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=50, n_embd=width, n_layer=2, n_head=2, n_positions=8)
    ).eval()


def _trainer(folder, steps=6, **options):
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=4,
        save_strategy="no",
        report_to=["tensorboard"],
        logging_steps=1,
        use_cpu=True,
        disable_tqdm=True,
        seed=1,
        **options,
    )
    return Trainer(
        _model(),
        arguments,
        train_dataset=PackedText(ROWS),
        eval_dataset=PackedText(ROWS[:6]),
        data_collator=collate,
    )


def _jitter(model, scale=1e-3):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(scale * torch.randn_like(parameter))


def _rank(model):
    block = model.transformer.h[1].mlp.c_proj.weight
    block.copy_(1e3 * torch.outer(torch.randn(block.shape[0]), torch.randn(block.shape[1])))


def _cone(model):
    model.transformer.h[1].mlp.c_proj.bias.add_(30.0)
    model.transformer.h[1].mlp.c_proj.bias[::2] -= 60.0


def _dead(model):
    model.transformer.ln_f.weight[:8] = 0


def _norm(model):
    for name in ("c_proj",):
        getattr(model.transformer.h[0].mlp, name).weight.mul_(1e4)


FAULTS = {"rank": _rank, "cone": _cone, "dead": _dead, "norm": _norm}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_injected_collapse_is_named_at_once_and_once(fault):
    model = _model()
    watch = Watch(model, ROWS[:12])
    for step in range(6):
        assert watch.measure(step) == [], "nothing has happened yet"
        _jitter(model)
    with torch.no_grad():
        FAULTS[fault](model)
    alarms = watch.measure(6)
    assert fault in [alarm.name for alarm in alarms]
    alarm = next(alarm for alarm in alarms if alarm.name == fault)
    assert alarm.step == 6
    assert alarm.site in alarm.sites
    assert alarm.site in alarm.sentence
    assert fault not in [alarm.name for alarm in watch.measure(7)], "it was said"


def test_a_leap_of_the_loss_is_named_and_noise_is_not():
    watch = Watch(_model(), ROWS[:4], alarms="loss")
    noise = np.random.default_rng(1)
    for step in range(60):
        assert watch.loss(step, 4 - 0.02 * step + 0.05 * noise.standard_normal()) == []
    (alarm,) = watch.loss(60, 6.0)
    assert alarm.name == "loss"
    assert alarm.site is None
    assert watch.loss(61, 6.0) == []


def test_a_small_rise_that_stays_is_named_and_a_lone_bad_batch_is_not():
    """Of .03 nats where batches differ by .01: no leap, but noise in place of what a young model
    expects of its text.
    """
    watch = Watch(_model(), ROWS[:4])
    noise = np.random.default_rng(2)
    losses = 6.2 - 1e-4 * np.arange(140) + 0.01 * noise.standard_normal(140)
    losses[50] += 0.03
    losses[100:] += 0.03
    alarms = [alarm for step, loss in enumerate(losses) for alarm in watch.loss(step, float(loss))]
    assert [alarm.name for alarm in alarms] == ["rise"]
    assert 100 <= alarms[0].step < 110
    assert alarms[0].before == pytest.approx(6.19, abs=0.01)
    assert alarms[0].sentence.startswith("The loss rose from 6.189 to 6.2")


def test_the_trainers_own_log_has_the_numbers(tmp_path):
    trainer = _trainer(tmp_path)
    monitor = Monitor(trainer, every=3)
    trainer.add_callback(monitor)
    trainer.train()
    logged = [
        entry
        for entry in trainer.state.log_history
        if "headscan/geometry/block.1/average_cosine" in entry
    ]
    assert (
        [entry["step"] for entry in logged]
        == [0, 3, 6]
        == [snapshot.step for snapshot in monitor.history]
    )
    assert (
        logged[-1]["headscan/geometry/block.1/average_cosine"]
        == monitor.history[-1].site("block.1")["average_cosine"]
    )
    assert monitor.windows.shape == (6, 8)  # the Trainer's own held-out data
    # none is lost
    assert [entry["step"] for entry in trainer.state.log_history if "loss" in entry] == [
        1,
        2,
        3,
        4,
        5,
        6,
    ]
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("events.out.tfevents*"))
    assert b"headscan/geometry/block.1/average_cosine" in written  # TensorBoard had it from there


class _Break(TrainerCallback):
    def on_step_end(self, args, state, control, model=None, **_):
        if state.global_step == 9:
            with torch.no_grad():
                _dead(model)


@pytest.mark.parametrize(
    ("action", "steps"), [("stop", 10), ({"dead": "stop"}, 10), ({"loss": "stop"}, 12)]
)
def test_an_alarm_stops_the_run_where_it_shall(tmp_path, action, steps, caplog):
    trainer = _trainer(tmp_path, 12, learning_rate=1e-4)
    trainer.add_callback(_Break())
    monitor = Monitor(trainer, every=2, on_alarm=action)
    trainer.add_callback(monitor)
    trainer.train()
    assert [alarm.name for alarm in monitor.raised] == ["dead"]
    assert "After step 10 (HS505, alarm dead)" in caplog.text
    assert trainer.state.global_step == steps
    assert (tmp_path / "checkpoint-10").is_dir() == (steps == 10)


def test_it_keeps_to_its_share_of_the_time(tmp_path, monkeypatch):
    """Steps of 1 s and measurements of .4 s on a clock of our own: at a share of .1 one in four
    steps or rarer.
    """
    now = [0.0]
    monkeypatch.setattr("headscan.training.monitor.callback.time.perf_counter", lambda: now[0])
    measure = Watch.measure

    def slow(watch, step):
        now[0] += 0.4
        return measure(watch, step)

    monkeypatch.setattr(Watch, "measure", slow)

    class Clock(TrainerCallback):
        def on_step_begin(self, *_, **__):
            now[0] += 1.0

    trainer = _trainer(tmp_path, 40)
    trainer.add_callback(Clock())
    monitor = Monitor(trainer, share=0.1)
    trainer.add_callback(monitor)
    trainer.train()
    steps = [snapshot.step for snapshot in monitor.history]
    assert steps[0] == 0
    assert steps[-1] == 40
    assert 6 <= len(steps) <= 12
    for count, step in enumerate(steps[:-1], 1):
        assert step == 0 or 0.4 * count <= 0.1 * step * 1.001


def _work(folder, rank):
    from torch.distributed.fsdp import fully_shard

    mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
    model = copy.deepcopy(_model())
    for block in model.transformer.h:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    watch = Watch(model, ROWS[:6])
    watch.measure(0)
    torch.save([dict(row) for row in watch.history[0].sites], folder / f"{rank}.pt")


def test_a_sharded_model_measures_as_a_whole_one(tmp_path):
    grouped(partial(_work, tmp_path), 2, tmp_path)
    watch = Watch(_model(), ROWS[:6])
    watch.measure(0)
    for rank in range(2):
        for row, expected in zip(
            torch.load(tmp_path / f"{rank}.pt", weights_only=True),
            watch.history[0].sites,
            strict=True,
        ):
            assert row.pop("site") == expected["site"]
            known = {name: value for name, value in row.items() if value is not None}
            assert {name for name in row if expected[name] is not None} == set(known)
            assert known == pytest.approx(
                {name: expected[name] for name in known}, rel=1e-5, abs=1e-6
            )


def test_bad_input():
    with pytest.raises(BadInput, match="windows, or a trainer"):
        Monitor()
    with pytest.raises(BadInput, match="'panic'"):
        Monitor(windows=ROWS, on_alarm="panic")
    with pytest.raises(BadInput, match="share of the time"):
        Monitor(windows=ROWS, share=0)
    with pytest.raises(BadInput, match="nonsense"):
        Monitor(windows=ROWS, alarms="nonsense")
    assert {"rank", "cone", "dead", "norm", "loss", "rise"} < set(ALARMS.names())
    with pytest.raises(BadInput, match="no tracker 'paper'"):
        Monitor(windows=ROWS, to="paper")
    for families, message in (
        ("expert_load", "expert_load is not used by GPT2LMHeadModel: it has no router"),
        (
            "sinks:most=3",
            "most is not a parameter of the family of the monitor sinks; it belongs to "
            "update_stable_rank",
        ),
        ("sinks:every=0", "every"),
        ("colour*", "no family of the monitor 'colour*'"),
    ):
        with pytest.raises(BadInput, match=re.escape(message)):
            Watch(_model(), ROWS[:4], families=families)
    assert [family.name for family in Watch(_model(), None, families="").reader.families] == []
    assert [
        (family.name, family.every)
        for family in Watch(_model(), None, families="qk_*,sinks:every=3").reader.families
    ] == [("qk_logit_max", 50), ("sinks", 3)]
