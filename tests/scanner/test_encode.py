"""The site `sentence` equals `encode` for every setting that sentence-transformers stores."""

import json

import numpy as np
import pytest
import torch
import transformers

import headscan
from headscan import BadInput
from headscan.measures.pairs import encode
from headscan.model.lens import open_model
from headscan.model.settings import Loading
from headscan.states import ModelSource
from headscan.text.source import Reading
from tests.model.tiny import minilm

library = pytest.importorskip("sentence_transformers", reason="sentence encoders are NOT tried")
modules = library.sentence_transformer.modules

WIDTH = 24
TEXTS = [
    "A dog.",
    "THE Cat sat on the Mat, and nobody knew why it had not gone to the market with the others.",
    "Rain fell.",
    "She reads an old book by the river, and two men play chess in the park while it rains.",
]


@pytest.fixture(scope="module")
def transformer_folder(tmp_path_factory):
    """A small BERT whose tokens all matter, with a tokenizer that keeps capital letters."""
    folder = tmp_path_factory.mktemp("bert")
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm(), do_lower_case=False)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=64,
        initializer_range=0.4,
    )
    transformers.BertModel(config).save_pretrained(folder)
    return folder


def pooled(*poolings, **options):
    return modules.Pooling(WIDTH, pooling_mode=poolings, **options)


def dense(width, **options):
    torch.manual_seed(1)
    return modules.Dense(WIDTH, width, **options)


LATER = {
    "mean": [pooled("mean")],
    "all poolings": [pooled("lasttoken", "weightedmean", "cls", "max", "mean_sqrt_len_tokens")],
    "normalised": [pooled("mean"), modules.Normalize()],
    "dense": [pooled("mean"), dense(5), modules.Normalize()],
    "linear": [pooled("cls"), dense(5, bias=False, activation_function=torch.nn.Identity())],
    "residual": [pooled("mean"), dense(WIDTH, use_residual=True)],
    "projected residual": [pooled("mean"), dense(5, use_residual=True)],
    "dense of tokens": [dense(WIDTH, module_input_name="token_embeddings"), pooled("mean")],
    "layer norm": [pooled("mean"), modules.LayerNorm(WIDTH), modules.Dropout(0.5)],
}
SETTINGS = {
    "length": {"max_seq_length": 16},
    "truncation": {"truncate_dim": 7},
    "prompt": {"prompts": {"query": "Query: "}, "default_prompt_name": "query"},
    "empty prompt": {"prompts": {"query": ""}, "default_prompt_name": "query"},
    "all": {
        "max_seq_length": 12,
        "truncate_dim": 7,
        "prompts": {"query": "Query: "},
        "default_prompt_name": "query",
    },
}
CASES = {name: (later, {}, {}) for name, later in LATER.items()}
CASES |= {name: ([pooled("mean")], settings, {}) for name, settings in SETTINGS.items()}
CASES["small letters"] = ([pooled("mean")], {}, {"do_lower_case": True})
CASES["prompt in small letters"] = ([pooled("cls")], SETTINGS["prompt"], {"do_lower_case": True})


def made(folder, later, settings, reading):
    first = modules.Transformer(str(folder), **reading)
    encoder = library.SentenceTransformer(modules=[first, *later], device="cpu").eval()
    for name, value in settings.items():
        setattr(encoder, name, value)
    return encoder


def sentences(model):
    """The vectors at the site `sentence`, as a scan reads them."""
    lens = open_model(model, Loading(device="cpu"))
    source = ModelSource(lens, TEXTS, Reading())
    parts = []
    for batch in source.batches():
        source.visit(batch, ["sentence"], lambda _, states: parts.append(states[:, 0].clone()))
    vectors = torch.cat(parts).numpy()
    np.testing.assert_allclose(encode(lens, lens.sentence, TEXTS), vectors, atol=1e-5)
    assert source.width("sentence") == vectors.shape[1]
    return vectors


@pytest.mark.parametrize("case", CASES)
def test_a_folder_and_a_live_encoder_give_what_encode_gives(case, transformer_folder, tmp_path):
    later, settings, reading = CASES[case]
    encoder = made(transformer_folder, later, settings, reading)
    folder = str(tmp_path / "saved")
    encoder.save(folder)
    # Version 6 does not store do_lower_case: each is held to its own encode.
    saved = library.SentenceTransformer(folder, device="cpu")
    for model, own in ((encoder, encoder), (folder, saved)):
        np.testing.assert_allclose(sentences(model), own.encode(TEXTS), atol=5e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("sentence_bert_config.json", {"max_seq_length": 16}),
        ("sentence_roberta_config.json", {"max_seq_length": 16}),
        ("sentence_bert_config.json", {"processor_kwargs": {"model_max_length": 16}}),
        ("tokenizer_config.json", {"model_max_length": 16}),
    ],
)
def test_the_limit_is_read_wherever_it_is_stored(file, content, transformer_folder, tmp_path):
    made(transformer_folder, [pooled("mean")], {}, {}).save(str(tmp_path))
    (tmp_path / "sentence_bert_config.json").unlink()
    path = tmp_path / file
    stored = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(stored | content))
    encoder = library.SentenceTransformer(str(tmp_path), device="cpu")
    assert encoder.max_seq_length == 16
    np.testing.assert_allclose(sentences(str(tmp_path)), encoder.encode(TEXTS), atol=2e-6)


def test_an_encoder_is_scanned_from_the_folder_above_it(transformer_folder, tmp_path, monkeypatch):
    encoder = made(transformer_folder, [pooled("mean")], {}, {})
    encoder.save(str(tmp_path / "encoder"))
    expected = headscan.scan(str(tmp_path / "encoder"), TEXTS)["sentence"]["average_cosine"]
    monkeypatch.chdir(tmp_path)
    live = library.SentenceTransformer("encoder", device="cpu")
    for model in ("encoder", live):
        assert headscan.scan(model, TEXTS)["sentence"]["average_cosine"] == expected


def test_a_static_encoder_is_refused_as_one(transformer_folder, tmp_path):
    tokenizer = transformers.AutoTokenizer.from_pretrained(transformer_folder)
    static = library.SentenceTransformer(
        modules=[modules.StaticEmbedding(tokenizer, embedding_dim=6)], device="cpu"
    )
    static.save(str(tmp_path))
    for model in (static, str(tmp_path)):
        with pytest.raises(BadInput, match="is a static one"):
            headscan.scan(model, TEXTS)
    table = headscan.scan(tmp_path / "model.safetensors", max_tokens=1280)
    assert table.sites[0]["tokens"] == 1280
