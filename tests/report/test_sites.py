from __future__ import annotations

from headscan.report import sites


def test_order_is_by_depth_and_nulls_stand_apart():
    entries = [{"model": "m", "site": s, "depth": d} for s, d in (("block.10", 11), ("block.2", 3), ("embedding", 0))]
    entries.append({"model": "m", "site": "embedding", "depth": 0, "null": "gaussian"})
    assert [e["site"] for e in sites.of_model(entries, "m")] == ["embedding", "block.2", "block.10"]
    assert len(sites.of_model(entries, "m", "gaussian")) == 1


def test_places_in_a_stack():
    names = ("embedding", "block.0.attention", "block.0", "final_norm", "head", "decoder.block.1", "encoder.final_norm")
    found = [sites.place({"site": name, "depth": 9}, 2) for name in names]
    assert [p.x for p in found] == [0, 0.5, 1, 3, 4, 2, 3]
    assert [p.stack for p in found][-2:] == ["decoder", "encoder"]
    assert [p.label for p in found] == ["emb", "0.attention", "0", "norm", "head", "1", "norm"]


def test_a_site_of_another_kind_stands_at_its_depth():
    assert sites.place({"site": "vision.tower", "depth": 7}, 2) == sites.Place("", "", 7.0, "vision.tower")


def test_the_last_block_is_whole():
    entries = [{"site": s, "depth": d} for d, s in enumerate(("embedding", "block.0", "block.0.mlp", "final_norm"))]
    assert sites.last_block(entries)["site"] == "block.0"
    assert sites.last_block([{"site": "pooler", "depth": 1}])["site"] == "pooler"
    assert sites.last_block([]) is None
