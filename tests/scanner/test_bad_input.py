"""Clouds that leave little to measure: every probe and measure is then defined or says why not, and
nothing is NaN.
"""

import json
import math

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from headscan import Lens, scan
from headscan.measures import MEASURES, PROBES
from headscan.model.tokenizer import ByteTokenizer

LONG = ["Once upon a time there was a cone, and it was very narrow. " * 8]


def model(width: int = 8, heads: int = 2) -> Lens:
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=260, n_positions=64, n_embd=width, n_layer=1, n_head=heads)
    return Lens(GPT2LMHeadModel(config).eval(), ByteTokenizer(), name="tiny")


def zero() -> Lens:
    lens = model()
    with torch.no_grad():
        for parameter in lens.model.parameters():
            parameter.zero_()
    return lens


def constant() -> Lens:
    """All tokens have one embedding, whatever their place."""
    lens = model()
    with torch.no_grad():
        lens.model.transformer.wte.weight[:] = lens.model.transformer.wte.weight[0].clone()
        lens.model.transformer.wpe.weight.zero_()
    return lens


CASES = {
    "one token": (model, ["a"], 1),
    "two tokens": (model, ["ab"], 2),
    "one window": (model, ["Once upon a time, a cone"], 16),
    "windows of one token": (model, LONG, 1),
    "one token over and over": (model, ["a" * 400], 16),
    "fewer vectors than dimensions": (lambda: model(64), ["Once upon a time, there was"], 8),
    "one dimension": (lambda: model(1, 1), LONG, 16),
    "two dimensions": (lambda: model(2), LONG, 16),
    "zero vectors": (zero, LONG, 16),
    "equal vectors": (constant, LONG, 16),
}


@pytest.mark.parametrize("case", CASES)
def test_every_number_is_finite_or_has_a_reason(case):
    make, text, context = CASES[case]
    result = scan(make(), text, context=context, measures="expensive")
    json.loads(result.json())
    for entry in result.sites:
        for name in MEASURES:
            for field in (name, f"{name}_without_first"):
                value = entry[field]
                assert (value is not None and math.isfinite(value)) or any(
                    n.startswith(field) for n in entry["notes"]
                )
    for probe in PROBES.values():
        for row in result.document[probe.words.name]:
            for name in probe.words.fields:
                value = row.get(name)
                if value is None:
                    reasons = (
                        [note for note in row["notes"] if note.startswith(name)]
                        if name in row
                        else [""]
                    )
                    assert reasons, (probe.words.name, name, row)
                elif not isinstance(value, str):
                    assert math.isfinite(value), (probe.words.name, name)
                interval = row.get(f"{name}_interval")
                assert interval is None or all(map(math.isfinite, interval)), (
                    probe.words.name,
                    name,
                    interval,
                )
    assert result.page()
