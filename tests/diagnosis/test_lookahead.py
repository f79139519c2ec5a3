"""A causal mask that was lifted is an alarm; models that read in both directions by design have
none.
"""

import pytest
import torch
import transformers

import headscan
from headscan.diagnosis.lookahead import built_causal, movement_by_later
from headscan.model import Lens
from headscan.report.pages.checkup_sheet import rows_of
from tests.diagnosis.conftest import TEXT
from tests.inversion.conftest import build


def unmasked() -> Lens:
    """gpt-vanilla, whose attention is given a mask of zeros in place of its causal one."""
    lens = Lens.load("gpt-vanilla")
    for module in lens.model.modules():
        if hasattr(module, "is_causal"):
            module.is_causal = False
        if type(module).__name__ == "GPT2Attention":
            module.register_forward_pre_hook(open_mask, with_kwargs=True)
    return lens


def open_mask(module, positional, named):
    states = positional[0] if positional else named["hidden_states"]
    mask = torch.zeros(len(states), 1, states.shape[1], states.shape[1])
    return positional, named | {"attention_mask": mask}


def test_a_lifted_mask_is_an_alarm():
    ill = headscan.checkup(unmasked(), "stories", context=64, max_tokens=1024)
    assert [finding.code for finding in ill.findings if finding.level == "alarm"] == ["HS208"]
    assert ill.findings[0].value > 0.01
    assert "1 of " in ill.examinations[0].summary[-1]
    assert "Logits that see later tokens." in ill.page()
    options = {row.code: row.option for row in ill.examinations[0].unexamined}
    assert {options[code] for code in ("HS201", "HS202", "HS207", "HS301")} == {"a causal mask"}
    shown = {row.code: row.cells[0] for row in rows_of(ill)}
    assert shown["HS201"].state == "none"
    assert "a causal mask examines it" in shown["HS201"].why


def test_a_model_with_its_mask_has_no_finding(lens):
    well = headscan.checkup(lens, TEXT * 4, context=16, max_tokens=1200)
    observed = {observation.code: observation for observation in well.examinations[0].observations}
    assert (observed["HS208"].value, observed["HS208"].present) == (0.0, False)
    assert "HS208" not in [finding.code for finding in well.findings]


SMALL = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}


def bert(kind: str, **options: object) -> Lens:
    return Lens(
        getattr(transformers, kind)(
            transformers.BertConfig(**SMALL, max_position_embeddings=32, **options)
        ),
        name=kind,
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda: bert("BertForMaskedLM"),
        lambda: bert("BertModel"),
        lambda: bert("BertLMHeadModel"),
        lambda: Lens(
            transformers.T5ForConditionalGeneration(
                transformers.T5Config(
                    vocab_size=60,
                    d_model=16,
                    d_kv=8,
                    d_ff=32,
                    num_layers=2,
                    num_heads=2,
                    decoder_start_token_id=0,
                )
            )
        ),
    ],
)
def test_models_that_read_both_ways_by_design_are_not_asked(make):
    assert movement_by_later(make()) is None


@pytest.mark.parametrize(
    "make",
    [
        lambda: build("gpt2"),
        lambda: build("llama"),
        lambda: bert("BertLMHeadModel", is_decoder=True),
    ],
)
def test_causal_models_see_nothing_that_follows(make):
    assert movement_by_later(make()) == 0.0


def test_a_permutation_model_is_not_built_causal():
    config = transformers.XLNetConfig(vocab_size=60, d_model=16, n_layer=2, n_head=2, d_inner=32)
    assert not built_causal(transformers.XLNetLMHeadModel(config))
