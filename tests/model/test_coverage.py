"""Every family: embedding, blocks, final norm and logits equal the model's own."""

import pytest

from tests.model.tiny import coverage_script, hooks

script = coverage_script()


@pytest.mark.parametrize("family", script.FAMILIES, ids=lambda family: family.name)
def test_sites_are_the_models_own_hidden_states(family):
    model = family.build()
    hooks_before = hooks(model)
    result = script.compare(model)
    lens = result.lens
    assert result.worst < 1e-5
    for stack in lens.stacks:
        blocks = {f"{stack.prefix}block.{index}" for index in range(stack.depth)}
        assert blocks <= set(result.compared)
        # Mamba and RWKV do not count the embedding among their hidden states.
        assert f"{stack.prefix}embedding" in result.compared or "mixer" in " ".join(lens.sites)
    # transformers leaves its own dormant hooks when hidden states are asked of it; the Lens must
    # add none.
    again = script.Lens(model)
    assert again.sites == lens.sites
    assert family.build().training is False
    fresh = family.build()
    script.Lens(fresh)
    assert hooks(fresh) == hooks_before


@pytest.mark.parametrize(
    ("name", "attention", "norm"),
    [
        ("GPT-2", True, True),
        ("Bert (masked LM)", True, False),
        ("Mamba", False, True),
        ("RWKV (stream halved every 2 blocks)", False, True),
        ("ALBERT (one shared block)", True, False),
    ],
)
def test_a_family_has_the_sites_it_should(name, attention, norm):
    lens = script.Lens(next(family for family in script.FAMILIES if family.name == name).build())
    assert (f"block.{lens.depth - 1}.attention" in lens.sites) is attention
    assert ("final_norm" in lens.sites) is norm
    assert lens.sites[0] == "embedding"
    assert [site for site in lens.sites if site.count(".") == 1] == [
        f"block.{i}" for i in range(lens.depth)
    ]
