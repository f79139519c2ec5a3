"""A mixed recipe: ratings against whole-model gradients and true divergences, and the choice."""

import itertools
import math

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Qwen3MoeConfig, Qwen3MoeForCausalLM

import headscan
from headscan.comparison.allocation import chosen, shuffled, uniform
from headscan.comparison.exchange import ExchangeWindows, divergence
from headscan.comparison.rated_matrices import (
    GRADIENTS,
    RatedMatrix,
    StoredAs,
    rated_matrices,
)
from headscan.comparison.recipe_commands import recipe_commands
from headscan.model import ByteTokenizer, Lens
from headscan.model.matrices import matrices
from headscan.model.partwise import PartwiseModel
from headscan.model.rounding import rounded
from headscan.run import Run

FORMATS = ["q2_k", "q4_0", "q8_0", "whole"]
LENGTH = 24
TEXTS = ["".join(chr(97 + (5 * i * i + k) % 26) for i in range(LENGTH)) for k in range(64)]


def dense():
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=257, n_positions=32, n_embd=32, n_layer=2, n_head=2, bos_token_id=0
    )
    return GPT2LMHeadModel(config).eval()


def experts():
    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=257,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
    )
    return Qwen3MoeForCausalLM(config).eval()


def windows(count):
    ids = torch.randint(257, (count, LENGTH), generator=torch.Generator().manual_seed(1))
    return ExchangeWindows(ids, np.arange(count)[:, None].repeat(LENGTH, 1), 1)


@pytest.mark.parametrize("build", [dense, experts])
def test_ratings_are_squares_of_whole_model_gradients(build):
    model = build()
    lens = Lens(model, ByteTokenizer(), name="model")
    read = windows(GRADIENTS)
    rated = rated_matrices(PartwiseModel(lens), read, FORMATS, Run.quiet())
    blocks = lens.stacks[0].blocks
    listed = [(number, matrix) for number in range(2) for matrix in matrices(blocks[number])]
    assert [row.name for row in rated] == [matrix.name for _, matrix in listed]
    generator = torch.Generator().manual_seed(0)
    sums = np.zeros((len(listed), len(FORMATS)))
    for ids in read.ids:
        logs = model(ids[None]).logits[0, 1:-1].log_softmax(-1)
        tokens = torch.multinomial(logs.detach().exp(), 1, generator=generator)
        gradients = torch.autograd.grad(
            logs.gather(1, tokens).sum(), [matrix.weight for _, matrix in listed], allow_unused=True
        )
        for row, ((_, matrix), gradient) in enumerate(zip(listed, gradients, strict=True)):
            if gradient is None:
                continue
            for column, name in enumerate(FORMATS[:-1]):
                error = rounded(matrix.rows.contiguous(), name.upper()).weights - matrix.rows
                sums[row, column] += float((error * matrix.as_rows(gradient)).sum()) ** 2
    expected = sums / (2 * GRADIENTS * (LENGTH - 2))
    found = np.array([[choice.harm for choice in row.choices] for row in rated])
    assert found == pytest.approx(expected, rel=1e-3, abs=1e-12)
    assert bool((found[:, 0] > 0).any())
    assert bool((found[:, 3] == 0).all())


def test_ratings_are_about_the_true_divergence():
    model = dense()
    lens = Lens(model, ByteTokenizer(), name="model")
    read = windows(256)
    rated = rated_matrices(PartwiseModel(lens), read, ["q4_0", "whole"], Run.quiet())
    ratios = []
    listed = [matrix for block in lens.stacks[0].blocks for matrix in matrices(block)]
    with torch.no_grad():
        before = model(read.ids).logits[:, 1:-1].log_softmax(-1).flatten(0, 1)
        for row, matrix in zip(rated, listed, strict=True):
            original = matrix.weight.data.clone()
            matrix.set_rows(rounded(matrix.rows.contiguous(), "Q4_0").weights)
            after = model(read.ids).logits[:, 1:-1].log_softmax(-1).flatten(0, 1)
            matrix.weight.data.copy_(original)
            ratios.append(row.choices[0].harm / float(divergence(before, after).mean()))
    assert 0.7 < math.exp(np.mean(np.log(ratios))) < 1.4
    assert min(ratios) > 0.4
    assert max(ratios) < 2.5


def synthetic(seed, count=5):
    rng = np.random.default_rng(seed)
    listed = []
    for number in range(count):
        size = int(rng.integers(1, 4)) * 100
        harms = np.sort(rng.exponential(size=3))[::-1]
        choices = [
            StoredAs(name, name, size * bits, float(harm))
            for name, bits, harm in zip("abc", (2, 4, 8), harms, strict=True)
        ]
        listed.append(RatedMatrix(f"block.{number}", "w", size, choices))
    return listed


@pytest.mark.parametrize("seed", range(8))
def test_the_choice_is_nearly_the_best_of_all(seed):
    listed = synthetic(seed)
    budget = 1.3 * sum(matrix.choices[0].bytes for matrix in listed)
    budget += 600
    best = min(
        sum(choice.harm for choice in choices)
        for choices in itertools.product(*(matrix.choices for matrix in listed))
        if sum(choice.bytes for choice in choices) <= budget
    )
    allocation = chosen(listed, budget)
    total = sum(choice.harm for choice in allocation)
    most = max(matrix.choices[0].harm - matrix.choices[2].harm for matrix in listed)
    assert sum(choice.bytes for choice in allocation) <= budget
    assert best <= total <= best + most
    spent = sum(choice.bytes for choice in allocation)
    assert sum(choice.bytes for choice in uniform(listed, spent)) <= spent
    other = shuffled(listed, allocation, 0)
    assert sorted(c.name for c in other) == sorted(c.name for c in allocation)
    assert sum(choice.bytes for choice in other) == spent


def test_a_budget_below_the_smallest_formats_is_refused():
    with pytest.raises(headscan.BadInput, match="too few: in their smallest formats"):
        chosen(synthetic(0), 10)


@pytest.fixture(scope="module")
def measured():
    lens = Lens(experts(), ByteTokenizer(), name="model")
    weights = sum(
        matrix.weight.numel() for block in lens.stacks[0].blocks for matrix in matrices(block)
    )
    options = {"damage": True, "context": LENGTH, "max_tokens": 1536, "sample": 768}
    options |= {"formats": "q4_0,q8_0,whole", "budget": weights * 0.9}
    return lens, headscan.compare(lens, TEXTS, **options)


def test_the_measured_recipe_is_the_model_that_it_describes(measured):
    lens, result = measured
    assert {finding.code for finding in result.findings} == {"HS707"}
    formats = {row.text("matrix"): row.text("format") for row in result.recipe}
    assert any("experts" in name for name in formats)
    assert sum(row["bytes"] for row in result.recipe) == result.choices[0]["bytes"]
    sampled = np.random.default_rng(0).permutation(64)[:32]
    held_out = sorted(set(range(64)) - set(sampled.tolist()))
    ids = torch.tensor([[ord(letter) for letter in TEXTS[number]] for number in held_out])
    assert result.tokens == len(held_out) * (LENGTH - 2)
    with torch.no_grad():
        before = lens.model(ids).logits[:, 1:-1].log_softmax(-1).flatten(0, 1)
        for number, block in enumerate(lens.stacks[0].blocks):
            for matrix in matrices(block):
                name = formats[f"block.{number}.{matrix.name}"]
                if name != "whole":
                    matrix.set_rows(rounded(matrix.rows.contiguous(), name.upper()).weights)
        after = lens.model(ids).logits[:, 1:-1].log_softmax(-1).flatten(0, 1)
    expected = float(divergence(before, after).mean())
    assert result.totals["held out"].number("kl") == pytest.approx(expected, rel=1e-4)
    assert result.choices[0].number("more_kl") == 0


def test_the_recipe_is_written_for_other_programs(measured):
    pytest.importorskip("gguf")
    _, result = measured
    lines = result.commands["llama.cpp"]
    assert lines[:2] == ["--token-embedding-type f32", "--output-tensor-type f32"]
    assert any("ffn_gate_exps=" in line and "blk\\.(" in line for line in lines)
    yaml = pytest.importorskip("yaml")
    recipe = yaml.safe_load("\n".join(result.commands["llm-compressor"]))
    modifier = recipe["quant_stage"]["quant_modifiers"]["QuantizationModifier"]
    whole = [row.text("matrix") for row in result.recipe if row["format"] == "whole"]
    assert len(modifier["ignore"]) == 1 + len(whole)
    page = str(result.page())
    assert "--tensor-type" in page
    assert list(result.frame("recipe")["format"]) == [row["format"] for row in result.recipe]


def test_no_names_of_another_architecture_are_written(measured, monkeypatch):
    pytest.importorskip("gguf")
    lens, _ = measured
    monkeypatch.setattr(lens.model.config, "model_type", "nothing_known")
    commands, notes = recipe_commands(lens, [], [])
    assert "llama.cpp" not in commands
    assert "models of type nothing_known" in notes[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"formats": "q4_0,q8_0"}, "without --budget"),
        ({"budget": 1e6, "formats": "q4_0,q3_x"}, "--formats takes two or more"),
        ({"budget": 1e6, "against": "q4_0"}, "--against is not used with --budget"),
        ({"budget": 1e6, "damage": False}, "--budget is not used without --damage"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, message):
    with pytest.raises(headscan.BadInput, match=message):
        headscan.compare("gpt-vanilla", "stories", **{"damage": True} | options)
