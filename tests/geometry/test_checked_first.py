"""What can be known before the first forward pass over the text is said before it."""

from __future__ import annotations

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from headscan import BadInput, Lens, average_cosine, scan
from headscan.model import ByteTokenizer
from headscan.text import Windows

TEXT = ["Once upon a time there was a hen, and the hen had a cone. " * 20]


def made(name: str = "hen", *, context: int = 64, layers: int = 2, tokenizer: object = None) -> Lens:
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=256, n_positions=context, n_embd=16, n_layer=layers, n_head=2, bos_token_id=0, eos_token_id=0
    )
    return Lens(GPT2LMHeadModel(config).eval(), tokenizer or ByteTokenizer(), name=name)


@pytest.fixture
def unread(monkeypatch):
    """No window of any text may be read."""

    def refuse(self: Windows) -> None:
        raise AssertionError("the text was read")

    monkeypatch.setattr(Windows, "__iter__", refuse)


@pytest.mark.parametrize(
    ("second", "options", "said"),
    [
        ("/no/such/model", {}, "/no/such/model"),
        (made("short", context=16), {}, "short reads at most 16 tokens"),
        (made("flat", layers=1), {"sites": "block.1"}, "block.1"),
        (made("hen"), {}, "named twice"),
    ],
)
def test_a_wrong_second_model_costs_no_scan_of_the_first(unread, second, options, said):
    with pytest.raises(BadInput, match=said):
        scan([made(), second], TEXT, context=32, tokenizer="bytes" if isinstance(second, str) else None, **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"measures": "nonsense"}, "No measure matches 'nonsense'"),
        ({"skip_first": 32}, "--skip-first"),
        ({"context": 0}, "--context must be at least 1"),
        ({"sample": -1}, "--sample must be at least 0"),
        ({"batch": 0}, "--batch must be at least 1"),
        ({"max_tokens": 5}, "--max-tokens"),
        ({"seed": float("nan")}, "--seed must be a finite number"),
        ({"pairs": ["none.tsv"], "measures": "alignment"}, "none.tsv"),
        ({"text": "/no/text.txt"}, "/no/text.txt"),
    ],
)
def test_wrong_options_are_named(unread, options, said):
    with pytest.raises(BadInput, match=said):
        scan(made(), **({"text": TEXT, "context": 32} | options))


def test_live_models_and_plain_texts_are_taken():
    lens = made()
    text = TEXT[0] + "\nAnd that was that."
    live = scan(lens.model, text, tokenizer="bytes", context=32)
    assert live.site("block.0").number("average_cosine") == scan(lens, [text], context=32).site("block.0").number(
        "average_cosine"
    )
    states = lens.run(torch.arange(32)[None], sites="block.0")["block.0"][0]
    assert average_cosine(states) == pytest.approx(average_cosine(states.double().numpy()), rel=1e-12)
