"""A live model is left as it was, also where a scan of it fails."""

import pytest
import torch

import headscan
from headscan import BadInput
from headscan.model import ByteTokenizer, Lens
from tests.model.tiny import gpt2, hooks


def state_of(model):
    return {
        "hooks": hooks(model),
        "modes": [module.training for module in model.modules()],
        "types": [(weight.dtype, weight.requires_grad) for weight in model.parameters()],
        "threads": torch.get_num_threads(),
        "random": torch.get_rng_state().tolist(),
        "attributes": [sorted(vars(module)) for module in model.modules()],
        "default": torch.get_default_dtype(),
        "gradients": torch.is_grad_enabled(),
    }


@pytest.mark.parametrize("broken", [False, True])
def test_a_live_model_is_left_as_it_was(broken):
    model = gpt2(vocab_size=256).train()
    model.transformer.h[1].eval()
    if broken:
        with torch.no_grad():
            model.transformer.h[2].ln_1.weight.fill_(torch.nan)
    before = state_of(model)
    lens = Lens(model, ByteTokenizer(), name="live")
    options = {"max_tokens": 160, "context": 16, "null": True, "measures": "loss,attention"}
    if broken:
        with pytest.raises(BadInput, match=r"NaN|infinite"):
            headscan.scan(lens, "stories", **options)
    else:
        headscan.scan(lens, "stories", **options)
    assert state_of(model) == before
