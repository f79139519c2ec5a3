"""Windows begin as the user says, and the added positions are in no number of a site."""

import pytest
import torch

import headscan
from headscan import BadInput
from headscan.measures import attention_drift
from headscan.model import Lens
from headscan.model.framed import beginning, framed
from headscan.model.slicing import Prefix, Slice
from headscan.model.slicing.cache_slice import cache_slice
from headscan.states import ModelSource
from headscan.text.source import Reading
from headscan.text.tokens import Frame, frame_of

READ = {"context": 32, "max_tokens": 160, "documents": "paragraphs", "sites": "block.*,final_norm"}


@pytest.fixture(scope="module")
def lens(assets):
    return Lens.load(str(assets / "models" / "stories260K"), device="cpu")


def test_a_framed_lens_gives_the_states_of_the_text_alone(lens):
    frame = frame_of(lens.tokenizer, "tokenizer")
    assert frame == frame_of(lens.tokenizer, "bos") == Frame((1,))
    assert framed(lens, Frame()) is lens
    ids = torch.arange(40, 60).reshape(2, 10)
    added = framed(lens, frame)
    start = torch.ones(2, 1, dtype=torch.int64)
    whole = lens.run(torch.cat([start, ids], 1), sites="**")
    text = added.run(ids, sites="**")
    each = {}
    added.run(ids, sites="**", each=lambda site, states: each.update({site: states.clone()}))
    for site, states in whole.items():
        assert torch.equal(text[site], states[:, 1:])
        assert torch.equal(each[site], states[:, 1:])
    energy = whole["block.2"].square().sum(-1)
    assert added.energies["block.2"].share == pytest.approx(
        float(energy[:, 0].sum() / energy.sum()), rel=1e-5
    )
    assert added.context_length == lens.context_length - 1
    assert torch.equal(lens.run(ids, sites="block.0")["block.0"], text["block.0"]) is False


def test_the_start_is_in_every_result(lens):
    without = headscan.scan(lens, "stories", measures="loss", start="none", **READ)
    start = headscan.scan(lens, "stories", measures="loss", **READ)
    assert start.sites[0]["tokens"] == without.sites[0]["tokens"] == 160
    assert start.tables["loss"][0]["loss"] != without.tables["loss"][0]["loss"]
    assert start.protocol.settings["start"] == "tokenizer"
    assert start.protocol.text.start == "tokenizer"
    notes = " ".join(start.protocol.notes)
    assert "read with <s> added, in positions that no number of a site has" in notes
    assert "of the energy of the windows at" in notes
    assert "without <s>, which the tokenizer adds to a text: see --start" in " ".join(
        without.protocol.notes
    )
    compared = headscan.compare(
        [lens, "gpt-vanilla"], "stories", start="bos", draws=19, sample=64, **READ
    )
    assert compared.protocol.text.start == "bos"


def test_the_added_tokens_count_against_the_context(lens):
    longest = lens.context_length
    with pytest.raises(BadInput, match=f"at most {longest - 1} tokens"):
        headscan.scan(lens, "stories", start="bos", context=longest)
    short = {"max_tokens": longest - 1, "measures": "norms", "sites": "block.0"}
    whole = headscan.scan(lens, "stories", context=longest - 1, **short)
    assert whole.sites[0]["tokens"] == longest - 1


def test_stored_states_are_those_of_the_text(lens, tmp_path):
    headscan.states(lens, "stories", out=tmp_path / "states", **READ)
    stored = headscan.scan(tmp_path / "states")
    live = headscan.scan(lens, "stories", **READ)
    assert "Windows were read with <s> added" in " ".join(stored.models[0].notes)
    verified = headscan.states(lens, verify=str(tmp_path / "states"))
    assert {row.text("verdict") for row in verified.rows} == {"own"}
    inverted = headscan.invert(lens, states=f"{tmp_path / 'states'}#block.0", at="block.0")
    assert inverted.token_accuracy == 1.0
    for site in ("block.0", "final_norm"):
        assert stored.site(site)["average_cosine"] == pytest.approx(
            live.site(site)["average_cosine"], rel=1e-6
        )


def test_a_slice_reads_behind_the_added_tokens_with_and_without_a_cache(lens):
    reader = framed(lens, Frame((1,)))
    ids = torch.arange(40, 60).reshape(2, 10)
    whole = lens.run(torch.cat([torch.ones(2, 1, dtype=torch.int64), ids], 1), sites="block.2")
    expected = whole["block.2"][:, 1:]
    cut = Slice(sites=("block.2",)).on(reader)
    assert torch.allclose(cut.run(ids), expected, atol=1e-5)
    assert torch.allclose(cut.run(inputs_embeds=cut.embed(ids)), expected, atol=1e-5)
    with torch.no_grad():
        for cached in (True, False):
            prefix = Prefix(cut, ids[:, :9], cached=cached)
            last = prefix.evaluate(torch.arange(2), ids[:, 9])
            assert torch.allclose(last, expected[:, 9], atol=1e-5)
    keys = cache_slice(reader, [1], "keys").run(ids)
    plain_keys = cache_slice(lens, [1], "keys")
    behind = plain_keys.run(torch.cat([torch.ones(2, 1, dtype=torch.int64), ids], 1))
    assert torch.allclose(keys, behind[:, 1:], atol=1e-5)


def test_every_verb_reads_from_the_start_token(lens):
    limits = {"max_tokens": 160, "start": "tokenizer"}
    leak = {"windows": 1, "length": 6, "noise": (0.0, 0.8), "draws": 4, "sites": "block.0"}
    for release in ("states", "cache"):
        private = headscan.privacy(lens, "stories", release=release, **leak, **limits)
        assert private.protocol.text.added == ["<s>"]
        assert private.rows[0].attack_accuracy == 1.0
    inverted = headscan.invert(lens, "Once upon a time", at="block.1")
    assert inverted.token_accuracy == 1.0
    assert inverted.prompts[0].recovered[0] != 1
    flow = headscan.flow(lens, text="stories", windows=1, length=6, trials=1, recover=False)
    assert flow.protocol.text.added == ["<s>"]
    assert flow.arrays["leak"].shape[-2:] == (6, 6)


def test_exchanges_read_whole_windows_behind_the_start_token(lens):
    options = {"context": 16, "max_tokens": 160, "documents": "paragraphs"}
    for start in ("none", "bos"):
        reader = beginning(lens, start)
        source = ModelSource(reader, "stories", Reading(start=start), context=16)
        ids, documents = source.whole_windows()
        assert ids.shape == documents.shape
        assert (ids[:, 0] == 1).all() == (start == "bos")
    scanned = headscan.scan(lens, "stories", measures="loss", **options)
    damaged = headscan.compare([lens, lens], "stories", damage=True, skip_first=0, **options)
    assert scanned.tables["loss"][0]["predicted"] == damaged.tokens == 150
    assert damaged.protocol.text.added == ["<s>"]


def test_attention_to_the_added_positions_is_a_number_of_its_own(lens):
    """Against the weights that the eager implementation returns."""
    ids = torch.arange(40, 60).reshape(2, 10)
    rows = attention_drift(framed(lens, Frame((1,))), [ids])
    plain = attention_drift(lens, [ids])
    assert {row["added_share"] for row in plain} == {0.0}
    whole = torch.cat([torch.ones(2, 1, dtype=torch.int64), ids], 1)
    implementation = lens.model.config._attn_implementation
    lens.model.set_attn_implementation("eager")
    with torch.no_grad():
        weights = lens.model(whole, output_attentions=True).attentions
    lens.model.set_attn_implementation(implementation)
    for row in rows:
        layer = int(row["site"].split(".")[1])
        received = weights[layer][:, row["head"], 1:, 0]
        assert row["added_share"] == pytest.approx(float(received.mean()), abs=1e-4)


def test_a_twin_reads_within_the_same_frame(lens):
    twin = framed(lens, Frame((1,))).random_init(0)
    assert twin.frame == Frame((1,))
    assert lens.random_init(0).frame == Frame()


def test_a_model_without_a_tokenizer_has_nothing_added_unless_it_is_asked_for(lens):
    bare = Lens(lens.model, name="bare")
    assert beginning(bare, "tokenizer") is bare
    assert ModelSource(bare, "stories", Reading(), context=16).frame == Frame()
    with pytest.raises(BadInput, match="start token"):
        beginning(bare, "bos")
    ids = [5, 6, 7, 8]
    for ask in (headscan.invert, headscan.flow):
        ask(bare, ids)
        ask(bare, ids, start="none")
        for start in ("tokenizer", "bos"):
            with pytest.raises(BadInput, match="'bare' comes without a tokenizer"):
                ask(bare, ids, start=start)
