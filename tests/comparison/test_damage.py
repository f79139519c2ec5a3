"""What a second model costs, block by block: against whole models with one block exchanged, faults,
choices, files, options.
"""

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import headscan
from headscan.comparison.exchange import divergences
from headscan.comparison.state_damage import NOISE, StatePair
from headscan.leaks.bounds import Code, pairwise_bits
from headscan.model import Lens
from headscan.model.framed import framed_ids
from headscan.model.rounding import k_codes, round_block, rounded
from headscan.text.tokens import frame_of

ASSETS = Path(__file__).resolve().parents[3] / "shared" / "assets" / "models"
SMALL = {
    "gpt-vanilla": "gpt-vanilla",
    "stories260K": ASSETS / "stories260K",
    "babyllama": ASSETS / "babyllama-tok105",
}
READ = {"max_tokens": 192, "context": 32, "sample": 192}


def small(name):
    if not Path(SMALL[name]).exists() and name != "gpt-vanilla":
        pytest.skip(f"{SMALL[name]} is absent")
    return Lens.load(SMALL[name])


def blocks(lens):
    model = lens.model.model if hasattr(lens.model, "model") else lens.model.transformer
    return model.layers if hasattr(model, "layers") else model.h


def rounded_model(lens, name):
    """A whole second model: for bitsandbytes the one that transformers loads."""
    if name in ("8bit", "4bit"):
        return Lens.load(lens.origin.source, dtype=name)
    other = copy.deepcopy(lens.model)
    lens = Lens(other, lens.tokenizer, name="other")
    for block in blocks(lens):
        round_block(block, name)
    return lens


def brute(lens, other, ids, skipped=1):
    """KL of whole models by the definition, in float64: mean over the positions that have a next
    token.
    """

    def logs(model):
        with torch.no_grad():
            return model.model(ids).logits[:, skipped:-1].double().log_softmax(-1)

    p = logs(lens)
    q = logs(other)
    targets = ids[:, skipped + 1 :, None]
    loss = (p - q).gather(-1, targets).mean()
    agree = (p.argmax(-1) == q.argmax(-1)).double().mean()
    kl = (p.exp() * (p - q)).sum(-1).mean()
    back = (q.exp() * (q - p)).sum(-1).mean()
    return {"kl": kl, "kl_reverse": back, "loss_change": loss, "top1_agreement": agree}


def exchanged(lens, other, numbers):
    """The first model with these blocks of the other, as one whole model; the first is put back by
    `blocks(lens)[i] = ...`.
    """
    mine = Lens(copy.copy(lens.model), lens.tokenizer, name="mixed")
    mine.model = copy.deepcopy(lens.model)
    for number in numbers:
        blocks(mine)[number] = blocks(other)[number]
    return mine


@pytest.mark.parametrize(
    ("name", "rounding"), [("stories260K", "q4_0"), ("babyllama", "8bit"), ("gpt-vanilla", "q2_k")]
)
def test_each_exchange_is_that_of_two_whole_models(name, rounding):
    lens = small(name)
    pytest.importorskip("bitsandbytes" if rounding.endswith("bit") else "gguf")
    result = headscan.compare(SMALL[name], "stories", damage=True, against=rounding, **READ)
    other = rounded_model(lens, rounding)
    depth = lens.depth
    frame = frame_of(lens.tokenizer, "tokenizer")
    ids = framed_ids(torch.tensor(np.stack([one.ids for one in windows(lens)])), frame)
    skipped = 1 + len(frame.front)
    for row in result.damage:
        number = int(row.text("block").removeprefix("block."))
        mixed = exchanged(lens, other, [number] if row["mode"] == "isolated" else range(number + 1))
        for field, value in brute(lens, mixed, ids, skipped).items():
            assert row.number(field) == pytest.approx(float(value), abs=1e-6), (
                row["block"],
                row["mode"],
                field,
            )
        if row["mode"] == "isolated":
            back = exchanged(lens, other, [one for one in range(depth) if one != number])
            assert row.number("restored_kl") == pytest.approx(
                float(brute(lens, back, ids, skipped)["kl"]), abs=1e-6
            )
    assert all(row.interval("top1_agreement")[1] <= 1 for row in result.damage)
    assert len(result.damage) == 2 * depth
    shares = [row.number("share") for row in result.damage if row["mode"] == "accumulated"]
    assert sum(shares) == pytest.approx(1.0)
    whole = brute(lens, exchanged(lens, other, range(depth)), ids, skipped)
    assert result.totals["whole"].number("kl") == pytest.approx(float(whole["kl"]), abs=1e-6)


def test_a_model_that_torchao_packed_costs_what_two_whole_models_say(tmp_path):
    torchao = pytest.importorskip(
        "torchao", reason="torchao is not installed: models that it packed are NOT compared"
    )
    import transformers

    lens = small("babyllama")
    how = transformers.TorchAoConfig(torchao.quantization.Int8WeightOnlyConfig())
    packed = transformers.AutoModelForCausalLM.from_pretrained(
        SMALL["babyllama"], quantization_config=how
    )
    packed.save_pretrained(tmp_path / "int8")
    lens.tokenizer.save_pretrained(tmp_path / "int8")
    result = headscan.compare(
        [SMALL["babyllama"], tmp_path / "int8"], "stories", damage=True, **READ
    )
    other = Lens.load(tmp_path / "int8")
    ids = torch.tensor(np.stack([one.ids for one in windows(lens)]))
    alone = [row for row in result.damage if row["mode"] == "isolated"]
    assert [row["block"] for row in alone] == [f"block.{number}" for number in range(lens.depth)]
    for number, row in enumerate(alone):
        assert 0.2 < row.number("bytes_second") / row.number("bytes_first") < 0.4
        for field, value in brute(lens, exchanged(lens, other, [number]), ids).items():
            assert row.number(field) == pytest.approx(float(value), abs=1e-6)
    assert headscan.compare([tmp_path / "int8"] * 2, "stories", damage=True, **READ).damage == []


def test_a_packed_model_names_the_extra_that_reads_it(tmp_path, monkeypatch):
    config = json.loads((Path(Lens.load("gpt-vanilla").origin.files["config.json"])).read_text())
    (tmp_path / "config.json").write_text(
        json.dumps(config | {"quantization_config": {"quant_method": "torchao"}})
    )
    monkeypatch.setattr("headscan.model.weights.find_spec", lambda name: None)
    with pytest.raises(
        headscan.BadInput, match=r'were packed by torchao: pip install "headscan\[torchao\]"'
    ):
        Lens.load(tmp_path)


def windows(lens, tokens=READ["max_tokens"], context=READ["context"]):
    from headscan.text import Windows

    return Windows("stories", lens.tokenizer, context, max_tokens=tokens)


# ---- Faults of one block, beside the rounding of all to 8 bits


def two_bits(block, lens, rng):
    for weight in matrices(block):
        groups = weight.data.reshape(-1, 16 if weight.numel() % 32 else 32)
        low = groups.amin(1, keepdim=True)
        high = groups.amax(1, keepdim=True)
        step = (high - low) / 3
        groups.copy_(low + ((groups - low) / step).round() * step)


def permuted_head(block, lens, rng):
    """The values of one head in another order."""
    config, heads = lens.model.config, lens.model.config.num_attention_heads
    if hasattr(block, "attn"):
        values = block.attn.c_attn.weight.data[:, -config.hidden_size :].T
        size = config.hidden_size // heads
    else:
        values = block.self_attn.v_proj.weight.data
        size = config.head_dim
        heads = config.num_key_value_heads
    own = values[(head := int(rng.integers(heads))) * size : (head + 1) * size]
    own.copy_(own[torch.arange(size).roll(1)].clone())


def scaled(block, lens, rng):
    weights = matrices(block)
    weights[rng.integers(len(weights))].data.mul_(1.05)


def matrices(block):
    return [weight for weight in block.parameters() if weight.ndim == 2]


def named_first(lens, fault, seed):
    """Which block was hurt, and which has the greatest divergence."""
    rng = np.random.default_rng(seed)
    other = rounded_model(lens, "q8_0")
    number = int(rng.integers(lens.depth))
    fault(blocks(other)[number], lens, rng)
    result = headscan.compare(
        [lens, other], "stories", damage=True, seed=seed, max_tokens=512, context=64, sample=256
    )
    [found] = [one for one in result.findings if one.name == "WORST-PART"]
    return f"block.{number}", found.site


@pytest.mark.parametrize("fault", [two_bits, permuted_head, scaled])
@pytest.mark.parametrize("name", ["stories260K"])
def test_a_fault_of_one_block_is_named_first(name, fault):
    hurt, found = named_first(small(name), fault, 3)
    assert found == hurt


# ---- Formats


def packed_k(codes, bits):
    """The bytes of a block in the layout of llama.cpp's Q4_K or Q2_K."""
    s, o = codes.s.to(torch.uint8), codes.o.to(torch.uint8)
    q = codes.q.to(torch.uint8).movedim(0, 2).reshape(len(s), -1)
    units = [codes.d.view(torch.uint8), codes.m.view(torch.uint8)]
    if bits == 2:
        quarters = q.reshape(-1, 2, 4, 32).unbind(2)
        codes_of_two_bits = sum(quarter << 2 * k for k, quarter in enumerate(quarters))
        return torch.cat([s | o << 4, codes_of_two_bits.flatten(1), *units], dim=1)
    low, high = q.reshape(-1, 4, 2, 32).unbind(2)
    scales = [s[:, :4] | s[:, 4:] >> 4 << 6, o[:, :4] | o[:, 4:] >> 4 << 6]
    lower_bits = s[:, 4:] & 15 | (o[:, 4:] & 15) << 4
    return torch.cat([*units, *scales, lower_bits, (low | high << 4).flatten(1)], dim=1)


@pytest.mark.parametrize(("bits", "kind", "size", "top"), [(4, "Q4_K", 32, 15), (2, "Q2_K", 16, 3)])
def test_rounded_blocks_are_what_another_reader_reads_within_a_step(bits, kind, size, top):
    gguf = pytest.importorskip("gguf")
    rows = (
        torch.randn(64, 256, generator=torch.Generator().manual_seed(bits))
        * torch.logspace(-3, 1, 64)[:, None]
    )
    data = packed_k(k_codes(rows, bits), bits).numpy()
    read = torch.from_numpy(gguf.quants.dequantize(data, gguf.GGMLQuantizationType[kind]))
    parts = rows.reshape(64, -1, size)
    span = parts.amax(2).clamp(min=0) - parts.amin(2).clamp(max=0)
    # Half a step, and what scale and offset lose as whole numbers of 6 or 4 bits of the widest of
    # their block.
    most = 63 if bits == 4 else 15
    loose = (span / top / 2 + span.amax(1, keepdim=True) * (1 + 1 / top) / most).repeat_interleave(
        size, 1
    )
    assert bool(((read - rows).abs() <= loose * 1.01).all())
    stored = rounded(rows, kind)
    assert torch.equal(stored.weights, read)
    assert stored.bytes == data.nbytes


@pytest.mark.parametrize("kind", ["Q8_0", "Q5_0", "Q4_0"])
def test_symmetric_formats_are_bit_for_bit_those_of_the_reference(kind):
    gguf = pytest.importorskip("gguf")
    rows = torch.randn(16, 96, generator=torch.Generator().manual_seed(1))
    rows[3] = 0
    data = gguf.quants.quantize(rows.numpy(), gguf.GGMLQuantizationType[kind])
    read = torch.from_numpy(gguf.quants.dequantize(data, gguf.GGMLQuantizationType[kind]))
    stored = rounded(rows, kind)
    assert torch.equal(stored.weights, read)
    assert stored.bytes == data.nbytes


def test_rows_that_fit_no_block_take_a_smaller_one_or_stay_halves():
    kinds = [rounded(torch.randn(4, width), "Q4_K").format for width in (512, 64, 40)]
    assert kinds == ["Q4_K", "Q5_0", "F16"]
    assert bool((rounded(torch.zeros(2, 256), "Q2_K").weights == 0).all())


# ---- The verb


def test_a_folder_of_the_rounded_model_costs_what_the_rounding_does(tmp_path):
    pytest.importorskip("gguf")
    lens = small("gpt-vanilla")
    other = rounded_model(lens, "q4_0")
    other.model.save_pretrained(tmp_path / "q4")
    lens.tokenizer.save_pretrained(tmp_path / "q4")
    by_file = headscan.compare(["gpt-vanilla", tmp_path / "q4"], "stories", damage=True, **READ)
    by_name = headscan.compare("gpt-vanilla", "stories", damage=True, against="q4_0", **READ)
    for one, two in zip(by_file.damage, by_name.damage, strict=True):
        assert (one["block"], one["mode"]) == (two["block"], two["mode"])
        for field in (
            "kl",
            "loss_change",
            "gain",
            "relative_error",
            "mean_direction_error",
            "share",
        ):
            assert one.number(field) == pytest.approx(two.number(field), abs=1e-7), field
    assert lens.model.training is False
    assert "forward" not in vars(blocks(lens)[0])


def test_what_is_interrupted_goes_on_and_ends_the_same(tmp_path, monkeypatch):
    pytest.importorskip("gguf")
    monkeypatch.setattr("headscan.run.parts.Parts.due", lambda self: self.folder is not None)

    def stop(stage, done, total, unit):
        if "block.3" in stage:
            raise KeyboardInterrupt

    options = {"damage": True, "against": "q8_0", **READ}
    with pytest.raises(KeyboardInterrupt):
        headscan.compare("gpt-vanilla", "stories", out=tmp_path / "run", progress=stop, **options)
    with pytest.raises(headscan.BadInput, match="cannot be resumed: --against"):
        headscan.compare(
            "gpt-vanilla",
            "stories",
            out=tmp_path / "run",
            resume=True,
            **options | {"against": "q4_0"},
        )
    stages = []
    again = headscan.compare(
        "gpt-vanilla",
        "stories",
        out=tmp_path / "run",
        resume=True,
        progress=lambda stage, *rest: stages.append(stage),
        **options,
    )
    assert not any("block.1" in stage for stage in stages)
    assert any("block.3" in stage for stage in stages)
    whole = headscan.compare("gpt-vanilla", "stories", **options)
    assert [dict(row) for row in again.damage] == [dict(row) for row in whole.damage]
    assert [dict(row) for row in again.shape] == [dict(row) for row in whole.shape]
    assert headscan.load(tmp_path / "run").document == again.document


@pytest.mark.parametrize("name", list(SMALL))
def test_the_shape_is_what_scans_of_both_models_say(name):
    pytest.importorskip("gguf")
    lens = small(name)
    other = rounded_model(lens, "q2_k")
    read = {"max_tokens": 1024, "context": 64, "skip_first": 1}
    result = headscan.compare([lens, other], "stories", damage=True, sample=256, **read)
    assert [row["site"] for row in result.shape] == [
        f"block.{number}" for number in range(lens.depth)
    ]
    scans = [headscan.scan(one, "stories", **read) for one in (lens, other)]
    for row in result.shape:
        for which, scan in zip(("first", "second"), scans, strict=True):
            site = scan.site(row["site"])
            for measure in ("average_cosine", "effective_rank"):
                found = row.number(f"{measure}_{which}")
                wanted = site.number(f"{measure}_without_sinks")
                assert found == pytest.approx(wanted, rel=1e-5, abs=1e-5), (row["site"], which)
                ends = row.interval(f"{measure}_{which}"), site.interval(f"{measure}_without_sinks")
                assert ends[0] == pytest.approx(ends[1], rel=1e-5, abs=1e-5)
            assert row.number(f"sink_share_{which}") == site.number("sink_share")
            assert row[f"rogue_coordinates_{which}"] == site["rogue_coordinates"]
            assert (
                0
                <= row.number(f"bits_lower_{which}")
                <= row.number(f"bits_upper_{which}")
                <= np.log2(1024)
            )
        for measure in ("average_cosine", "effective_rank", "bits_upper", "sink_share"):
            first, second, change = (
                row.number(f"{measure}_{which}") for which in ("first", "second", "change")
            )
            assert change == pytest.approx(second - first)
            ends = row.interval(f"{measure}_change")
            assert (
                ends is None
                if measure == "sink_share" and first == second
                else ends[0] <= change <= ends[1]
            )
    # What the two share is not in the interval of the change.
    last = result.shape[0]
    widths = [
        np.diff(last.interval(f"average_cosine_{which}"))[0]
        for which in ("change", "first", "second")
    ]
    assert widths[0] < min(widths[1:])


def test_bits_of_a_state_are_bounded_by_what_is_said_of_them():
    """Against the pairwise bounds of `leaks`, which are written apart, and the information itself
    by Monte Carlo.
    """
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(4, 32, 3, generator=generator) * torch.tensor([1.0, 0.7, 0.4])
    documents = np.repeat(np.arange(4), 32).reshape(4, 32)
    ids = torch.zeros(4, 32, dtype=torch.long)
    row = StatePair(states, 3 * states, ids, documents, 0).bits()
    points = states.flatten(0, 1).double()
    sigma = NOISE * float(points.var(0, unbiased=False).sum()) ** 0.5
    for which, x in (("first", points), ("second", 3 * points)):
        low, high = (row[f"bits_{bound}_{which}"] for bound in ("lower", "upper"))
        code = Code(x, torch.full((128,), 1 / 128, dtype=torch.float64))
        assert [high, low] == pytest.approx(pairwise_bits(code, [sigma, 2 * sigma]), abs=1e-6)
        noisy = x.repeat(200, 1) + sigma * torch.randn(
            200 * 128, 3, generator=generator, dtype=torch.float64
        )
        logs = torch.cdist(noisy, x).square() / (-2 * sigma**2)
        told = 7 + logs.log_softmax(1)[
            torch.arange(len(noisy)), torch.arange(128).repeat(200)
        ] / np.log(2)
        error = 4 * float(told.std()) / len(told) ** 0.5
        assert low - error < float(told.mean()) < high + error
        assert high - low > 10 * error, "the bounds could be told from one another"


def test_what_is_too_short_for_an_interval_says_so():
    pytest.importorskip("gguf")
    read = {"max_tokens": 256, "context": 32, "sample": 64, "limit": 0, "keep": 7e5}
    result = headscan.compare("gpt-vanilla", "stories", damage=True, against="q4_0", **read)
    told = {one.name: one.sentence for one in result.findings}
    assert list(told) == ["OVER-LIMIT", "WORST-PART", "KEEPING"]
    assert not any("[]" in sentence for sentence in told.values())
    assert all(
        "There is no interval: it takes three documents or windows" in told[name]
        for name in ("WORST-PART", "KEEPING")
    )
    assert (
        "The uniform and random choices of as many bytes are not shown to be worse."
        in told["KEEPING"]
    )
    assert "no interval" not in told["OVER-LIMIT"]


def test_a_block_that_was_hurt_is_kept_and_a_limit_fails(capsys, tmp_path):
    from headscan.cli import _main

    lens = small("gpt-vanilla")
    other = rounded_model(lens, "q8_0")
    two_bits(blocks(other)[2], lens, None)
    size = sum(weight.nbytes for weight in blocks(lens)[2].parameters())
    result = headscan.compare(
        [lens, other], "stories", damage=True, keep=size, max_tokens=512, context=32, sample=256
    )
    by_name = {row.text("choice"): row for row in result.choices}
    assert by_name["greedy"]["kept"] == ["block.2"]
    assert by_name["greedy"].number("kl") < by_name["none"].number("kl") / 10
    assert (
        by_name["uniform"].number("more_kl") == 0 or by_name["uniform"].interval("more_kl")[0] > 0
    )
    assert by_name["random"].number("kl") > by_name["greedy"].number("kl")
    words = (
        "compare gpt-vanilla --against q4_0 --damage --text stories --max-tokens 192 --context 32 "
        "--sample 64 --limit 1e-6"
    )
    with pytest.raises(SystemExit) as ended:
        _main([*words.split(), "--fail-on", "HS701", "--json", "--out", str(tmp_path / "x")])
    document = json.loads(capsys.readouterr().out)
    assert ended.value.code == 3
    assert document["failed"] == ["HS701"]
    assert document["kind"] == "damage"
    page = (tmp_path / "x" / "report.html").read_text()
    assert "OVER-LIMIT" in page
    assert "Part by part" in page


@pytest.mark.parametrize(
    ("limit", "tokens", "status"), [("1", "512", 0), ("1e-6", "512", 3), ("1", "64", 3)]
)
def test_a_gate_opens_where_the_interval_is_within_the_limit_and_only_there(
    limit, tokens, status, capsys, tmp_path
):
    pytest.importorskip("gguf")
    from headscan.cli import _main

    words = (
        "compare gpt-vanilla --against q8_0 --damage --text stories --context 32 --sample 64 "
        f"--max-tokens {tokens}"
    )
    with pytest.raises(SystemExit) as ended:
        _main(
            [
                *words.split(),
                "--limit",
                limit,
                "--fail-on",
                "HS701",
                "--out",
                str(tmp_path / "gate"),
            ]
        )
    assert ended.value.code == status
    result = headscan.load(tmp_path / "gate")
    assert result.failed == ["HS701"] * (status == 3)
    assert (result.totals["whole"].interval("kl") is None) == (tokens == "64")
    assert ("not shown to be below" in capsys.readouterr().out) == (status == 3)


@pytest.mark.parametrize(
    ("value", "said"), [("nan", "The logits of other are NaN"), ("inf", r"NaN")]
)
def test_a_model_that_is_no_number_is_refused(value, said):
    lens = small("gpt-vanilla")
    other = Lens(copy.deepcopy(lens.model), lens.tokenizer, name="other")
    matrices(blocks(other)[3])[0].data.mul_(float(value))
    with pytest.raises(headscan.BadInput, match=said):
        headscan.compare([lens, other], "stories", damage=True, **READ)


def test_states_that_overflow_on_the_text_alone_are_refused_by_their_site():
    states = torch.randn(4, 8, 6)
    overflowing = states / (torch.arange(8.0)[None, :, None] - 5)
    ids = torch.zeros(4, 8, dtype=torch.int64)
    pair = StatePair(states, overflowing, ids, np.zeros((4, 8), dtype=np.int64), 1)
    with pytest.raises(
        headscan.BadInput,
        match=r"second model gives NaN or infinite values at block\.3 \(window 0, position 5\)",
    ):
        pair.shape("block.3")


def test_equal_models_have_no_damage():
    result = headscan.compare(
        ["gpt-vanilla", "gpt-vanilla"], "stories", damage=True, limit=0, **READ
    )
    assert result.damage == []
    assert [one.name for one in result.findings] == ["SAME"]
    assert result.totals["whole"].number("kl") == 0
    assert result.totals["whole"].number("top1_agreement") == 1


@pytest.mark.parametrize(
    ("models", "options", "said"),
    [
        (["gpt-vanilla"], {"damage": True}, "Name two"),
        (["gpt-vanilla", "gpt-vanilla"], {"damage": True, "against": "q4_0"}, "Name two models"),
        (["gpt-vanilla"], {"against": "q4_0"}, "--against q4.0 is not used without --damage"),
        (["gpt-vanilla"] * 2, {"keep": 5.0}, "--keep is not used without --damage"),
        (
            ["gpt-vanilla"] * 2,
            {"damage": True, "sites": "block.1"},
            "--sites is not used with --damage",
        ),
        (["gpt-vanilla"] * 2, {"damage": True, "draws": 99}, "--draws is not used with --damage"),
        (
            ["gpt-vanilla"] * 2,
            {"damage": True, "fail_on": "HS701"},
            "--fail-on HS701 is not used without --limit",
        ),
        (
            ["gpt-vanilla"],
            {"damage": True, "against": "q4_0", "keep": 5.0, **READ},
            "too few|hold no part",
        ),
        ([np.zeros((9, 4)), np.zeros((9, 4))], {"damage": True}, "--text|stored states"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_name(models, options, said):
    with pytest.raises(headscan.BadInput, match=said):
        headscan.compare(models, "stories" if isinstance(models[0], str) else None, **options)


def test_divergences_are_their_definitions():
    generator = torch.Generator().manual_seed(1)
    p, q = (
        torch.randn(6, 9, generator=generator, dtype=torch.float64).log_softmax(1) for _ in range(2)
    )
    targets = torch.arange(6)
    found = divergences(p, q, targets)
    assert torch.allclose(found[:, 0], (p.exp() * (p - q)).sum(1))
    assert torch.allclose(found[:, 1], (q.exp() * (q - p)).sum(1))
    assert torch.allclose(found[:, 2], (p - q)[range(6), targets])
    tiny = divergences(p, (p + 1e-9 * q).log_softmax(1), targets)[:, 0]
    assert bool((tiny >= 0).all())
    assert float(tiny.max()) < 1e-15


def test_a_gguf_file_costs_what_its_blocks_do(tmp_path):
    gguf = pytest.importorskip("gguf")
    from tests.model.test_gguf import HEADS, VOCABULARY, WIDTH, llama, write

    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": WIDTH,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
    }
    model = llama(
        0, **sizes, num_attention_heads=HEADS, num_key_value_heads=HEADS, tie_word_embeddings=False
    )
    whole, packed_file = (
        write(gguf, model, tmp_path / f"{kind}.gguf", kind) for kind in ("F32", "Q8_0")
    )
    read = {"damage": True, "max_tokens": 96, "context": 16, "sample": 96}
    by_file = headscan.compare([whole, packed_file], "stories", **read)
    by_name = headscan.compare(whole, "stories", against="q8_0", **read)
    alone = [
        {row["block"]: row for row in one.damage if row["mode"] == "isolated"}
        for one in (by_file, by_name)
    ]
    assert list(alone[1]) == ["block.0", "block.1"]
    for part, row in alone[1].items():
        assert alone[0][part].number("kl") == pytest.approx(row.number("kl"), abs=1e-9)
