"""States that leaked are inverted from any store, through noise that nobody knows; foreign ones are
told.
"""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel

import headscan
from headscan import BadInput, Lens

SITE = "block.1"
IDS = [[17, 230, 5, 42], [9, 9, 150, 31]]


def tiny(seed):
    """A small random model: these tests are of what is done with its states, not of how long a
    vocabulary takes.
    """
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=256, n_positions=16, n_embd=32, n_layer=3, n_head=2, initializer_range=0.1
    )
    return Lens(GPT2LMHeadModel(config).eval(), name="tiny")


@pytest.fixture(scope="module")
def lens():
    return tiny(0)


@pytest.fixture(scope="module")
def states(lens):
    return lens.run(torch.tensor(IDS), sites=SITE)[SITE]


def invert(lens, states, at=SITE, **options):
    return headscan.invert(lens, states=states, at=at, **options)


def noisy(states, share):
    """Gaussian noise whose expected norm is a share of each state's norm."""
    noise = torch.randn(states.shape, generator=torch.Generator().manual_seed(3))
    return states + share * noise * states.norm(dim=-1, keepdim=True) / states.shape[-1] ** 0.5


def test_an_array_gives_its_tokens_back(lens, states):
    result = invert(lens, states)
    assert [prompt.recovered for prompt in result.prompts] == IDS
    assert result.verdict.startswith("recovered")
    assert result.token_accuracy is None
    assert result.prompts[0].tokens == []
    assert result.estimated_noise < 1e-5
    assert "?" in result.page()
    assert list(result.frame()["recovered"])


def test_a_file_with_token_ids_says_how_many_are_right(lens, states, tmp_path):
    save_file(
        {SITE: states.contiguous(), "token_ids": torch.tensor(IDS)}, tmp_path / "leak.safetensors"
    )
    result = invert(lens, tmp_path / "leak.safetensors")
    assert result.token_accuracy == 1


def test_of_several_sites_one_is_named(lens, states, tmp_path):
    save_file(
        {"a": states.contiguous(), "b": (states + 1).contiguous()}, tmp_path / "leak.safetensors"
    )
    assert [
        prompt.recovered for prompt in invert(lens, f"{tmp_path}/leak.safetensors#a").prompts
    ] == IDS
    with pytest.raises(BadInput, match="#SITE"):
        invert(lens, tmp_path / "leak.safetensors")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_known_from_the_file(lens, states, tmp_path, dtype):
    save_file({SITE: states.to(dtype).contiguous()}, tmp_path / "leak.safetensors")
    assert [
        prompt.recovered for prompt in invert(lens, tmp_path / "leak.safetensors").prompts
    ] == IDS


@pytest.mark.parametrize("noise", [0.003, 0.05])
def test_unknown_noise_is_estimated(lens, states, noise):
    result = invert(lens, noisy(states, noise))
    assert [prompt.recovered for prompt in result.prompts] == IDS
    assert result.estimated_noise == pytest.approx(noise, rel=0.1)


def test_states_of_another_model_are_told(lens, states):
    foreign = torch.randn(states.shape, generator=torch.Generator().manual_seed(0)) * states.std()
    result = invert(lens, foreign[:1])
    assert result.verdict == "no token fits"
    assert "none gives the first of these states" in result.prompts[0].certified
    assert "no token fits" in result.page()
    another = tiny(1).run(torch.tensor(IDS[:1]), sites=SITE)[SITE]
    assert invert(lens, another).verdict == "no token fits"


def test_states_of_another_site_or_from_the_middle_are_told(lens, states):
    assert invert(lens, states[:1], at="block.2").verdict == "no token fits"
    assert invert(lens, states[:1, 1:]).verdict == "no token fits"


def test_bad_states_are_refused_in_a_sentence(lens, states, tmp_path):
    broken = states[0].clone()
    broken[3, 2] = float("nan")
    for leaked, message in [
        (states[0][:, :-1], "width"),
        (broken, "NaN or infinite values at vector 3"),
        (np.zeros((0, 3)), "no numbers"),
        ("gpt-vanilla", "takes stored states"),
        (tmp_path / "absent", "takes stored states"),
        (tmp_path / "absent.npy", "There is no file"),
    ]:
        with pytest.raises(BadInput, match=message):
            invert(lens, leaked)
    for options, message in [
        ({}, "--prompt, or states"),
        ({"states": states, "prompt": "a"}, "not both"),
        ({"states": states, "given": "embedding"}, "--given is not used"),
        ({"states": states, "given": "states"}, "--given is not used"),
    ]:
        with pytest.raises(BadInput, match=message):
            headscan.invert(lens, at=SITE, **options)


def test_a_tolerance_that_is_given_is_used_as_it_is(lens, states):
    tight = invert(lens, noisy(states, 0.05), tolerance=1e-3)
    assert [prompt.certificate.tolerance for prompt in tight.prompts] == [1e-3, 1e-3]
    assert tight.verdict in ("not recovered", "no token fits")
    assert invert(lens, noisy(states, 0.05)).prompts[0].certificate.tolerance > 0.01
