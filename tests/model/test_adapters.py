"""Live models of nnsight and TransformerLens: the numbers are those of the model inside.

With the real libraries where they are installed (skipped, loudly, where not: neither is among the development packages), and with
stand-ins that have what their documentation promises.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

import headscan
from headscan import BadInput, Lens
from headscan.model.opening import ADAPTERS, open_model
from headscan.model.settings import Loading
from headscan.model.tokenizers import ByteTokenizer
from headscan.states import stored_source

TEXT = ["One hen sat by the door. She saw a red fox and ran. " * 8]
IDS = torch.arange(12).reshape(2, 6)


@pytest.fixture
def model():
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=256, n_embd=16, n_layer=2, n_head=2, n_positions=16, bos_token_id=1, eos_token_id=1)
    return GPT2LMHeadModel(config).eval()


class NNsight:
    """nnsight's wrapper: no Module; what it lacks is looked for in the model."""

    def __init__(self, inside, tokenizer=None):
        self._module, self.tokenizer = inside, tokenizer

    def __getattr__(self, name):
        return getattr(self._module, name)


class TransformerBridge(nn.Module):
    """TransformerLens' bridge: a Module with the model inside."""

    def __init__(self, inside, tokenizer=None, compatible=False):
        super().__init__()
        self.original_model, self.tokenizer, self.compatibility_mode = inside, tokenizer, compatible


class HookedRootModule(nn.Module):
    """What TransformerLens' own models inherit from."""


NNsight.__module__ = "nnsight.modeling.base"
TransformerBridge.__module__ = "transformer_lens.model_bridge.bridge"
HookedRootModule.__module__ = "transformer_lens.hook_points"


@pytest.mark.parametrize("wrap", [NNsight, TransformerBridge])
def test_a_wrapped_model_gives_the_numbers_of_the_one_inside(model, wrap):
    wrapped = wrap(model, ByteTokenizer())
    assert stored_source(wrapped) is None, "it is a model, no array"
    found = headscan.scan(wrapped, TEXT, context=8, max_tokens=96)
    plain = headscan.scan(Lens(model, ByteTokenizer(), name=found.models[0].name), TEXT, context=8, max_tokens=96)
    assert [dict(row) for row in found.sites] == [dict(row) for row in plain.sites]
    assert any("nside" in note for note in found.models[0].notes)
    assert headscan.scan([wrapped], TEXT, context=8, max_tokens=96).sites == found.sites


def test_what_is_no_longer_the_model_is_refused(model):
    for given, words in [
        (HookedRootModule(), "folds norms into weights"),
        (TransformerBridge(model, compatible=True), "compatibility mode"),
        (NNsight(None), "no model inside"),
        (NNsight(nn.Linear(2, 2, device="meta")), "no weights yet"),
    ]:
        with pytest.raises(BadInput, match=words) as refused:
            open_model(given, Loading())
        assert "\n" not in str(refused.value)


def test_every_adapter_says_what_it_was_tried_with():
    assert all(one.title and one.sentence and one.tried for one in ADAPTERS.values())


def test_nnsight_itself(model):
    library = pytest.importorskip("nnsight", reason="nnsight is not installed: its own wrapper is NOT tried")
    found = open_model(library.NNsight(model), Loading()).run(IDS, sites="block.0,block.1,head")
    wanted = Lens(model).run(IDS, sites="block.0,block.1,head")
    assert all(torch.equal(found[site], wanted[site]) for site in wanted)


def test_transformer_lens_itself(model, tmp_path):
    library = pytest.importorskip(
        "transformer_lens", reason="TransformerLens is not installed: its bridge is NOT tried"
    )
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    words = Tokenizer(WordLevel({str(k): k for k in range(256)}, unk_token="0"))
    PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="0", bos_token="1", eos_token="1", pad_token="1"
    ).save_pretrained(tmp_path)
    model.save_pretrained(tmp_path)
    wanted = Lens(model).run(IDS, sites="block.0,block.1,head")
    bridge = library.TransformerBridge.boot_transformers(
        str(tmp_path), hf_model=model, tokenizer=AutoTokenizer.from_pretrained(tmp_path)
    )
    lens = open_model(bridge, Loading())
    found, (_, cache) = lens.run(IDS, sites="block.0,block.1,head"), bridge.run_with_cache(IDS)
    for site in wanted:
        torch.testing.assert_close(found[site], wanted[site], atol=1e-5, rtol=1e-5)
    for block in (0, 1):
        torch.testing.assert_close(found[f"block.{block}"], cache[f"blocks.{block}.hook_resid_post"])
