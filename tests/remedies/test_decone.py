"""The cone at the head is gauge: the same logits without it, and on the stream nothing is free."""

import pytest
import torch
from torch import nn

import headscan
from headscan import BadInput, Lens
from headscan.measures import average_cosine
from headscan.remedies.decone import CentredHead, decone
from headscan.text import Windows
from tests.model.tiny import coverage_script, family

IDS = torch.randint(3, 97, (8, 12), generator=torch.Generator().manual_seed(0))
KINDS = (
    "GPT-2",
    "GPT-NeoX",
    "OPT",
    "BLOOM",
    "Llama",
    "Gemma 2",
    "Cohere",
    "MPT",
    "Bert",
    "DistilBert",
    "ALBERT",
    "ModernBERT",
    "T5",
    "BART",
    "Mamba",
    "RWKV",
)
WITH_HEAD = [
    row
    for row in coverage_script().FAMILIES
    if row.name.startswith(KINDS) and "bare" not in row.name and "alone" not in row.name
]


def coned(row):
    """A tiny model with a cone at every norm that has a bias or a gain."""
    model = row.build()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.LayerNorm) and module.bias is not None:
                module.bias += torch.randn(module.bias.shape, generator=generator)
    return model


def head_input(lens, ids):
    """Return the states that the head multiplies [n, d]."""
    layer = lens.model.get_output_embeddings()
    inputs = []
    handle = layer.register_forward_pre_hook(lambda _, args: inputs.append(args[0].detach()))
    lens.run(ids, sites="head")
    handle.remove()
    moved = inputs[0] - layer.mean if isinstance(layer, CentredHead) else inputs[0]
    return moved.double().reshape(-1, moved.shape[-1])


@pytest.mark.parametrize("row", WITH_HEAD, ids=lambda row: row.name)
def test_logits_stay_and_the_mean_goes(row):
    lens = Lens(coned(row))
    weights_before = {name: p.clone() for name, p in lens.model.state_dict().items()}
    deconed = decone(lens, IDS)
    ids = torch.randint(3, 97, (2, 12), generator=torch.Generator().manual_seed(9))
    expected, logits = (model.run(ids, sites="head")["head"] for model in (lens, deconed))
    assert (logits - expected).abs().max() <= 2e-5 * expected.abs().max()
    x = head_input(deconed, IDS)
    assert x.mean(0).norm() <= 1e-5 * x.norm(dim=-1).mean()
    assert deconed.output_embeddings is lens.output_embeddings or torch.equal(
        deconed.output_embeddings, lens.output_embeddings
    )
    assert all(torch.equal(p, weights_before[name]) for name, p in lens.model.state_dict().items())


def test_a_specimen_loses_its_cone_at_the_head_and_keeps_its_logits():
    lens = Lens.load("gpt-vanilla")
    deconed = headscan.decone(lens, max_tokens=2048)
    ids = torch.arange(256).reshape(2, 128) % lens.vocabulary_size
    expected, logits = (model.run(ids, sites="head")["head"] for model in (lens, deconed))
    assert (logits - expected).abs().max() < 1e-4 * expected.abs().max()
    text = torch.from_numpy(next(iter(Windows("stories", lens.tokenizer, 512))).ids).reshape(4, 128)
    cosine = [average_cosine(head_input(model, text).numpy()) for model in (lens, deconed)]
    assert cosine[0] > 0.05
    assert abs(cosine[1]) < 0.03
    assert deconed.model.get_output_embeddings().bias is not None
    # shared, and tied as before
    assert deconed.output_embeddings.data_ptr() == lens.output_embeddings.data_ptr()


def test_a_live_model_gives_a_live_model():
    model = family("GPT-2")
    assert type(decone(model, IDS)) is type(model)


@pytest.mark.parametrize(("name", "along_ones"), [("GPT-2", True), ("Llama", False)])
def test_on_the_stream_nothing_is_free_but_the_vector_of_ones_before_layer_norms(name, along_ones):
    lens = Lens(family(name).double())
    expected = lens.run(IDS, sites="head")["head"]
    width = lens.width("block.0")
    generator = torch.Generator().manual_seed(1)

    def moved(by):
        handle = lens.tap("block.0").module.register_forward_hook(
            lambda _, args, output: (
                (output[0] + by, *output[1:]) if isinstance(output, tuple) else output + by
            )
        )
        moved_logits = lens.run(IDS, sites="head")["head"]
        handle.remove()
        return float((moved_logits - expected).abs().max() / expected.abs().max())

    ones_vector = torch.ones(width, dtype=torch.float64)
    assert (moved(ones_vector) < 1e-10) == along_ones
    for _ in range(5):
        by = torch.randn(width, generator=generator, dtype=torch.float64)
        assert moved(by) > 1e-3
        if (
            along_ones
        ):  # what is left of a vector without its part along ones still changes the logits
            assert moved(by - by.mean()) > 1e-3


def test_what_has_no_head_is_refused():
    with pytest.raises(BadInput, match="has no head"):
        decone(Lens(family("GPT-2 (bare)")), IDS)
