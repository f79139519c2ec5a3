"""Which tokens a training step's gradient shows, as a result, a page and a command."""

import json

import pytest

import headscan
from headscan.inversion import invert
from headscan.leaks import PrivacyResult, privacy
from headscan.model import ByteTokenizer
from headscan.run import BadInput
from tests.command_line import headscan as cli
from tests.inversion.conftest import build


def shown(lens, texts):
    return privacy(lens, texts, release="gradient").gradient


def model(kind="gpt2", width=64, depth=1):
    lens = build(kind, vocabulary=256, width=width, depth=depth)
    lens.tokenizer = ByteTokenizer()
    return lens


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_all_tokens_but_the_last_are_found_and_no_other(kind):
    gradient = shown(model(kind), ["My pack0d!?", "is <b>UVON!"])
    assert gradient.recall == gradient.precision == 1
    assert gradient.with_positions is (kind == "gpt2")
    listed = {(entry.position, entry.token) for entry in gradient.tokens}
    rows = [b"My pack0d!", b"is <b>UVON"]
    expected = {
        (position if kind == "gpt2" else None, byte)
        for row in rows
        for position, byte in enumerate(row)
    }
    assert listed == expected
    assert gradient.nearest_other > 10 * gradient.tolerance
    assert gradient.certified.startswith("Certified")


def test_a_token_at_two_positions_makes_others_seem_to_stand_at_both():
    """(v at 6) - (u at 6) + (u at 1) is v at 1: in the span, though it was not there. The result
    says which are such.
    """
    gradient = shown(model(), ["abcdefa!", "ghijklm!"])
    assert gradient.recall == gradient.precision_anywhere == 1
    assert gradient.precision < 1
    mirages = {(entry.position, entry.token) for entry in gradient.tokens if not entry.in_batch}
    assert mirages == {(0, ord("m")), (6, ord("g"))}
    assert "two positions" in gradient.certified


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_the_second_stage_puts_the_tokens_of_each_text_in_order(kind):
    """Also where the first stage sees tokens at positions where they were not, and, with position
    embeddings, where the same tokens stand in two texts. Where only attention knows of positions, a
    text of its first token alone looks like that token: such are listed, too.
    """
    texts = ["abcdefa!", "ghijklm!", "badcfeg!" if kind == "gpt2" else "nopqrst!"]
    gradient = shown(model(kind, depth=2), texts)
    assert {text.string for text in gradient.texts if text.in_batch} == {
        text[:-1] for text in texts
    }
    mirages = set() if kind == "gpt2" else {text[0] * 7 for text in texts}
    assert {text.string for text in gradient.texts if not text.in_batch} == mirages
    assert gradient.texts_found == 1
    assert gradient.second_rank == 21 < gradient.width
    assert f"no other texts than the {3 + len(mirages)} listed" in gradient.certified


def test_the_second_stage_lists_nothing_where_everything_lies_in_the_span():
    gradient = shown(
        model("llama", width=32, depth=2),
        ["the quick brown fo", "a lazy dog, and th", "ere it was again a"],
    )
    assert (gradient.texts, gradient.texts_found, gradient.second_rank) == ([], 0, 32)
    assert "Of order and grouping nothing is certified" in gradient.certified


def test_a_batch_larger_than_the_width_shows_nothing_and_says_so():
    gradient = shown(
        model("llama", width=16),
        ["the quick brown fox jumps over", "a lazy dog, and then it ran a"],
    )
    assert gradient.rank == gradient.width == 16
    assert gradient.precision < 0.5
    assert gradient.certified.startswith("Nothing is certified")


def test_bad_input(bert):
    bert.tokenizer = ByteTokenizer()
    with pytest.raises(BadInput, match="no next-token head"):
        shown(bert, ["abc"])
    with pytest.raises(BadInput, match="empty"):
        shown(model(), [])
    with pytest.raises(BadInput, match="at least two tokens"):
        shown(model(), ["a", "abc"])
    with pytest.raises(BadInput, match="takes at most 32"):
        shown(model(), ["a" * 33])
    with pytest.raises(BadInput, match="no given 'gradient'"):
        invert(model(), "abc", given="gradient")


def test_the_command_the_page_and_the_disk(assets, tmp_path):
    (tmp_path / "texts.txt").write_text(
        "Once upon a time there was a cat\nThe dog went to the park to play\n"
    )
    command = [
        "privacy",
        str(assets / "models/stories260K"),
        "--text",
        str(tmp_path / "texts.txt"),
        "--release",
        "gradient",
    ]
    command += ["--documents", "lines", "--out", str(tmp_path / "out")]
    done = cli(*command, "--json")
    assert done.status == 0, done.stdout
    document = json.loads(done.stdout)
    assert (document["kind"], document["release"]) == ("privacy", "gradient")
    assert document["gradient"]["recall"] == document["rows"][0]["text_accuracy"] > 0.95
    again = headscan.load(tmp_path / "out")
    assert isinstance(again, PrivacyResult)
    assert len(again.frame()) == 1
    assert again.plot().data
    assert "The gradient of one training step" in (tmp_path / "out/report.html").read_text()
    shown = cli(*command, "--overwrite")
    assert "rank of the gradient" in shown.stdout
    assert cli(*command, "--overwrite", "--sites", "block.0").status == 2
