"""A sentence encoder is read as its users read it: a text by itself, and the vector that `encode`
gives is a site.
"""

import copy
import json
import re
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoTokenizer

import headscan
from headscan import BadInput, Lens
from headscan.measures.pairs import encode
from headscan.model.lens import open_model
from headscan.model.sentence import sentence_head
from headscan.model.settings import Loading
from headscan.states import ModelSource
from headscan.states.estimate import expected_reader
from headscan.states.plan import ReadingPlan
from headscan.text.source import Reading, Windowing
from tests.model.tiny import minilm

LINES = [
    "A dog.",
    "The cat sat on the mat, and nobody knew why.",
    "Rain fell.",
    "It rained.",
    "She reads an old book by the river.",
    "No.",
    "Two men play chess in the park while a child looks on.",
    "The cat sat on the mat, and nobody knew how.",
    "A cat.",
]


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "lines.txt"
    path.write_text("\n".join(LINES) + "\n")
    return path


@pytest.fixture(scope="module")
def lens():
    return Lens.load(str(minilm()))


@pytest.fixture(scope="module")
def scanned(lines):
    return headscan.scan(str(minilm()), text=lines, documents="lines")


def encoded() -> torch.Tensor:
    """Return the embeddings as all-MiniLM-L6-v2's folder defines them: the mean over the tokens,
    special ones included, at unit length.
    """
    folder = minilm()
    assert json.loads((folder / "1_Pooling/config.json").read_text())["pooling_mode_mean_tokens"]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder).eval()
    # padded: the way that is not the instrument's
    batch = tokenizer(LINES, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = model(**batch).last_hidden_state
    mask = batch["attention_mask"][..., None]
    return torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=1)


def source_of(lens, lines, **options):
    return ModelSource(
        lens, lines, Reading(documents="lines", field="text", max_tokens=None), **options
    )


def vectors(source, site):
    parts = []
    for batch in source.batches():
        source.visit(
            batch, [site], lambda _, states: parts.append(states.detach().clone().flatten(0, 1))
        )
    return torch.cat(parts)


def test_the_site_sentence_is_what_encode_gives(lens, lines):
    actual = vectors(source_of(lens, lines), "sentence")
    torch.testing.assert_close(actual, encoded(), atol=1e-6, rtol=0)
    assert lens.sentence is not None
    np.testing.assert_allclose(encode(lens, lens.sentence, LINES), encoded().numpy(), atol=1e-6)


@pytest.mark.parametrize("site", ["block.3", "sentence"])
def test_batches_of_unequal_lengths_are_the_texts_one_by_one(lens, lines, site):
    one_by_one = vectors(source_of(lens, lines, batch=1), site)
    for size in (2, 5, 64):
        source = source_of(lens, lines, batch=size)
        assert all(len(batch.ids) <= size for batch in source.batches())
        torch.testing.assert_close(vectors(source, site), one_by_one, atol=2e-6, rtol=1e-5)
    counts = [len(lens.tokenizer.encode(line)) for line in LINES]
    # no padding is among them
    assert len(one_by_one) == (len(LINES) if site == "sentence" else sum(counts))


def test_a_text_longer_than_encode_reads_becomes_several_windows(lens, tmp_path):
    (tmp_path / "long.txt").write_text("one two three four five six seven eight nine ten " * 9)
    source = source_of(lens, tmp_path / "long.txt", context=20)
    rows = [row.tolist() for batch in source.batches() for row in batch.ids]
    frame = lens.tokenizer.encode("")
    assert {(row[0], row[-1]) for row in rows} == {tuple(frame)}
    plain = lens.tokenizer.encode((tmp_path / "long.txt").read_text(), add_special_tokens=False)
    assert [token for row in rows for token in row[1:-1]] == plain
    assert {len(row) for row in rows[:-1]} == {20}


def test_a_scan_has_one_vector_a_text(scanned, lines):
    row = scanned.site("sentence")
    encoded_states = encoded().double()
    cosines = encoded_states @ encoded_states.T
    many = len(LINES)
    assert row["average_cosine"] == pytest.approx(
        float((cosines.sum() - many) / (many * (many - 1))), abs=1e-6
    )
    assert row["tokens"] == many
    text = scanned.protocol.text
    assert (text.windows, text.alone, text.dropped) == (many, True, 0)
    assert scanned.site("block.5")["tokens"] == text.tokens


@pytest.fixture
def long_text(tmp_path):
    path = tmp_path / "long.txt"
    path.write_text("one two three four five six seven eight nine ten " * 40)
    return path


@pytest.mark.parametrize(
    ("context", "used"), [(None, 256), (127, 127), (128, 128), (129, 129), (300, 256)]
)
def test_a_context_is_obeyed_be_it_the_default_of_other_models(lens, long_text, context, used):
    options = {} if context is None else {"context": context}
    result = headscan.scan(lens, long_text, sites="block.5,sentence", **options)
    text = result.protocol.text
    assert result.site("sentence")["tokens"] == text.windows == -(-400 // (used - 2))
    assert text.context == used
    assert result.protocol.settings["context"] == (context or used)
    assert result.protocol.by_default == ([] if context else ["context"])


@pytest.fixture
def one_block(tmp_path):
    """Return the folder of the encoder with the first of its blocks alone."""
    folder = tmp_path / "one_block"
    shutil.copytree(minilm(), folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 1}))
    tensors = load_file(folder / "model.safetensors")
    kept = {name: x for name, x in tensors.items() if not re.search(r"layer\.[1-5]\.", name)}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("verb", [headscan.checkup, headscan.states.run], ids=["checkup", "states"])
def test_other_verbs_obey_it_too(long_text, one_block, tmp_path, verb):
    texts = [
        verb(str(one_block), long_text, out=tmp_path / name, **options).protocol.text
        for name, options in (("default", {}), ("given", {"context": 128}))
    ]
    assert [(text.context, text.windows) for text in texts] == [(256, 2), (128, 4)]


def test_estimates_and_checks_follow_the_context_that_is_used(long_text):
    readers = [
        expected_reader(
            str(minilm()),
            ReadingPlan(
                loading=Loading(),
                reading=Reading(),
                windowing=Windowing(context=context),
                text=long_text,
            ),
        )
        for context in (None, 128)
    ]
    assert [(reader.context, reader.alone, reader.batch) for reader in readers] == [
        (256, True, 2048),
        (128, True, 2048),
    ]
    with pytest.raises(BadInput, match="one of the 128 positions"):
        headscan.scan(str(minilm()), long_text, skip_first=200, context=128)
    assert (
        headscan.scan(str(minilm()), long_text, skip_first=200, sites="block.5").site("block.5")[
            "tokens"
        ]
        == 56
    )


def test_a_resume_tells_given_from_default(lines, tmp_path, monkeypatch):
    def interrupted(self, batch):
        raise KeyboardInterrupt

    monkeypatch.setattr(headscan.states.writing._ShardWriter, "_take", interrupted)
    with pytest.raises(KeyboardInterrupt):
        headscan.states.run(str(minilm()), lines, documents="lines", out=tmp_path / "it")
    with pytest.raises(BadInput, match=r"--context was null and is 128 now"):
        headscan.states.run(
            str(minilm()), lines, documents="lines", out=tmp_path / "it", context=128, resume=True
        )


@pytest.fixture(scope="module")
def live():
    library = pytest.importorskip(
        "sentence_transformers", reason="a SentenceTransformer is NOT tried"
    )
    return library.SentenceTransformer(str(minilm()), device="cpu")


def without_model(rows):
    return [{key: row[key] for key in row if key != "model"} for row in rows]


def test_a_live_encoder_gives_the_numbers_of_its_folder(live):
    folder, live_result = (
        headscan.scan(source, LINES, measures="all", sites="block.5,sentence")
        for source in (str(minilm()), live)
    )
    assert live_result.sites[-1]["site"] == "sentence"
    assert without_model(live_result.sites) == without_model(folder.sites)
    assert live_result.tables.keys() == folder.tables.keys()
    for name, rows in folder.tables.items():
        assert without_model(live_result.tables[name]) == without_model(rows), name
    assert live_result.protocol.text == folder.protocol.text


def test_a_live_encoder_is_read_as_it_is_now(live):
    """Shortened, with other pooling, with a prompt: not as its folder says."""
    changed = copy.deepcopy(live)
    identity = open_model(changed, Loading(device="cpu")).identity()
    changed.max_seq_length = 16
    changed[1].pooling_mode = "cls"
    lens = open_model(changed, Loading(device="cpu"))
    assert (lens.sentence.length, lens.sentence.pooling) == (16, ("cls",))
    assert lens.identity() != identity
    changed.prompts["query"] = "find: "
    changed.default_prompt_name = "query"
    asking = open_model(changed, Loading(device="cpu"))
    assert asking.sentence.reading.prompt == "find: "
    assert asking.identity() != lens.identity()


def test_a_live_dense_layer_is_made(live):
    modules = pytest.importorskip("sentence_transformers.models")
    library = pytest.importorskip("sentence_transformers")
    torch.manual_seed(0)
    longer = library.SentenceTransformer(
        modules=[*list(live.children())[:2], modules.Dense(384, 5)], device="cpu"
    )
    lens = open_model(longer, Loading(device="cpu"))
    np.testing.assert_allclose(encode(lens, lens.sentence, LINES), longer.encode(LINES), atol=1e-6)


def test_stored_states_of_texts_give_the_numbers_of_the_model(
    scanned, lines, tmp_path, monkeypatch
):
    monkeypatch.setattr(headscan.states.writing, "SHARD_BYTES", 60_000)  # several shards
    result = headscan.states.run(str(minilm()), lines, documents="lines", out=tmp_path / "all")
    assert (result.windows, result.tokens) == (len(LINES), scanned.protocol.text.tokens)
    assert len(result.shards) > 1
    assert headscan.states.verify(str(tmp_path / "all")) == result.tokens
    from_states = headscan.scan(tmp_path / "all")
    for row in from_states.sites:
        live = scanned.site(row.text("site"))
        assert {key: row[key] for key in row if key != "model"} == {
            key: live[key] for key in live if key != "model"
        }
    index = json.loads((tmp_path / "all/states.json").read_text())
    assert (index["alone"], sum(shard["tokens"] for shard in index["shards"])) == (
        True,
        result.tokens,
    )
    few = headscan.scan(f"{tmp_path / 'all'}#sentence", context=16, max_tokens=result.tokens - 1)
    assert few.site("sentence")["tokens"] == len(LINES) - 1  # whole texts only

    index["shards"][0]["tokens"] += 1
    (tmp_path / "all/states.json").write_text(json.dumps(index))
    with pytest.raises(BadInput, match="does not hold"):
        headscan.scan(tmp_path / "all")


def test_an_interrupted_storing_of_texts_goes_on_to_the_same_files(lines, tmp_path, monkeypatch):
    monkeypatch.setattr(headscan.states.writing, "SHARD_BYTES", 1)
    take = headscan.states.writing._ShardWriter._take
    calls = []

    def interrupted(self, batch):
        calls.append(batch)
        if len(calls) == 4:
            raise KeyboardInterrupt
        take(self, batch)

    options = {"documents": "lines", "sites": "block.5,sentence"}
    headscan.states.run(str(minilm()), lines, out=tmp_path / "whole", **options)
    monkeypatch.setattr(headscan.states.writing._ShardWriter, "_take", interrupted)
    with pytest.raises(KeyboardInterrupt):
        headscan.states.run(str(minilm()), lines, out=tmp_path / "parts", **options)
    monkeypatch.undo()
    monkeypatch.setattr(headscan.states.writing, "SHARD_BYTES", 1)
    headscan.states.run(str(minilm()), lines, out=tmp_path / "parts", resume=True, **options)
    uninterrupted, parts = (
        json.loads((tmp_path / name / "states.json").read_text())["shards"]
        for name in ("whole", "parts")
    )
    assert parts == uninterrupted


def test_a_bert_without_modules_is_read_as_before(tmp_path, lines):
    shutil.copytree(minilm(), tmp_path / "plain", ignore=shutil.ignore_patterns("modules.json"))
    plain = Lens.load(str(tmp_path / "plain"))
    source = source_of(plain, lines, context=8)
    assert plain.sentence is None
    assert "sentence" not in source.sites
    assert {batch.ids.shape[1] for batch in source.batches()} == {8}


DENSE = {
    "in_features": 8,
    "out_features": 3,
    "bias": True,
    "activation_function": "torch.nn.modules.activation.Tanh",
}
REFUSED = {
    "a module": (
        {"modules.json": [{"path": "x", "type": "sentence_transformers.models.LSTM"}]},
        "has a module LSTM",
    ),
    "a pooling": (
        {"1_Pooling/config.json": {"pooling_mode": "attention"}},
        "pools by attention",
    ),
    "a prompt left out": (
        {
            "config_sentence_transformers.json": {
                "default_prompt_name": "query",
                "prompts": {"query": "query: "},
            },
            "1_Pooling/config.json": {"pooling_mode": "mean", "include_prompt": False},
        },
        "leaves its prompt out",
    ),
    "outside": (
        {"modules.json": [{"path": "../x", "type": "a.Pooling"}]},
        "inside the model's folder",
    ),
    "no modules": ({"modules.json": 7}, "names no modules"),
}


def folder_of(path, files):
    defaults = {
        "modules.json": [
            {"path": "", "type": "a.Transformer"},
            {"path": "1_Pooling", "type": "a.Pooling"},
        ],
        "1_Pooling/config.json": {"pooling_mode_cls_token": True, "pooling_mode_max_tokens": True},
    }
    for name, content in (defaults | files).items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(json.dumps(content))
    return path


@pytest.mark.parametrize(("files", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_made_is_refused(tmp_path, files, sentence):
    with pytest.raises(BadInput, match=sentence):
        sentence_head(folder_of(tmp_path / "model", files), "m", 4, 32)


def test_poolings_stand_side_by_side_before_a_dense_layer(tmp_path):
    from safetensors.torch import save_file

    torch.manual_seed(0)
    states = torch.randn(5, 6, 4)
    linear = torch.nn.Linear(8, 3)
    modules = [
        {"path": name, "type": f"a.{kind}"}
        for name, kind in (
            ("", "Transformer"),
            ("1_Pooling", "Pooling"),
            ("2_Dense", "Dense"),
            ("3", "Normalize"),
        )
    ]
    folder = folder_of(
        tmp_path,
        {
            "modules.json": modules,
            "2_Dense/config.json": DENSE,
            "sentence_bert_config.json": {"max_seq_length": 16},
        },
    )
    save_file(
        {f"linear.{name}": value.detach() for name, value in linear.named_parameters()},
        folder / "2_Dense/model.safetensors",
    )
    head = sentence_head(folder, "m", 4, 32)
    assert head is not None
    assert (head.width, head.length, head.pooling) == (3, 16, ("cls", "max"))
    expected = torch.tanh(linear(torch.cat([states[:, 0], states.amax(1)], 1)))
    torch.testing.assert_close(head(states), expected / expected.norm(dim=1, keepdim=True))


def test_what_looks_at_tokens_leaves_the_vector_of_a_text_to_the_scan(lens, lines):
    """It is no token's: these were asked for it, and failed, in the checkup, too."""
    measures = "anatomy,rogue,words,dimension,sphere,axis"
    scanned = headscan.scan(
        lens, text=lines, documents="lines", measures=measures, sample=20, sites="block.5,sentence"
    )
    assert {row["site"] for row in scanned.sites} == {"block.5", "sentence"}
    assert scanned.tables["anatomy"]
    assert all(row.get("site") != "sentence" for rows in scanned.tables.values() for row in rows)
