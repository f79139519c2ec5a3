"""The families of the monitor: each number against one that is obviously right, and that nothing
waits for the device.
"""

import contextlib
import itertools
import json
import logging
import sys
import types
from functools import partial

import numpy as np
import pytest
import torch
import torch.distributed as dist
import transformers
from torch.utils._python_dispatch import TorchDispatchMode

from headscan import BadInput
from headscan.model import Lens
from headscan.training import ALARMS, FAMILIES, Alarm, Monitor, PackedText, Watch
from headscan.training.data import collate
from headscan.training.monitor.alarms import rules_of
from headscan.training.monitor.attention import look_at
from headscan.training.monitor.families import ExpertLoad
from headscan.training.monitor.readings import Readings
from headscan.training.monitor.readings import _transfer as sent_numbers
from headscan.training.monitor.scene import Scene, Store
from headscan.training.monitor.weight_families import leave_spectra, orthonormal, spectra_of
from tests.card import Card, on_card
from tests.emulated_gpu import emulated_gpu
from tests.forked import grouped

ROWS = torch.from_numpy(np.random.default_rng(0).integers(0, 50, (40, 8)))
SMALL = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0, "vocab_size": 50}
WIDE = SMALL | {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 8,
    "num_experts_per_tok": 2,
}


def gpt2(**options):
    still = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            n_embd=16, n_layer=2, n_head=2, n_positions=8, **SMALL, **still, **options
        )
    )


MAKERS = {
    "gpt2": gpt2,
    "eager": lambda: gpt2(attn_implementation="eager"),
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**WIDE)),
    "mixtral": lambda: transformers.MixtralForCausalLM(
        transformers.MixtralConfig(**WIDE, num_local_experts=4)
    ),
    "qwen2-moe": lambda: transformers.Qwen2MoeForCausalLM(
        transformers.Qwen2MoeConfig(
            **WIDE, num_experts=4, moe_intermediate_size=8, shared_expert_intermediate_size=8
        )
    ),
}


def model_of(kind="gpt2"):
    torch.manual_seed(0)
    return MAKERS[kind]().train()


def readings_of(model, families, batches, rate=1e-3, run=None):
    """The readings of a few steps by family, and the weights after them."""
    # first: it wants the shards of a model under fully_shard
    optimiser = torch.optim.SGD(model.parameters(), lr=rate)
    reader = Readings(Lens(model), families)
    for step, rows in enumerate(batches, 1):
        reader.begin(step)
        for part in rows if isinstance(rows, list) else [rows]:
            (model if run is None else run)(input_ids=part, labels=part).loss.backward()
        reader.before(step)
        optimiser.step()
        optimiser.zero_grad()
        reader.after(step)
    return {reading.family: reading.values for reading in reader.harvest()}


@pytest.mark.parametrize("kind", MAKERS)
def test_attention_logits_are_those_of_the_model(kind):
    """Against attention weights that the model itself returns when it runs eagerly."""
    model = model_of(kind)
    values = readings_of(model, "qk_logit_max,sinks", [ROWS[:3]], rate=0.0)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        weights = model.eval()(input_ids=ROWS[:1], output_attentions=True).attentions
    for block, pattern in enumerate(weights):
        rows = pattern[0].double().numpy()  # [H, T, T]
        terms = np.where(rows > 0, rows * np.log(np.maximum(rows, 1e-30)), 0)
        entropy = -terms.sum(-1)[:, 1:] / np.log(np.arange(2, 9))
        assert values["qk_logit_max"][f"block.{block}/entropy"] == pytest.approx(
            entropy.mean(1).min(), abs=1e-5
        )
        # that half of the queries see
        received = [rows[:, position:, position].mean() for position in range(5)]
        assert values["sinks"][f"block.{block}/attention"] == pytest.approx(max(received), abs=1e-5)
        assert values["sinks"][f"block.{block}/position"] == int(np.argmax(received))


def test_a_block_of_scores_by_hand():
    """Grouped queries, a mask of padding, pieces of one query: the largest logit and norms by
    loops.
    """
    draw = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(2, heads, 6, 4, generator=draw) for heads in (4, 2, 2))
    mask = torch.tensor([[0, 1, 1, 1, 1, 1]] * 2)
    call = look_at(query, key, value, mask, 0.7, True)
    for head in range(4):
        logits = [
            0.7 * float(query[0, head, i] @ key[0, head // 2, j])
            for i in range(6)
            for j in range(1, i + 1)
        ]
        assert float(call.maximum[head]) == pytest.approx(max(logits), rel=1e-5)
    assert float(call.norms["key"]) == pytest.approx(float(key[0].norm(dim=-1).mean()))
    full = look_at(
        query,
        key,
        value,
        torch.where(torch.ones(6, 6).tril().bool(), 0.0, -1e30)[None, None],
        0.7,
        False,
    )
    assert torch.allclose(full.maximum, look_at(query, key, value, None, 0.7, True).maximum)


def test_an_outlier_is_seen_where_it_is_born():
    model = model_of()
    with torch.no_grad():
        model.transformer.h[1].mlp.c_proj.bias[3] = 500.0
    values = readings_of(model, "branch_ratio", [ROWS[:3]], rate=0.0)["branch_ratio"]
    assert values["block.1/mlp_max"] == pytest.approx(500, rel=0.01) == values["block.1/output_max"]
    assert (
        max(
            values[f"block.{k}/{part}_max"]
            for k, part in ((0, "output"), (1, "attention"), (1, "middle"))
        )
        < 5
    )
    assert values["block.1/headroom"] == pytest.approx(
        500 / torch.finfo(torch.float32).max, rel=0.01
    )
    with torch.no_grad():
        states = Lens(model.eval()).run(ROWS[:3], sites="block.0,block.1.mlp,block.1.attention")
    ratio = (states["block.1.mlp"].norm(dim=-1) / states["block.0"].norm(dim=-1)).mean()
    assert values["block.1/mlp_ratio"] == pytest.approx(float(ratio), rel=1e-4)
    parts = {name.partition("/")[2] for name in values if name.startswith("block.0/")}
    assert {
        f"{part}_{statistic}"
        for part in ("input", "attention", "middle", "mlp", "output")
        for statistic in ("p99", "max")
    } < parts


@pytest.mark.parametrize("shape", [(40, 24), (24, 40), (3, 20, 30), (40, 24, 1)])
def test_spectra_are_those_of_a_whole_decomposition(shape):
    draw = np.random.default_rng(1)
    plain = shape if shape[-1] > 1 else shape[:-1]
    matrix = draw.standard_normal(plain) * np.geomspace(1, 0.05, plain[-1])
    store = Store()
    leave_spectra(store, {"w": torch.from_numpy(matrix.reshape(shape))})
    actual = spectra_of({name: value.double().numpy() for name, value in store.sums.items()})
    rows = matrix.reshape(-1, plain[-1])
    energies = np.linalg.svd(rows, compute_uv=False) ** 2
    leading = -(-min(rows.shape) // 4)
    assert actual["w/stable_rank"] == pytest.approx(energies.sum() / energies[0], rel=1e-3)
    assert actual["w/tail"] == pytest.approx(
        1 - energies[:leading].sum() / energies.sum(), abs=0.005
    )
    norms = np.linalg.norm(rows, axis=1)
    assert actual["w/row_spread"] == pytest.approx(
        norms.max() / np.sort(norms)[(len(norms) - 1) // 2], rel=1e-4
    )


def test_updates_and_gradients_are_told_by_layer():
    model = model_of()
    for weight in model.transformer.h[0].parameters():
        weight.requires_grad_(False)
    weights_before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    values = readings_of(model, "update_stable_rank,gradient_share", [ROWS[:4]], rate=0.5)
    name = "transformer.h.1.mlp.c_fc.weight"
    moved = (dict(model.named_parameters())[name] - weights_before[name]).norm() / weights_before[
        name
    ].norm()
    assert values["update_stable_rank"][f"{name}/relative"] == pytest.approx(
        float(moved.detach()), rel=1e-4
    )
    assert values["update_stable_rank"]["transformer.h.0.mlp.c_fc.weight/against_mean"] == 0
    shares = values["gradient_share"]
    assert shares["block.0/share"] == 0 < shares["block.1/share"]
    shared = {name: share for name, share in shares.items() if name.endswith("/share")}
    assert sum(shared.values()) == pytest.approx(1)


def norm_of(weights):
    return float(torch.stack([weight.grad.norm() for weight in weights]).norm())


def test_the_gradient_norm_is_told_by_block_and_by_parameter_group():
    model = model_of()
    decayed = [weight for weight in model.parameters() if weight.ndim > 1]
    others = [weight for weight in model.parameters() if weight.ndim == 1]
    optimizer = torch.optim.SGD([{"params": decayed}, {"params": others}], lr=0.1)
    watch = Watch(model, None, families="gradient_share")
    with watch.step(1, optimizer):
        model(input_ids=ROWS[:4], labels=ROWS[:4]).loss.backward()
        optimizer.step()
    watch.harvest()
    (values,) = [reading.values for reading in watch.readings]
    expected = {
        "group.0": norm_of(decayed),
        "group.1": norm_of(others),
        "block.1": norm_of(model.transformer.h[1].parameters()),
    }
    for name, norm in expected.items():
        assert values[f"{name}/norm"] == pytest.approx(norm, rel=1e-4)


@pytest.mark.parametrize("kind", ["mixtral", "qwen2-moe"])
def test_experts_are_counted(kind):
    model = model_of(kind)
    outputs = []
    router = next(
        part for name, part in model.named_modules() if name.endswith("layers.1.mlp.gate")
    )
    router.register_forward_hook(lambda module, inputs, answer: outputs.append(answer))
    values = readings_of(model, "expert_load", [[ROWS[:4], ROWS[4:8]]])["expert_load"]
    experts = torch.cat([output[2] for output in outputs[-2:]]).flatten().numpy()
    load = np.bincount(experts, minlength=4) / (8 * 8 * 2)
    assert values["block.1/least"] == pytest.approx(4 * load.min(), abs=1e-5)
    assert values["block.1/most"] == pytest.approx(4 * load.max(), abs=1e-5)
    logits = torch.cat([output[0].detach() for output in outputs[-2:]])
    chance = logits.float().softmax(-1).mean(0)
    assert values["block.1/dead"] == ((load == 0) & (chance.numpy() < 0.1 / 4)).mean()
    assert 0 < values["block.1/mass"] <= 1 >= values["block.1/entropy"] > 0.5


@pytest.mark.parametrize("kind", ["logits", "probabilities"])
def test_an_expert_is_dead_that_has_no_token_and_hardly_a_chance(kind):
    shares = torch.tensor([[0.5, 0.3, 0.195, 0.005]]).repeat(6, 1)
    family = ExpertLoad()
    store = Store()
    family.route(
        store,
        "block.0",
        (
            shares.log() + 3 if kind == "logits" else shares,
            shares[:, :2],
            torch.tensor([[0, 1]] * 6),
        ),
    )
    actual = family.finish(
        {name: value.double().numpy() for name, value in store.sums.items()}, None
    )
    assert (actual["block.0/least"], actual["block.0/dead"]) == (0, 0.25)
    assert actual["block.0/entropy"] == pytest.approx(
        -float(torch.special.xlogy(shares[0], shares[0]).sum()) / np.log(4)
    )


def test_windows_that_come_back_are_counted():
    model = model_of()
    batches = [ROWS[4 * k : 4 * k + 4] for k in range(9)] + [ROWS[:4], ROWS[2:6]]
    reader = Readings(Lens(model), "repeated:every=11")
    for step, rows in enumerate(batches, 1):
        reader.begin(step)
        model(input_ids=rows)
        reader.after(step)
    first, last = reader.harvest()
    assert first.values == {
        "windows/share": 0.0,
        "windows/surprise": pytest.approx(np.log(2**16), abs=1e-3),
    }
    assert last.values["windows/share"] == 8 / 40
    counts = np.zeros(2**16)
    nats = []
    for rows in batches:
        pairs = [
            (40_503 * a + b) % 2**16 for row in rows.tolist() for a, b in itertools.pairwise(row)
        ]
        nats.append(-np.mean(np.log((counts[pairs] + 0.01) / (counts + 0.01).sum())))
        np.add.at(counts, pairs, 1)
    assert last.values["windows/surprise"] == pytest.approx(np.mean(nats[1:]), abs=1e-3)


def test_tokens_unlike_those_before_are_named_whatever_the_loss():
    model = model_of()
    usual, unusual = (
        torch.from_numpy(np.random.default_rng(0).integers(*ends, (30, 4, 8)))
        for ends in ((0, 10), (20, 50))
    )
    watch = Watch(model, None, families="repeated:every=2")
    optimiser = torch.optim.SGD(model.parameters(), lr=0.0)
    for step, rows in enumerate([*usual[:20], *unusual[:6]], 1):
        with watch.step(step, optimiser):
            model(input_ids=rows)
            optimiser.step()
    watch.harvest()
    assert [(alarm.code, alarm.step) for alarm in watch.raised] == [("HS516", 22)]


SYNCS = (
    "_local_scalar_dense",
    "nonzero",
    "is_nonzero",
    "masked_select",
    "equal",
    "unique",
    "bincount",
    "_to_cpu",
    "eigh",
    "svd",
)


class Waits(TorchDispatchMode):
    """Notes operations that make a host wait for a device."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        name = operation.name().partition("::")[2].partition(".")[0]
        self.seen += (
            [name]
            if any(
                name == sync or name.startswith((f"{sync}_", f"linalg_{sync}")) for sync in SYNCS
            )
            else []
        )
        return operation(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_no_hook_waits_for_the_device(kind):
    """All families at once in the step, to the moment at which their tensors are on their way: no
    operation that waits.
    """
    model = model_of(kind)
    reader = Readings(Lens(model))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(number, families):
        with Waits() as waits:
            if families:
                reader.begin(number)
            model(input_ids=ROWS[:4], labels=ROWS[:4]).loss.backward()
            if families:
                reader.before(number)
            optimiser.step()
            if families:
                reader.after(number)
        return sorted(waits.seen)

    plain = step(0, False)
    watched = step(1, True)
    assert watched == plain
    assert len(reader.harvest()) == len(FAMILIES) - 1  # no experts
    with Waits() as waits:
        float(torch.ones(2).sum())
    assert waits.seen == ["_local_scalar_dense"], "the count sees what waits"


class Calls(TorchDispatchMode):
    """Counts what a device would be called for: all operations but views and bare memory."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        name = operation.name().partition("::")[2].partition(".")[0]
        self.count += not operation.is_view and name not in ("empty", "new_empty", "detach")
        return operation(*args, **(kwargs or {}))


def test_a_step_calls_the_device_a_few_times_more_under_the_monitor():
    """Calls a step over all clocks, of a GPT-2 of 12 blocks: on a GPU each takes about as long as
    the next, whatever the size. Steps on no clock have the copy of their windows alone.
    """
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(n_embd=24, n_layer=12, n_head=2, n_positions=8, **SMALL)
    )
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    lens = Lens(model)

    def calls(families, number):
        reader = Readings(lens, families)
        with Calls() as counted:
            reader.begin(number)
            model(input_ids=ROWS[:4], labels=ROWS[:4]).loss.backward()
            reader.before(number)
            optimiser.step()
            reader.after(number)
        return counted.count

    calls("", 1)
    plain = calls("", 1)
    assert calls("*", 7) - plain <= 1
    total = 0.0
    for name in FAMILIES.names():
        if name != "expert_load":
            every = FAMILIES.build(name).every
            total += (calls(name, 1) - plain) / every
    assert total <= 55  # 188 where each tensor was called for by itself


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_device_reads_what_the_cpu_does(kind, monkeypatch):
    """All families in two steps of a model whose weights and gradients are on the card."""
    model = model_of(kind).eval()
    lens = Lens(model)
    generator = torch.Generator
    # The double's device has no generator and no autocast of its own.
    monkeypatch.setattr(torch, "Generator", lambda device="cpu": generator())
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())
    values = []
    for device in ("cpu", "meta"):
        with Card() as card:
            if device == "meta":
                on_card(model)
            optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
            reader = Readings(lens)
            weights = [weight.detach().clone() for weight in model.parameters()]
            rows = ROWS[:4] if device == "cpu" else Card.of(ROWS[:4])
            reader.begin(1)
            model(input_ids=rows, labels=rows, use_cache=False).loss.backward()
            waits = card.waits
            reader.before(1)
            optimiser.step()
            reader.after(1)
            assert card.waits == waits
            readings = reader.harvest()
            with torch.no_grad():
                for weight, old in zip(model.parameters(), weights, strict=True):
                    weight.copy_(old)
            optimiser.zero_grad()
        values.append({reading.family: reading.values for reading in readings})
    cpu, card_values = values
    assert (
        set(card_values)
        == set(cpu)
        == set(FAMILIES.names()) - (set() if kind == "mixtral" else {"expert_load"})
    )
    for family, numbers in cpu.items():
        assert card_values[family] == pytest.approx(numbers, rel=1e-3, abs=1e-5), family


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_no_hook_waits_for_a_card():
    model = model_of("llama").cuda()
    reader = Readings(Lens(model))
    rows = ROWS[:4].cuda()
    torch.cuda.set_sync_debug_mode("error")
    try:
        reader.begin(1)
        model(input_ids=rows, labels=rows).loss.backward()
        reader.before(1)
        reader.after(1)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(reader.harvest()) == len(FAMILIES) - 1


def test_training_is_what_it_was_and_nothing_is_left_behind():
    """Same weights bit for bit with and without families; no hook and no attention
    function stays.
    """
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    function = ALL_ATTENTION_FUNCTIONS["sdpa"]
    plain = model_of()
    watched = model_of()
    batches = [ROWS[4 * k : 4 * k + 4] for k in range(3)]
    torch.manual_seed(7)
    readings_of(plain, "", batches, rate=0.1)
    torch.manual_seed(7)
    reading = readings_of(watched, "*", batches, rate=0.1)
    assert len(reading) == len(FAMILIES) - 1
    assert all(
        torch.equal(a, b) for a, b in zip(plain.parameters(), watched.parameters(), strict=True)
    )
    assert ALL_ATTENTION_FUNCTIONS["sdpa"] is function
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in watched.modules())


def test_micro_batches_add_up():
    """A batch in one piece and in two: the same means, and the larger maximum."""
    first, two = (model_of() for _ in range(2))
    at_once = readings_of(
        first, "branch_ratio,gradient_share,update_stable_rank", [ROWS[:8]], rate=0.1
    )
    parts = readings_of(
        two, "branch_ratio,gradient_share,update_stable_rank", [[ROWS[:4], ROWS[4:8]]], rate=0.05
    )
    relative = ("update_stable_rank", "transformer.h.0.mlp.c_fc.weight/relative")
    ratio, largest = (
        ("branch_ratio", f"block.1/mlp_{statistic}") for statistic in ("ratio", "max")
    )
    for family, where in (ratio, largest, relative, ("gradient_share", "block.0/share")):
        assert parts[family][where] == pytest.approx(at_once[family][where], rel=1e-4)


def test_compiled_models_are_read_on_the_steps_of_the_clock():
    model = model_of().eval()
    plain = readings_of(
        model_of().eval(), "qk_logit_max,branch_ratio,sinks", [ROWS[:4]] * 2, rate=0.0
    )
    compiled = torch.compile(model, backend="eager")
    with contextlib.suppress(RuntimeError):
        compiled(input_ids=ROWS[:4], labels=ROWS[:4]).loss.backward()
    model.zero_grad()
    actual = readings_of(
        model, "qk_logit_max,branch_ratio,sinks", [ROWS[:4]] * 2, rate=0.0, run=compiled
    )
    assert actual["branch_ratio"] == pytest.approx(plain["branch_ratio"], rel=1e-4)
    assert actual["qk_logit_max"] == pytest.approx(plain["qk_logit_max"], rel=1e-4)


def _work(folder, sharded, rank):
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    model = model_of().eval()
    if sharded:
        mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
        for block in model.transformer.h:
            fully_shard(block, mesh=mesh)
        run = fully_shard(model, mesh=mesh)
    else:
        run = DistributedDataParallel(model)
    readings = readings_of(model, "*", [ROWS[4 * rank : 4 * rank + 4]], rate=0.1, run=run)
    (folder / f"{rank}.json").write_text(json.dumps(readings))


@pytest.mark.parametrize("sharded", [False, True], ids=["ddp", "fully_shard"])
def test_two_processes_read_what_one_does(tmp_path, sharded):
    """Each has half of the batch; means, maxima, updates and shares are those of the whole batch in
    one process.
    """
    grouped(partial(_work, tmp_path, sharded), 2, tmp_path)
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    single = readings_of(model_of().eval(), "*", [ROWS[:8]], rate=0.1)
    assert set(first) == set(single)
    for family in set(single) - {
        "repeated",
        "qk_logit_max",
        "sinks",
    }:  # of the first window of each
        # the larger of the two
        expected = {
            name: value for name, value in single[family].items() if not name.endswith("_p99")
        }
        assert first[family] == second[family]
        assert {name: first[family][name] for name in expected} == pytest.approx(
            expected, rel=1e-3, abs=1e-5
        ), family
    assert first["qk_logit_max"] == second["qk_logit_max"]


def _trainer(folder, steps=6, **options):
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=4,
        save_strategy="no",
        report_to=[],
        logging_steps=1,
        use_cpu=True,
        disable_tqdm=True,
        seed=1,
        **options,
    )
    rows = ROWS.numpy()
    return transformers.Trainer(
        model_of(),
        arguments,
        train_dataset=PackedText(rows),
        eval_dataset=PackedText(rows[:6]),
        data_collator=collate,
    )


def test_one_line_brings_all_of_it_into_the_trainers_log(tmp_path, capsys):
    trainer = _trainer(tmp_path, gradient_accumulation_steps=2)
    monitor = Monitor(trainer, every=3)
    trainer.add_callback(monitor)
    trainer.train()
    keys = {
        key for entry in trainer.state.log_history for key in entry if key.startswith("headscan/")
    }
    assert {key.split("/")[1] for key in keys} == {"geometry", *FAMILIES} - {"expert_load"}
    assert "headscan/gradient_share/head/kept_norm" in keys
    assert [entry["step"] for entry in trainer.state.log_history if "loss" in entry] == [
        1,
        2,
        3,
        4,
        5,
        6,
    ]
    lines = [json.loads(line) for line in (tmp_path / "monitor.jsonl").read_text().splitlines()]
    assert [line["family"] for line in lines] == [reading.family for reading in monitor.readings]
    assert "headscan/" not in capsys.readouterr().out, "hundreds of numbers are not for the screen"


def test_alarms_are_findings_and_go_where_they_are_asked_to(tmp_path, caplog, monkeypatch):
    alarms = []
    sent = []
    package = types.ModuleType("wandb")
    package.run = None
    package.init = lambda **options: setattr(package, "run", options)
    package.log = lambda numbers, step: sent.append((step, numbers))
    package.alert = lambda title, text: sent.append((title, text))
    monkeypatch.setitem(sys.modules, "wandb", package)
    # no warm-up, far too high
    trainer = _trainer(tmp_path, steps=8, learning_rate=0.5, warmup_steps=0)
    trainer.add_callback(
        Monitor(
            trainer,
            every=8,
            on_alarm=lambda alarm: alarms.append(alarm) or "stop",
            to="wandb:project=p",
        )
    )
    with caplog.at_level(logging.WARNING):
        trainer.train()
    assert trainer.state.global_step < 8
    assert isinstance(alarms[0], Alarm)
    assert alarms[0].code == "HS511"
    finding = alarms[0].finding()
    assert (finding.name, finding.level, finding.value) == ("NO-WARM-UP", "alarm", alarms[0].value)
    assert package.run == {"project": "p"}
    assert sent[0] == ("HS511 warmup", f"After step 1: {alarms[0].sentence}")
    assert "HS511" in caplog.text
    with pytest.raises(BadInput, match="panic"):
        _raises(tmp_path)


def _raises(folder):
    trainer = _trainer(folder, steps=3, learning_rate=0.5, warmup_steps=0)
    trainer.add_callback(Monitor(trainer, every=8, on_alarm=lambda alarm: "panic"))
    trainer.train()


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_trackers_keep_numbers_and_alarms_here(name, tmp_path, monkeypatch):
    """The real packages, offline, where they are installed."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))  # read when it is imported
    package = pytest.importorskip(name)
    monkeypatch.chdir(tmp_path)
    watch = Watch(model_of(), None, families="gradient_share", to=f"{name}:project=mine")
    optimiser = torch.optim.SGD(watch.lens.model.parameters(), lr=0.1)
    for step in (1, 2):
        with watch.step(step, optimiser):
            watch.lens.model(input_ids=ROWS[:4], labels=ROWS[:4]).loss.backward()
            optimiser.step()
    watch.trackers[0].alert(
        Alarm(
            name="loss",
            code="HS501",
            step=2,
            site=None,
            before=1.0,
            value=2.0,
            sentence="It leapt.",
        )
    )
    package.finish()
    assert any(path.is_file() for path in tmp_path.rglob("*"))


def test_every_alarm_has_a_code_and_a_family_that_it_reads():
    scene = Scene(Lens(model_of("mixtral")))
    values = readings_of(scene.lens.model, "*", [ROWS[:4]])
    columns = {
        f"{family}/{name.rpartition('/')[2]}"
        for family, numbers in values.items()
        for name in numbers
    }
    rules = [ALARMS.build(name) for name in ALARMS.names()]
    assert sorted(rule.code for rule in rules) == [
        f"HS{code}" for code in range(501, 501 + len(rules))
    ]
    assert {rule.quantity for rule in rules if "/" in rule.quantity} <= columns
    with pytest.raises(BadInput, match="',,' names no alarm; there are: cone"):
        rules_of(",,")


@pytest.mark.parametrize("rank", [12, 5])
def test_a_card_makes_an_orthonormal_basis_in_a_few_steps(rank):
    generator = torch.Generator().manual_seed(0)
    columns = torch.randn(200, rank, generator=generator)
    basis = columns @ torch.randn(rank, 12, generator=generator) * torch.logspace(0, -3, 12)
    with Card() as card:
        card_basis = orthonormal(Card.of(basis)).held
    assert (card.waits, card.all <= 24) == (0, True)
    assert torch.linalg.matrix_norm(card_basis.T @ card_basis - torch.eye(12)) < 1e-3
    remainder = basis - card_basis @ (card_basis.T @ basis)
    assert remainder.norm() < 1e-5 * basis.norm()


def test_numbers_on_several_devices_are_sent_together():
    with emulated_gpu():
        store = Store()
        store.most("largest", torch.tensor([1.0, 2.0]))
        store.most("of_another_device", torch.tensor(3.0, device="cuda"))
        store.mean("mean", torch.tensor(4.0, device="cuda"))
        store.local["local"] = torch.tensor([5.0], device="cuda")
        transfer = sent_numbers(7, FAMILIES["nonfinite"](), store)
    assert transfer.flat.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
