"""What can be known before the first forward pass over the text is said before it."""

import weakref
from collections import Counter

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from headscan import BadInput, Lens, average_cosine, scan
from headscan.model import ByteTokenizer
from headscan.model.building import Blank
from headscan.model.load import Preparation
from headscan.scanner import sources as subjects
from headscan.text import Windows

TEXT = ["Once upon a time there was a hen, and the hen had a cone. " * 20]


def scanned_lens(
    name: str = "hen", *, context: int = 64, layers: int = 2, tokenizer: object = None
) -> Lens:
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=256,
        n_positions=context,
        n_embd=16,
        n_layer=layers,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    return Lens(GPT2LMHeadModel(config).eval(), tokenizer or ByteTokenizer(), name=name)


@pytest.fixture
def unread(monkeypatch):
    """No window of any text may be read."""

    def refuse(self: Windows) -> None:
        raise AssertionError("the text was read")

    monkeypatch.setattr(Windows, "__iter__", refuse)


@pytest.mark.parametrize(
    ("second", "options", "message"),
    [
        ("/no/such/model", {}, "/no/such/model"),
        (scanned_lens("short", context=16), {}, "short reads at most 16 tokens"),
        (scanned_lens("flat", layers=1), {"sites": "block.1"}, "block.1"),
        (scanned_lens("hen"), {}, "named twice"),
    ],
)
def test_a_wrong_second_model_costs_no_scan_of_the_first(unread, second, options, message):
    with pytest.raises(BadInput, match=message):
        scan(
            [scanned_lens(), second],
            TEXT,
            context=32,
            tokenizer="bytes" if isinstance(second, str) else None,
            **options,
        )


@pytest.mark.parametrize(
    ("options", "message"),
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
def test_wrong_options_are_named(unread, options, message):
    with pytest.raises(BadInput, match=message):
        scan(scanned_lens(), **({"text": TEXT, "context": 32} | options))


def test_live_models_and_plain_texts_are_taken():
    lens = scanned_lens()
    text = TEXT[0] + "\nAnd that was that."
    results = scan(lens.model, text, tokenizer="bytes", context=32), scan(lens, [text], context=32)
    assert len({result.site("block.0").number("average_cosine") for result in results}) == 1
    states = lens.run(torch.arange(32)[None], sites="block.0")["block.0"][0]
    assert average_cosine(states) == pytest.approx(
        average_cosine(states.double().numpy()), rel=1e-12
    )


@pytest.fixture
def read(monkeypatch):
    """Count how often the weights of each model are read."""
    counted = Counter[str]()
    load = Preparation.load

    def counting(self: Preparation):
        counted[self.source.name] += 1
        return load(self)

    monkeypatch.setattr(Preparation, "load", counting)
    return counted


@pytest.mark.parametrize("cached_bytes", [0, 2**31])
def test_weights_are_read_once_however_large_the_models(read, cached_bytes, monkeypatch, tmp_path):
    monkeypatch.setattr(subjects, "KEPT_BYTES", cached_bytes)
    for name in ("one", "two"):
        scanned_lens(name).model.save_pretrained(tmp_path / name)
    models = [tmp_path / "one", tmp_path / "two"]
    result = scan(
        models,
        TEXT,
        context=32,
        tokenizer="bytes",
        device="cpu",
        sites="block.1",
        out=tmp_path / "out",
    )
    assert [model.name for model in result.models] == ["one", "two"]
    assert read == {"one": 1, "two": 1}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sites": "block.7"}, "No site of one matches 'block.7'"),
        ({"sites": "block.0.mpl"}, "No site of one matches 'block.0.mpl'"),
        ({"context": 65}, "one reads at most 64 tokens"),
        ({"tokenizer": None}, "'one' comes without a tokenizer"),
    ],
)
def test_large_models_are_checked_without_their_weights(
    read, options, message, monkeypatch, tmp_path
):
    monkeypatch.setattr(subjects, "KEPT_BYTES", 0)
    for name in ("one", "two"):
        scanned_lens(name).model.save_pretrained(tmp_path / name)
    defaults = {"context": 32, "tokenizer": "bytes", "device": "cpu"}
    with pytest.raises(BadInput, match=message):
        scan([tmp_path / "one", tmp_path / "two"], TEXT, **(defaults | options))
    assert not read


def test_the_random_twin_is_drawn_when_the_weights_are_gone(monkeypatch, tmp_path):
    scanned_lens().model.save_pretrained(tmp_path / "hen")
    tables = []
    of = Lens.of.__func__
    drawn = Blank.drawn

    def followed(cls, prepared):
        lens = of(cls, prepared)
        tables.append(weakref.ref(lens.input_embeddings))
        return lens

    def alone(self: Blank, seed: int):
        assert len(tables) == 1
        assert tables[0]() is None
        return drawn(self, seed)

    options = {
        "context": 32,
        "tokenizer": "bytes",
        "device": "cpu",
        "null": True,
        "measures": "rogue",
    }
    in_memory = scan(Lens.load(tmp_path / "hen", tokenizer="bytes", device="cpu"), TEXT, **options)
    monkeypatch.setattr(Lens, "of", classmethod(followed))
    monkeypatch.setattr(Blank, "drawn", alone)
    result = scan(tmp_path / "hen", TEXT, **options)
    assert len(result.nulls) == 2 * len(result.sites) == len(in_memory.nulls)
    assert [dict(row) for row in result.nulls] == [dict(row) for row in in_memory.nulls]
