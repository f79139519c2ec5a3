"""What a monitor must not be blinded by: NaN, padding, norms of zero, and data sets of every kind
that a Trainer takes.
"""

import logging
import math

import numpy as np
import pytest
import torch
import transformers
from torch.utils.data import IterableDataset
from transformers import Trainer, TrainerCallback, TrainingArguments, default_data_collator

from headscan import BadInput
from headscan.model import Lens
from headscan.training import Monitor, PackedText, Watch, measure_sites
from headscan.training.data import collate
from headscan.training.monitor.readings import Reading, Readings

ROWS = np.random.default_rng(0).integers(3, 50, (40, 8))


def gpt2():
    torch.manual_seed(0)
    sizes = {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 16}
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(**sizes, bos_token_id=1, eos_token_id=2)
    ).eval()


def bert():
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    config = transformers.BertConfig(vocab_size=50, **sizes, initializer_range=0.3, pad_token_id=0)
    return transformers.BertForMaskedLM(config).eval()


def trainer_of(folder, steps=8, **options):
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=4,
        save_strategy="no",
        report_to=[],
        logging_steps=4,
        use_cpu=True,
        disable_tqdm=True,
        learning_rate=1e-5,
    )
    usual = {
        "train_dataset": PackedText(ROWS),
        "eval_dataset": PackedText(ROWS[:6]),
        "data_collator": collate,
    }
    return Trainer(gpt2(), arguments, **(usual | options))


class Poison(TrainerCallback):
    """Write NaN into one weight after a step."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, model=None, **_):
        if state.global_step == self.step:
            with torch.no_grad():
                model.transformer.h[1].mlp.c_fc.weight[0, 0] = math.nan


@pytest.mark.parametrize(
    ("families", "interval", "step", "site"),
    [
        ("", 3, 3, "block.1"),
        ("nonfinite:every=3", 100, 3, "block.1.weights"),
        ("", 100, 4, "gradient"),
    ],
    ids=["states", "weights", "logged gradient"],
)
def test_weights_of_nan_stop_the_run_at_the_next_reading(tmp_path, families, interval, step, site):
    """The Trainer logs a loss of 0 here (`logging_nan_inf_filter`), so that the loss says
    nothing.
    """
    trainer = trainer_of(tmp_path, 30)
    trainer.add_callback(Poison(3 if interval == 3 else 2))
    monitor = Monitor(trainer, every=interval, families=families, on_alarm="stop")
    trainer.add_callback(monitor)
    trainer.train()
    assert (monitor.raised[0].code, monitor.raised[0].step) == ("HS517", step)
    assert site in monitor.raised[0].sites
    assert trainer.state.global_step <= step + 1
    assert all(
        math.isfinite(entry["loss"]) for entry in trainer.state.log_history if "loss" in entry
    )


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_is_named_at_once(loss):
    watch = Watch(gpt2(), None)
    assert watch.loss(1, 4.0) == []
    (alarm,) = watch.loss(2, loss)
    assert (alarm.code, alarm.site, alarm.finding().name) == ("HS517", None, "NOT-FINITE")
    assert "in the loss:" in alarm.sentence
    assert watch.loss(3, loss) == [], "it was said"


def test_gradients_that_are_not_finite_are_named_but_not_under_a_scaler():
    for scaled in (False, True):
        model = gpt2()
        watch = Watch(model, None, families="nonfinite,gradient_share")
        watch.reader.scene.scaled = scaled
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        with watch.step(1, optimizer):
            model(
                input_ids=torch.from_numpy(ROWS[:2]), labels=torch.from_numpy(ROWS[:2])
            ).loss.backward()
            model.transformer.h[0].mlp.c_fc.bias.grad[0] = math.inf
            watch.reader.before(1)
        watch.harvest()
        assert [alarm.sites for alarm in watch.raised] == ([] if scaled else [["block.0.gradient"]])


@pytest.mark.parametrize("broken", ["head", "embedding_table"])
def test_rows_that_no_window_reads_are_named_too(broken):
    model = gpt2()
    if broken == "head":
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
        model.config.tie_word_embeddings = False
    rows = model.lm_head.weight if broken == "head" else model.transformer.wte.weight
    watch = Watch(model, ROWS[:4])
    with torch.no_grad():
        rows[0, 0] = math.nan
    (alarm,) = watch.measure(1)
    assert (alarm.code, alarm.site, watch.history) == ("HS517", broken, [])


def padded(rows, lengths, width, side="right"):
    """The rows cut to lengths and padded with zeros to one width, and their attention mask."""
    ids = np.zeros((len(rows), width), dtype=np.int64)
    mask = np.zeros((len(rows), width), dtype=np.int64)
    for row, length in enumerate(lengths):
        cut = slice(0, length) if side == "right" else slice(width - length, width)
        ids[row, cut] = rows[row, :length]
        mask[row, cut] = 1
    return ids, mask


def test_padding_is_in_no_number_of_the_geometry():
    """The average cosine of the real tokens alone, computed by hand of the model's own hidden
    states.
    """
    model = bert()
    lengths = [8, 5, 8, 5]
    ids, mask = padded(ROWS[:4], lengths, 12)
    by_site = {
        row["site"]: row
        for row in measure_sites(Lens(model), ids, attention_mask=mask.astype(bool))
    }
    inputs = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}
    with torch.no_grad():
        states = model(**inputs, output_hidden_states=True).hidden_states
    for site, hidden in zip(("embedding", "block.0", "block.1"), states, strict=True):
        real = torch.nn.functional.normalize(
            hidden[inputs["attention_mask"].bool()].double(), dim=-1
        )
        pairs = len(real) * (len(real) - 1)
        expected = (float(real.sum(0).square().sum()) - len(real)) / pairs
        assert by_site[site]["average_cosine"] == pytest.approx(expected, abs=1e-5)
    watch = Watch(model, ids, attention_mask=mask)
    assert watch.windows.ids.shape == (4, 8), "columns of padding alone are not computed"
    watch.measure(0)
    assert watch.history[0].site("block.0")["average_cosine"] == pytest.approx(
        by_site["block.0"]["average_cosine"], rel=1e-4
    )
    with pytest.raises(BadInput, match="attention mask has the shape"):
        Watch(model, ids, attention_mask=mask[:2])


@pytest.mark.parametrize("side", ["right", "left"])
def test_padding_is_in_no_number_of_the_families(side):
    """A batch of one length, padded on a side: the same readings as of the batch without
    padding.
    """
    readings = []
    for width in (6, 11):
        model = bert()
        reader = Readings(Lens(model), "qk_logit_max,branch_ratio,sinks,repeated")
        ids, mask = padded(ROWS[:4], [6] * 4, width, side)
        position = np.maximum(mask.cumsum(1) - 1, 0)
        inputs = {"input_ids": ids, "attention_mask": mask, "position_ids": position}
        reader.begin(1)
        model(**{name: torch.from_numpy(array) for name, array in inputs.items()})
        reader.after(1)
        readings.append(
            {
                f"{reading.family}/{name}": value
                for reading in reader.harvest()
                for name, value in reading.values.items()
            }
        )
    plain, with_padding = readings
    assert plain.keys() == with_padding.keys()
    for name, value in plain.items():
        if not name.endswith(("/position", "_p99")):
            assert with_padding[name] == pytest.approx(value, rel=1e-3, abs=1e-5), name
        elif name.endswith("_p99"):
            assert with_padding[name] == pytest.approx(value, rel=0.02), name


def test_experts_get_no_padding():
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    config = transformers.MixtralConfig(
        vocab_size=50,
        **sizes,
        num_key_value_heads=2,
        num_experts_per_tok=2,
        num_local_experts=4,
        max_position_embeddings=16,
    )
    model = transformers.MixtralForCausalLM(config).eval()
    readings = []
    for width in (6, 11):
        ids, mask = padded(ROWS[:4], [6] * 4, width)
        reader = Readings(Lens(model), "expert_load")
        reader.begin(1)
        model(input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(mask))
        reader.after(1)
        readings.append(reader.harvest()[0].values)
    assert readings[1] == pytest.approx(readings[0], rel=1e-4)


def test_a_matrix_that_starts_at_zero_raises_no_alarm():
    """As the B matrices of LoRA: the first update has no relative size, and later ones are not the
    first step.
    """
    model = gpt2()
    weight = model.transformer.h[0].mlp.c_proj.weight
    with torch.no_grad():
        weight.zero_()
    watch = Watch(model, None, families="update_stable_rank:every=2,weight_stable_rank:every=2")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    rows = torch.from_numpy(ROWS[:4])
    for step in range(1, 15):
        with watch.step(step, optimizer):
            model(input_ids=rows, labels=rows).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    watch.harvest()
    assert watch.raised == []
    name = "transformer.h.0.mlp.c_proj.weight/relative"
    read = [reading for reading in watch.readings if reading.family == "update_stable_rank"]
    assert name not in read[0].values
    assert read[1].values[name] > 0.04, (
        "above the limit of HS511, which judges the first step alone"
    )


class Stream(IterableDataset):
    """Rows that come one after another."""

    def __iter__(self):
        return iter([{"input_ids": row} for row in ROWS[:30]])


def of_text(rows):
    """A collator that reads numbers from text."""
    ids = torch.tensor([[int(word) for word in row["text"].split()] for row in rows])
    return {"input_ids": ids, "labels": ids}


SETS = {
    "sets": (
        {"a": PackedText(ROWS[:20]), "b": PackedText(ROWS[20:])},
        collate,
        np.concatenate([ROWS[:12], ROWS[20:32]]),
    ),
    "stream": (Stream(), collate, ROWS[:24]),
    "raw rows": ([{"text": " ".join(map(str, row))} for row in ROWS], of_text, ROWS[:24]),
}


@pytest.mark.parametrize("kind", SETS)
def test_every_kind_of_eval_set_is_measured(tmp_path, kind):
    data, collator, expected = SETS[kind]
    monitor = Monitor(trainer_of(tmp_path, eval_dataset=data, data_collator=collator))
    assert np.array_equal(monitor.windows, expected)
    assert monitor.attention_mask is None


def test_rows_without_tokens_are_refused_in_a_sentence(tmp_path):
    pictures = [{"pixel_values": torch.zeros(3, 4, 4), "labels": 0}] * 4
    trainer = trainer_of(tmp_path, eval_dataset=pictures, data_collator=default_data_collator)
    with pytest.raises(BadInput, match=r"hold: pixel_values, labels\): give windows of token ids"):
        Monitor(trainer)


def test_ragged_and_padded_rows_are_measured_without_padding(tmp_path):
    ids, mask = padded(ROWS[:2], [4, 6], 12)
    rows = [
        {"input_ids": ids[row].tolist(), "attention_mask": mask[row].tolist()} for row in range(2)
    ]
    rows += [{"input_ids": ROWS[2].tolist()}, {"input_ids": [7]}]  # one token has no geometry
    monitor = Monitor(trainer_of(tmp_path, eval_dataset=rows))
    assert monitor.windows.shape == (3, 8)
    assert monitor.attention_mask.sum(1).tolist() == [4, 6, 8]


def test_without_an_eval_set_the_training_data_are_measured_and_it_says_so(tmp_path, caplog):
    trainer = trainer_of(tmp_path, eval_dataset=None)
    with caplog.at_level(logging.WARNING):
        monitor = Monitor(trainer, every=4)
    assert "first 24 windows of its training data, which are not held out" in caplog.text
    trainer.add_callback(monitor)
    trainer.train()
    assert [snapshot.step for snapshot in monitor.history] == [0, 4, 8]
    with pytest.raises(BadInput, match="an eval_dataset or a train_dataset"):
        Monitor(trainer_of(tmp_path, eval_dataset=None, train_dataset=None))
    with pytest.raises(BadInput, match="eval_dataset has no windows of two tokens"):
        Monitor(trainer_of(tmp_path, eval_dataset=[{"text": "once"}]))


def test_a_number_of_a_family_that_is_not_finite_is_named():
    watch = Watch(gpt2(), None)
    assert watch.take(Reading(step=1, family="sinks", values={"block.0/long": 0.0})) == []
    (alarm,) = watch.take(Reading(step=2, family="sinks", values={"block.0/long": math.nan}))
    assert (alarm.code, alarm.site) == ("HS517", "block.0")
