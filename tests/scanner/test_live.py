"""A live model is left as it was, also where a verb fails or is interrupted."""

import random
from contextlib import nullcontext, suppress

import numpy as np
import pytest
import torch

import headscan
from headscan import BadInput
from headscan.model import ByteTokenizer, Lens
from tests.model.tiny import gpt2, hooks


def state_of(model):
    """All that a verb could leave changed, in the model and around it."""
    return {
        "hooks": hooks(model),
        "modes": [module.training for module in model.modules()],
        "types": [(weight.dtype, weight.requires_grad) for weight in model.parameters()],
        "weights": [weight.detach().numpy().tobytes() for weight in model.state_dict().values()],
        "storage": [weight.data_ptr() for weight in model.parameters()],
        "gradients": [weight.grad is None for weight in model.parameters()],
        "configuration": model.config.to_dict(),
        "attributes": [sorted(vars(module)) for module in model.modules()],
        "threads": torch.get_num_threads(),
        "random": (
            torch.get_rng_state().tolist(),
            random.getstate(),
            np.random.get_state()[1].tolist(),
        ),
        "default": torch.get_default_dtype(),
        "grad enabled": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def live():
    """A model in training mode but for one block, with a fixed random table."""
    model = gpt2(vocab_size=256).train()
    model.transformer.h[1].eval()
    return model, Lens(model, ByteTokenizer(), name="live")


SMALL = {"max_tokens": 160, "context": 16}
VERBS = {
    "scan": lambda lens: headscan.scan(
        lens, "stories", null=True, measures="loss,attention,logit_lens", **SMALL
    ),
    "compare": lambda lens: headscan.compare([lens, "gpt-vanilla-early"], "stories", **SMALL),
    "damage": lambda lens: headscan.compare(
        [lens], "stories", against="q4_0", damage=True, **SMALL
    ),
    "checkup": lambda lens: headscan.checkup(lens, "stories", max_tokens=1280, context=16),
    "attribute": lambda lens: headscan.attribute(lens, prompt="Once upon a time"),
    "invert": lambda lens: headscan.invert(lens, prompt="Once", at="block.1"),
    "privacy": lambda lens: headscan.privacy(lens, "stories", sites="block.1", max_tokens=32),
    "gradient": lambda lens: headscan.privacy(lens, "stories", release="gradient", max_tokens=32),
    "flow": lambda lens: headscan.flow(lens, prompt="Once upon a time", at="block.1"),
    "weights": headscan.weights,
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("broken", [False, True], ids=["works", "fails"])
def test_a_live_model_is_left_as_it_was(verb, broken, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, lens = live()
    if broken:
        with torch.no_grad():
            model.transformer.h[2].ln_1.weight.fill_(torch.nan)
    before = state_of(model)
    with suppress(BadInput) if broken else nullcontext():
        VERBS[verb](lens)
    after = state_of(model)
    assert [name for name in before if after[name] != before[name]] == []


def test_what_is_broken_is_refused_by_its_site():
    model, lens = live()
    with torch.no_grad():
        model.transformer.h[2].ln_1.weight.fill_(torch.nan)
    with pytest.raises(BadInput, match=r"NaN|infinite"):
        VERBS["scan"](lens)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, MemoryError])
def test_an_interrupted_pass_leaves_no_hook(error):
    model, lens = live()
    before = state_of(model)

    def interrupt(_site, _states):
        raise error

    def changed(_states):
        raise error

    with pytest.raises(error):
        lens.run([[1, 2, 3]], sites="block.*", each=interrupt)
    with pytest.raises(error), lens.patch({"block.1": changed}):
        lens.run([[1, 2, 3]], sites="block.2")
    drawn = torch.random.fork_rng()  # the model is in training mode, and draws its dropout
    with drawn, pytest.raises(error), lens.watch("block.1", interrupt):
        model(input_ids=torch.tensor([[1, 2, 3]]))
    after = state_of(model)
    assert [name for name in before if after[name] != before[name]] == []


def test_a_plain_module_is_refused_in_a_sentence():
    with pytest.raises(BadInput, match=r"Linear is neither: pass its hidden states as a dict"):
        headscan.scan(torch.nn.Linear(4, 4), ["a text"])
