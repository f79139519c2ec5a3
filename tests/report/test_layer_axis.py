"""The layer axis of models that differ in depth (four, five and six blocks), and of an encoder with
its decoder.
"""

import sample

from headscan.report.pages.scan_layers import Axis, Place, by_layer, last_block, of_model
from headscan.report.pages.scan_probes import pair_lines
from headscan.run import Row


def joined(*depths: int) -> dict:
    documents = [
        sample.scan((f"m{depth}",), blocks=depth, width=8, tokens=30, seed=depth)[0]
        for depth in depths
    ]
    first = documents[0]
    return first | {
        key: [entry for one in documents for entry in one[key]]
        for key in ("models", "sites", "nulls")
    }


def axis_of(document: dict) -> Axis:
    result = sample.shown(document)
    return Axis(result.sites, result.models)


def ticks(figure) -> dict[float, str]:
    return dict(zip(figure.layout.xaxis.tickvals, figure.layout.xaxis.ticktext, strict=True))


def test_equal_depths_count_their_layers():
    figure = by_layer(sample.shown(joined(4, 4)), "average_cosine", nulls=False)
    assert ticks(figure) == {0: "emb", 1: "0", 2: "1", 3: "2", 4: "3", 5: "norm"}
    assert figure.layout.xaxis.title.text == "layer"


def test_unequal_depths_share_the_ends_and_no_block_is_called_a_norm():
    document = joined(4, 5, 6)
    figure = by_layer(sample.shown(document), "average_cosine", nulls=False)
    lines = [trace for trace in figure.data if not trace.fill]
    for trace, depth in zip(lines, (4, 5, 6), strict=True):
        assert list(trace.x) == [0, *[(k + 1) / depth for k in range(depth)], 1.08]
    named = ticks(figure)
    assert named == {0: "emb", 0.25: "¼", 0.5: "½", 0.75: "¾", 1: "last", 1.08: "norm"}
    assert figure.layout.xaxis.title.text == "share of the blocks"
    axis = axis_of(document)
    places = [axis.place(Row(entry)) for entry in document["sites"]]
    labels = {place.x: place.label for place in places}
    assert [x for x, label in labels.items() if label == "norm"] == [1.08]
    block = next(
        entry
        for entry in document["sites"]
        if entry["model"] == "m6" and entry["site"] == "block.4"
    )
    place = axis.place(Row(block))
    assert (place.label, place.x) == ("4", 5 / 6)


def test_an_encoder_that_is_deeper_than_its_decoder_ends_where_it_ends():
    document = joined(6)
    sites = []
    for stack, depth in (("encoder", 6), ("decoder", 4)):
        for entry in document["sites"]:
            name = entry["site"]
            if not name.startswith("block.") or int(name.split(".")[1]) < depth:
                sites.append(entry | {"site": f"{stack}.{name}"})
    both = document | {"sites": sites, "models": [{"name": "m6", "depth": None}]}
    figure = by_layer(sample.shown(both), "isoscore", nulls=False)
    lines = {trace.name: list(trace.x) for trace in figure.data if not trace.fill}
    assert lines == {
        "m6 encoder": [0, *[(k + 1) / 6 for k in range(6)], 1.08],
        "m6 decoder": [0, 0.25, 0.5, 0.75, 1, 1.08],
    }


def test_a_few_sites_of_a_deep_model_stand_at_their_true_share():
    document = joined(4)
    deep = document["sites"][1] | {"model": "deep", "site": "block.5", "depth": 6}
    both = document | {
        "sites": [*document["sites"], deep],
        "models": [*document["models"], {"name": "deep", "depth": 24}],
    }
    assert axis_of(both).place(Row(deep)).x == 0.25


def test_parts_stand_before_their_block_and_unknown_sites_at_their_depth():
    axis = axis_of(joined(6))
    assert axis.place(Row(site="block.3.mlp", model="m6")) == Place("", "mlp", 3.75, "3.mlp")
    assert axis.place(Row(site="somewhere.else", model="m6", depth=3)) == Place(
        "", "", 3.0, "somewhere.else"
    )


def test_places_in_a_stack():
    sites = [{"model": "m", "site": f"{s}.block.1", "depth": 9} for s in ("encoder", "decoder")]
    axis = axis_of({"sites": sites})
    names = (
        "embedding",
        "decoder.block.0.attention",
        "final_norm",
        "head",
        "decoder.block.1",
        "encoder.final_norm",
    )
    found = [axis.place(Row(site=name, depth=9, model="m")) for name in names]
    assert [place.x for place in found] == [0, 0.5, 3, 4, 2, 3]
    assert [place.stack for place in found][-2:] == ["decoder", "encoder"]
    assert [place.label for place in found] == ["emb", "0.attention", "norm", "head", "1", "norm"]


def test_entries_come_in_the_order_of_depth():
    found = [Row(model="a", site="block.10", depth=11), Row(model="a", site="block.9", depth=10)]
    assert [entry["site"] for entry in of_model(found, "a")] == ["block.9", "block.10"]
    assert last_block(found)["site"] == "block.10"
    assert last_block([*found, Row(site="block.10.mlp", depth=12)])["site"] == "block.10"
    assert last_block([Row(site="pooler", depth=1)])["site"] == "pooler"
    assert last_block([]) is None
    nulls = [found[0] | {"null": "gaussian"}]
    assert len(of_model(found + nulls, "a")) == 2
    assert of_model(found + nulls, "a", "gaussian") == nulls


def test_pairs_of_unequal_depths_stand_in_order_on_the_same_axis():
    result = sample.shown(joined(4, 6))
    rows = [
        Row({"model": row["model"], "site": row["site"], "set": "singular", "r": 0.5})
        for row in reversed(result.sites)
    ]
    figure = pair_lines(result, rows, "r")
    for trace, depth in zip(sorted(figure.data, key=lambda one: one.name), (4, 6), strict=True):
        assert list(trace.x) == [0, *[(k + 1) / depth for k in range(depth)], 1.08]
    assert list(ticks(figure).values()) == ["emb", "¼", "½", "¾", "norm"]
