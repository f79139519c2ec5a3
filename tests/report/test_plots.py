import numpy as np
import pytest
import sample

from headscan.report.kit import palette
from headscan.report.pages import scan_layers as layers
from headscan.report.pages import scan_shape as shape


@pytest.fixture(scope="module")
def document():
    return sample.scan(("a", "b"), blocks=3, width=16, tokens=80)[0]


def lines(figure, mode="lines+markers"):
    return [trace for trace in figure.data if trace.mode == mode and not trace.fill]


def test_the_lines_are_the_documents_numbers(document):
    found = lines(shape.average_cosine(sample.shown(document)))
    assert [trace.name for trace in found] == ["a", "b"]
    wanted = [e["average_cosine_without_sinks"] for e in document["sites"] if e["model"] == "b"]
    assert np.allclose(found[1].y, wanted, rtol=1e-5)
    assert list(found[1].x) == [0, 1, 2, 3, 4]


def test_all_tokens_have_lines_of_their_own(document):
    only = lines(layers.by_layer(sample.shown(document), "mean_norm", "with"))
    wanted = [e["mean_norm"] for e in document["sites"] if e["model"] == "a"]
    assert np.allclose(only[0].y, wanted, rtol=1e-5)
    both = layers.by_layer(sample.shown(document), "mean_norm", "both")
    assert {(t.meta["first"], t.visible) for t in both.data} == {("with", False), ("without", True)}


def test_a_result_that_knows_of_no_sinks_is_drawn_as_it_is(document):
    bare = [{k: v for k, v in e.items() if "_without_sinks" not in k} for e in document["sites"]]
    both = layers.by_layer(
        sample.shown(document | {"sites": bare, "nulls": []}), "mean_norm", "both"
    )
    assert {(str(t.meta), t.visible) for t in both.data} == {("{}", True)}
    wanted = [e["mean_norm"] for e in document["sites"] if e["model"] == "a"]
    assert np.allclose(lines(both)[0].y, wanted, rtol=1e-5)


def test_the_band_is_the_interval(document):
    figure = layers.by_layer(sample.shown(document), "isoscore", nulls=False)
    band = next(trace for trace in figure.data if trace.fill == "toself")
    entries = [e["isoscore_without_sinks_interval"] for e in document["sites"] if e["model"] == "a"]
    assert np.allclose(
        band.y, [high for _, high in entries] + [low for low, _ in entries][::-1], rtol=1e-5
    )


def test_each_model_stands_beside_its_random_weights_and_all_share_one_gaussian(document):
    names = [trace.name for trace in lines(shape.average_cosine(sample.shown(document)), "lines")]
    assert names == ["random weights of a", "Gaussian", "random weights of b"]


def test_a_value_that_is_not_defined_is_a_gap(document):
    sites = [dict(entry) for entry in document["sites"]]
    sites[2]["isoscore_without_sinks"] = None
    sites[3]["isoscore_without_sinks"] = float("nan")
    found = lines(layers.by_layer(sample.shown(document | {"sites": sites}), "isoscore"))[0]
    assert found.y[2] is None
    assert found.y[3] is None
    figure = layers.by_layer(sample.shown(document | {"sites": sites}), "isoscore", nulls=False)
    bands = [trace for trace in figure.data if trace.fill and trace.legendgroup == "a"]
    assert [list(t.x) for t in bands] == [[0, 1, 1, 0], [4, 4]]


def test_parts_of_blocks_get_a_line_of_their_own(document):
    extra = [
        dict(e, site=f"{e['site']}.mlp")
        for e in document["sites"]
        if e["site"].startswith("block.")
    ]
    found = lines(
        shape.average_cosine(sample.shown(document | {"sites": document["sites"] + extra}))
    )
    assert [trace.name for trace in found] == ["a", "a mlp", "b", "b mlp"]
    assert list(found[1].x) == [0.75, 1.75, 2.75]


def test_the_spectrum_starts_at_one_and_is_the_documents(document):
    figure = shape.spectrum_of(sample.shown(document), "a")
    values = np.array(document["sites"][0]["singular_values_without_sinks"])
    assert np.allclose(figure.data[0].y, values / values[0], rtol=1e-3)
    assert figure.data[-1].name == "expectation: Gaussian"
    assert len(figure.data) == 5 + 1


def test_a_model_name_is_no_markup():
    document, _ = sample.scan(("<b>%{x}</b>$y$", "other"), blocks=1, width=8, tokens=20)
    trace = lines(shape.average_cosine(sample.shown(document)))[0]
    assert "<b>" not in trace.name
    assert "<b>" not in trace.hovertemplate.replace(trace.name, "")
    assert "%{x}" not in trace.hovertemplate
    assert "$" not in trace.name


def test_every_colour_of_a_figure_has_a_dark_partner(document):
    swaps = palette.swaps(5)
    for figure in (
        shape.average_cosine(sample.shown(document)),
        shape.spectrum_of(sample.shown(document), "a"),
    ):
        for trace in figure.data:
            colour = trace.fillcolor or trace.line.color
            assert swaps[colour] != colour
        assert figure.layout.xaxis.color in swaps


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(a: str, b: str) -> float:
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1])
def test_text_has_contrast_and_lines_can_be_seen(theme):
    paper = palette.ROLES["paper"][theme]
    assert (
        min(contrast(palette.ROLES[role][theme], paper) for role in ("ink", "muted", "accent"))
        >= 4.5
    )
    assert min(contrast(pair[theme], paper) for pair in palette.MODELS) >= 3


@pytest.mark.parametrize("scale", [palette.DEPTH, palette.FREQUENCY])
def test_scales_run_one_way_in_lightness(scale):
    for theme in (0, 1):
        steps = np.diff([luminance(palette.mix(scale[theme], t)) for t in np.linspace(0, 1, 30)])
        assert (steps > 0).all() or (steps < 0).all()
