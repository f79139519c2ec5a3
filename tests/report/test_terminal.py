import hostile
import pytest
import sample
from rich.console import Console

import headscan
from headscan.report import present


def printed(document: dict, width: int = 80) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"), color_system=None)  # noqa: SIM115
    console.print(present.table(sample.shown(document)))
    return console.export_text()


@pytest.fixture(scope="module")
def document():
    return sample.scan(("tiny-gpt", "minilm"), blocks=12, width=32, tokens=60)[0]


def test_each_site_is_one_line_of_80_columns_with_its_numbers(document):
    text = printed(document)
    assert max(map(len, text.splitlines())) <= 80
    for entry in document["sites"]:
        low, high = entry["average_cosine_without_sinks_interval"]
        cosine = f"{entry['average_cosine_without_sinks']:.3f} [{low:.3f}, {high:.3f}]"
        line = next(line for line in text.splitlines() if cosine in line and entry["site"] in line)
        assert line.rstrip().endswith("42.0 %")
    assert "all columns but the last are of the tokens that are no sinks" in " ".join(text.split())


def test_the_nulls_and_the_findings_are_there(document):
    text = printed(document)
    assert text.count("random") == 2
    assert text.count("Gaussian") == 2
    joined = " ".join(text.split())
    for finding in document["findings"]:
        assert (
            f"{finding['code']}: {finding['sentence']} ({finding['model']}, {finding['site']})"
            in joined
        )


def test_a_null_is_a_dash_and_its_note_is_told():
    document, _ = sample.scan(("m",), blocks=1, width=8, tokens=20, nulls=False)
    document["sites"][0] |= {
        "isoscore_without_sinks": None,
        "average_cosine_without_sinks": None,
        "notes": ["only one token"],
    }
    text = printed(document)
    assert next(line for line in text.splitlines() if "embedding" in line).count("—") == 2
    assert "— only one token" in text


def test_hostile_names_are_no_markup_and_no_control_sequences():
    document, _ = hostile.scan()
    document["models"][0]["name"] = document["sites"][0]["model"] = "[bold red]x[/] \x1b[2J\u202e"
    document["findings"][0]["sentence"] = "[/] [link=http://x]y[/link] \x1b]8;;"
    text = printed(document, width=200)
    assert "[bold red]x[/] \ufffd[2J\ufffd" in text
    assert "[link=http://x]y[/link]" in text
    assert "\x1b" not in text


@pytest.mark.parametrize("width", [80, 110])
def test_a_flow_keeps_its_column_of_sites(width):
    result = headscan.flow.run("gpt-vanilla", prompt="Once upon a time", recover=False)
    console = Console(width=width, record=True, file=open("/dev/null", "w"), color_system=None)  # noqa: SIM115
    console.print(result.table())
    text = console.export_text()
    assert all(f" {site} " in text for site in result.sites)
