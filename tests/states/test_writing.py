"""`headscan states` writes what a scan reads back bit for bit, also after a kill; damage is
noticed.
"""

import json
import shutil

import pytest
from safetensors.torch import load_file

import headscan
from headscan import BadInput
from headscan.states import verify, writing
from tests.states.conftest import CONTEXT, TEXT, TOKENS


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("stored")
    result = headscan.states.run("gpt-vanilla", TEXT, context=CONTEXT, max_tokens=TOKENS, out=out)
    assert result.tokens == TOKENS
    return out


def test_a_scan_of_the_folder_gives_the_live_numbers(stored_states, folder):
    result = headscan.scan(folder)
    stored_states.compare(result)
    assert "Made by gpt-vanilla." in result.models[0].notes
    assert verify(str(folder)) == TOKENS


def test_half_precision_states_give_the_numbers_of_the_rounded_ones(stored_states, tmp_path):
    """Bit for bit; and those of the live states as far as rounding each number to 11 bits leaves
    them.
    """
    headscan.states.run(
        "gpt-vanilla",
        TEXT,
        context=CONTEXT,
        max_tokens=TOKENS,
        out=tmp_path,
        store="float16",
        sites="block.1,block.4",
    )
    result = headscan.scan(tmp_path)
    rounded = headscan.scan(
        {site: stored_states.all[site].half() for site in ("block.1", "block.4")}
        | {"documents": stored_states.documents}
    )
    for row in result.sites:
        site = row.text("site")
        assert row["singular_values"] == rounded.site(site)["singular_values"]
        assert row["average_cosine_interval"] == rounded.site(site)["average_cosine_interval"]
        assert row["average_cosine"] == pytest.approx(
            stored_states.live.site(site)["average_cosine"], abs=1e-5
        )


def test_the_folder_is_what_its_index_says(stored_states, folder):
    index = json.loads((folder / "states.json").read_text())
    assert (index["format"], index["tokens"], index["context"], index["complete"]) == (
        "headscan-states",
        TOKENS,
        CONTEXT,
        True,
    )
    shard = load_file(folder / index["shards"][0]["file"])
    assert set(shard) == {site["site"] for site in index["sites"]} | {"token_ids", "documents"}
    assert (shard["token_ids"] == stored_states.ids).all()
    assert (shard["documents"] == stored_states.documents).all()
    assert headscan.load(folder).kind == "states"


def test_an_interrupted_writing_goes_on_to_the_same_files(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "SHARD_BYTES", 1)  # a shard a batch
    options = {"context": CONTEXT, "max_tokens": TOKENS, "batch": 2}
    headscan.states.run("gpt-vanilla", TEXT, out=tmp_path / "whole", **options)
    take = writing._ShardWriter._take
    calls = []

    def interrupted(self, batch):
        calls.append(batch.number)
        if len(calls) == 3:
            raise KeyboardInterrupt
        take(self, batch)

    monkeypatch.setattr(writing._ShardWriter, "_take", interrupted)
    with pytest.raises(KeyboardInterrupt):
        headscan.states.run("gpt-vanilla", TEXT, out=tmp_path / "cut", **options)
    assert "beginning of the text" in " ".join(headscan.scan(tmp_path / "cut").models[0].notes)
    monkeypatch.setattr(writing._ShardWriter, "_take", take)
    with pytest.raises(BadInput, match="cannot be resumed"):
        headscan.states.run(
            "gpt-vanilla",
            TEXT,
            out=tmp_path / "cut",
            resume=True,
            **(options | {"batch": 1, "context": 32}),
        )
    headscan.states.run("gpt-vanilla", TEXT, out=tmp_path / "cut", resume=True, **options)
    undisturbed, resumed = (
        json.loads((tmp_path / name / "states.json").read_text())["shards"]
        for name in ("whole", "cut")
    )
    assert len(undisturbed) == 5
    assert undisturbed == resumed


def test_damage_is_refused(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    shard = next(copy.glob("states-*.safetensors"))
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    with pytest.raises(BadInput, match="not what was written"):
        verify(str(copy))
    shard.write_bytes(data[:-10])
    with pytest.raises(BadInput, match="truncated"):
        headscan.scan(copy)
    (copy / "states.json").write_text("{")
    with pytest.raises(BadInput, match="no JSON"):
        headscan.scan(copy)


def test_bad_input_is_said_at_once(tmp_path):
    for options, message in [
        ({}, "--out"),
        ({"out": tmp_path, "sites": "block.99"}, "No site"),
        ({"out": tmp_path, "context": 10**6}, "at most"),
    ]:
        with pytest.raises(BadInput, match=message):
            headscan.states.run("gpt-vanilla", TEXT, **options)
