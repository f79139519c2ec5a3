"""Globs over site names."""

import pytest

from headscan.model.sites import last_block, match_sites
from headscan.run import BadInput

GPT = (
    "embedding",
    *(f"block.{i}{end}" for i in range(12) for end in (".attention", ".mlp", "")),
    "final_norm",
    "head",
)
T5 = (
    "encoder.embedding",
    "encoder.block.0.mlp",
    "encoder.block.0",
    "decoder.embedding",
    "decoder.block.0.mlp",
    "decoder.block.0",
    "head",
)


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("embedding", ["embedding"]),
        ("block.*", [f"block.{i}" for i in range(12)]),
        ("block.1?", ["block.10", "block.11"]),
        ("block.[01]", ["block.0", "block.1"]),
        ("block.*.mlp", [f"block.{i}.mlp" for i in range(12)]),
        ("block.3.**", ["block.3.attention", "block.3.mlp", "block.3"]),
        ("head,embedding , block.0", ["embedding", "block.0", "head"]),
        (["head", "final_norm,embedding"], ["embedding", "final_norm", "head"]),
        ("*", list(GPT)),
        ("**", list(GPT)),
        ("*_norm", ["final_norm"]),
    ],
)
def test_globs_go_part_by_part(glob, expected):
    assert match_sites(glob, GPT, "m") == tuple(expected)


def test_a_glob_without_a_stack_counts_for_both():
    assert match_sites("block.*", T5, "m") == ("encoder.block.0", "decoder.block.0")
    assert match_sites("decoder.**", T5, "m") == (
        "decoder.embedding",
        "decoder.block.0.mlp",
        "decoder.block.0",
    )
    assert match_sites("*.embedding", T5, "m") == ("encoder.embedding", "decoder.embedding")


@pytest.mark.parametrize(
    "glob", ["layer.*", "block.12", "Block.0", "block", "", [], "block.*,nothing"]
)
def test_a_glob_that_matches_nothing_lists_what_there_is(glob):
    with pytest.raises(
        BadInput, match=r"embedding, block.0 ... block.11, .*mlp.*, final_norm, head"
    ) as caught:
        match_sites(glob, GPT, "m")
    assert "\n" not in str(caught.value)


def test_the_last_whole_block_speaks_for_a_model_and_else_the_last_site_of_tokens():
    assert last_block(GPT) == "block.11"
    assert last_block(T5) == "decoder.block.0"
    assert last_block(["block.0", "block.1.mlp"]) == "block.0"
    assert last_block(["layer.1", "layer.2", "sentence"]) == "layer.2"
    assert last_block(["sentence"]) == "sentence"
