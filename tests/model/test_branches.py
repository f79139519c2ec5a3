"""What a branch is: the term that the block adds to the residual stream."""

import pytest
import torch

from headscan.model import Lens
from tests.model.tiny import coverage_script, family, gpt2, ids, llama

script = coverage_script()
POST_NORM = [
    "Bert (masked LM)",
    "Roberta (bare encoder)",
    "DistilBert (masked LM)",
    "ELECTRA (generator)",
    "ALBERT (one shared block)",
    "OPT-350m (post-norm, projected embeddings)",
]


def values(lens: Lens, prefix: str = "") -> dict[str, torch.Tensor]:
    tokens = ids(vocabulary=min(97, lens.vocabulary_size))
    extra = {"decoder_input_ids": tokens.flip(1)} if lens.model.config.is_encoder_decoder else {}
    return lens.run(tokens, sites=f"{prefix}**", **extra)


def stream(states: dict[str, torch.Tensor], prefix: str, index: int) -> torch.Tensor:
    return states[f"{prefix}embedding"] if index == 0 else states[f"{prefix}block.{index - 1}"]


@pytest.mark.parametrize("row", script.FAMILIES, ids=lambda row: row.name)
def test_a_plain_block_is_its_input_plus_its_branches(row):
    lens = Lens(row.build())
    checked = 0
    for stack in lens.stacks:
        states = values(lens, stack.prefix)
        for index, plain in enumerate(stack.plain):
            if not plain:
                continue
            name = f"{stack.prefix}block.{index}"
            branches = [states[site] for site in states if site.startswith(f"{name}.")]
            assert len(branches) >= 1
            total = stream(states, stack.prefix, index) + sum(branches)
            halved = any(f"after {name};" in note for note in lens.notes)
            assert torch.allclose(
                states[name], total / 2 if halved else total, atol=2e-5, rtol=1e-5
            ), name
            checked += 1
    pre_norm = (
        row.name not in POST_NORM and "encoder)" not in row.name and "(masked LM)" not in row.name
    )
    assert checked or not pre_norm or "BART" in row.name


def test_each_branch_of_a_block_of_berts_kind_is_taken_before_its_norm():
    model = family("Bert (masked LM)")
    lens = Lens(model)
    states = values(lens)
    for index, layer in enumerate(model.bert.encoder.layer):
        middle = layer.attention.output.LayerNorm(
            stream(states, "", index) + states[f"block.{index}.attention"]
        )
        end = layer.output.LayerNorm(middle + states[f"block.{index}.mlp"])
        assert torch.allclose(states[f"block.{index}"], end, atol=1e-5)


def test_a_norm_that_belongs_to_the_branch_is_part_of_it():
    model = family("Gemma 2 (norms on the branches)")
    lens = Lens(model)
    assert (
        lens.stacks[0].taps["block.1.attention"].path == "model.layers.1.post_attention_layernorm"
    )
    assert lens.stacks[0].taps["block.1.mlp"].path == "model.layers.1.post_feedforward_layernorm"


@pytest.mark.parametrize(
    ("name", "site", "path"),
    [
        ("BLOOM", "block.1.attention", "transformer.h.1.self_attention.dense"),
        ("BLOOM", "block.1.mlp", "transformer.h.1.mlp.dense_4h_to_h"),
        ("OPT", "block.2.mlp", "model.decoder.layers.2.fc2"),
        ("Phi (parallel)", "block.0.attention", "model.layers.0.self_attn"),
        ("GPT-NeoX, Pythia (parallel)", "block.0.mlp", "gpt_neox.layers.0.post_mlp_dropout"),
        ("T5 (both stacks)", "decoder.block.1.cross_attention", "decoder.block.1.layer.1.dropout"),
        (
            "BART (both stacks)",
            "decoder.block.1.cross_attention",
            "model.decoder.layers.1.encoder_attn",
        ),
        ("Mixtral (mixture of experts)", "block.1.mlp", "model.layers.1.mlp"),
        ("Mamba", "block.1.mixer", "backbone.layers.1.mixer"),
    ],
)
def test_where_a_branch_is_read(name, site, path):
    lens = Lens(family(name))
    tap = next(stack.taps[site] for stack in lens.stacks if site in stack.taps)
    assert tap.path == path


def test_a_branch_that_the_model_overwrites_is_kept_as_it_was():
    model = family("Falcon (parallel)")
    lens = Lens(model)
    assert lens._taps["block.0.mlp"].overwritten
    watched = {}
    with (
        torch.no_grad(),
        lens.watch("block.0.mlp", lambda site, tensor: watched.update({site: tensor.clone()})),
    ):
        model(input_ids=ids())
    assert torch.equal(lens.run(ids(), sites="block.0.**")["block.0.mlp"], watched["block.0.mlp"])


@pytest.mark.parametrize("build", [gpt2, llama])
def test_dead_branches_are_found_too(build):
    model = build()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if any(part in name for part in ("attn", "mlp")):
                parameter.mul_(1e-9 if ".1." in name else 0)
    assert Lens(model).sites == Lens(build()).sites


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "name",
    [
        "GPT-2",
        "GPT-J",
        "Falcon (parallel)",
        "Phi (parallel)",
        "Llama",
        "Bert (masked LM)",
        "BLOOM",
        "Mamba",
        "T5 (both stacks)",
        "OPT",
        "RWKV (stream halved every 2 blocks)",
    ],
)
def test_half_precision_shows_the_same_sites(name, dtype):
    if name.startswith("T5") and dtype is torch.float16:
        pytest.skip("T5 clamps its stream in float16, which is no plain sum")
    assert Lens(family(name).to(dtype)).sites == Lens(family(name)).sites


def test_a_norm_after_each_embedding_is_no_final_norm():
    assert "final_norm" not in Lens(family("Bert (masked LM)")).sites
