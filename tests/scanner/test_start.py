"""Windows begin as the user says, and the added positions are in no number of a site."""

import pytest
import torch

import headscan
from headscan import BadInput
from headscan.model import Lens
from headscan.model.framed import FramedLens, framed
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
    without = headscan.scan(lens, "stories", measures="loss", **READ)
    start = headscan.scan(lens, "stories", measures="loss", start="tokenizer", **READ)
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
    with pytest.raises(BadInput, match="--start is not used with --damage"):
        headscan.compare([lens, lens], "stories", damage=True, start="bos")


def test_stored_states_are_those_of_the_text(lens, tmp_path):
    options = READ | {"start": "tokenizer"}
    headscan.states(lens, "stories", out=tmp_path / "states", **options)
    stored = headscan.scan(tmp_path / "states")
    live = headscan.scan(lens, "stories", **options)
    assert isinstance(framed(lens, Frame((1,))), FramedLens)
    for site in ("block.0", "final_norm"):
        assert stored.site(site)["average_cosine"] == pytest.approx(
            live.site(site)["average_cosine"], rel=1e-6
        )
