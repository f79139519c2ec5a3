"""CONTRIBUTING's recipes, as written there, are installed as a plug-in package, and each is found
wherever it must be.
"""

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
RECIPES: dict[str, str] = dict(
    re.findall(
        r"```python\n# (\w+)\.py\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.S
    )
)


# Runs what `python` would with these words, each in a fork, so that libraries are imported once.
SERVER = """
import json, os, runpy, sys
from functools import partial
from pathlib import Path
import torch, transformers, headscan
headscan.scan, headscan.train, headscan.attribute, headscan.invert
from tests.forked import fork, status_of

def work(said, kind, *rest):
    os.dup2(os.open(said + ".out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
    if kind == "-c":
        exec(rest[0], {"__name__": "__main__"})
    elif kind == "-m":
        sys.argv = [*rest]
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [kind, *rest]
        sys.path.insert(0, os.path.dirname(kind))
        runpy.run_path(kind, run_name="__main__")

for line in sys.stdin:
    said, *words = json.loads(line)
    print(status_of(fork(partial(work, said, *words), Path(said + ".err"))), flush=True)
"""


def wheel(folder: Path) -> Path:
    """A package of the recipes, with their entry points, as a build would make it."""
    path = folder / "headscan_recipes-1.0-py3-none-any.whl"
    info = "headscan_recipes-1.0.dist-info"
    points = "".join(f"{name} = headscan_recipes.{name}\n" for name in RECIPES)
    points += "[headscan.verbs]\nlongest-word = headscan_recipes.longest_word:longest_word\n"
    points += "[headscan.results]\nlongest-word = headscan_recipes.longest_word\n"
    files = {f"headscan_recipes/{name}.py": body for name, body in RECIPES.items()} | {
        "headscan_recipes/__init__.py": "",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: headscan-recipes\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: "
        "py3-none-any\n",
        f"{info}/entry_points.txt": f"[headscan.plugins]\n{points}",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, body in files.items():
            archive.writestr(name, body)
        archive.writestr(
            f"{info}/RECORD", "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
        )
    return path


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the package, and a function that runs headscan (or Python) with it."""
    site_folder = tmp_path_factory.mktemp("site")
    wheel_path = wheel(tmp_path_factory.mktemp("wheel"))
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--disable-pip-version-check",
    ]
    subprocess.run([*pip, "--target", str(site_folder), str(wheel_path)], check=True)
    paths = os.pathsep.join(
        str(path) for path in (ROOT / "src", ROOT / "lab" / "src", ROOT, site_folder)
    )
    environment = os.environ | {
        "PYTHONPATH": paths,
        "HF_HUB_OFFLINE": "1",
        "COLUMNS": "200",
        "TERM": "dumb",
    }
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=site_folder.parent,
    )

    def run(*args: str, status: int = 0) -> str:
        assert server.stdin
        assert server.stdout
        printed = site_folder.parent / "said"
        server.stdin.write(json.dumps([str(printed), *args]) + "\n")
        server.stdin.flush()
        returned = int(server.stdout.readline())
        out, error = ((printed.with_suffix(kind)).read_text("utf-8") for kind in (".out", ".err"))
        assert returned == status, error
        return " ".join((out if status == 0 else error).replace("│", " ").split())

    yield site_folder, run
    server.communicate()


def test_there_is_a_recipe_of_each_kind():
    assert set(RECIPES) == {
        "top_three_share",
        "repeats",
        "smoothed",
        "last_first",
        "first_tokens",
        "shrink",
        "longest_site",
        "raw_floats",
        "longest_word",
    }


def test_a_format_of_states_is_read(installed, tmp_path):
    _, run = installed
    (tmp_path / "x.f32").write_bytes(b"\0\0\x80\x3f" * 16 * 40)
    code = (
        "import headscan; "
        f"print(headscan.scan({str(tmp_path / 'x.f32')!r}).site('vectors')['average_cosine'])"
    )
    assert float(run("-c", code).split()[0]) == pytest.approx(1)


@pytest.fixture(scope="module")
def scanned(installed, tmp_path_factory):
    """The folder of one scan with the plug-in's measure and probe, and what it printed."""
    _, run = installed
    out = tmp_path_factory.mktemp("scanned") / "scan"
    arguments = (
        "scan",
        "gpt-vanilla-early",
        "--text",
        "stories",
        "--max-tokens",
        "1280",
        "--context",
        "64",
        "--out",
        str(out),
    )
    return out, run("-m", "headscan", *arguments, "--measures", "top_three_share,repeats")


def test_a_measure_a_probe_and_a_section_are_seen_in_scan(installed, scanned):
    _, run = installed
    out, shown = scanned
    assert "Repeats" in shown
    assert "top" in shown
    document = json.loads((out / "result.json").read_text("utf-8"))
    assert 0 < document["sites"][0]["top_three_share"] <= 1
    assert len(document["sites"][0]["top_three_share_interval"]) == 2
    assert 0 < document["repeats"][0]["share"] < 1
    code = f"import headscan; r = headscan.load({str(out)!r}); r.plot('top_three_share'); "
    framed = run("-c", code + "print(list(r.frame(long=False).columns), r.frame('repeats'))")
    assert "top_three_share" in framed
    assert "share" in framed
    assert "top_three_share" in run(
        "-m",
        "headscan",
        "scan",
        "gpt-vanilla",
        "--text",
        "stories",
        "--measures",
        "nonsense",
        status=2,
    )


@pytest.mark.browser
def test_they_are_seen_on_the_page_in_a_browser(scanned, chromium_without_webgl):
    out, _ = scanned
    page = chromium_without_webgl.new_page()
    page.goto((out / "report.html").as_uri())
    page.wait_for_selector("[data-figure] .main-svg")
    text = page.inner_text("body")
    page.close()
    for label in (
        "Top-three share",
        "Repeats",
        "repeated share",
        "The longest site",
        "has the longest vectors.",
    ):
        assert label.lower() in text.lower(), label


def test_an_objective_is_an_option_with_its_parameter(installed, tmp_path):
    _, run = installed
    out = tmp_path / "train"
    assert "smoothing=" in run("-m", "headscan", "train", "--help")
    arguments = (
        "train",
        "gpt",
        "--text",
        "stories",
        "--steps",
        "2",
        "--max-tokens",
        "6000",
        "--out",
        str(out),
    )
    run("-m", "headscan", *arguments, "--objective", "smoothed:smoothing=.2")
    document = json.loads((out / "result.json").read_text("utf-8"))
    assert "smoothed" in json.dumps(document["objective"])
    assert "0.2" in json.dumps(document["objective"])
    assert "smoothed" in (out / "report.html").read_text("utf-8")
    refused = run(
        "-m", "headscan", *arguments, "--objective", "cwt:smoothing=.2", "--overwrite", status=2
    )
    assert "smoothing is not a parameter of the objective cwt; it belongs to smoothed" in refused


def test_an_attribution_method_is_an_option_with_its_parameter(installed, tmp_path):
    _, run = installed
    assert "recency" in run("-m", "headscan", "attribute", "--help")
    arguments = (
        "attribute",
        "gpt-vanilla",
        "--prompt",
        "Once upon a time",
        "--out",
        str(tmp_path / "a"),
    )
    run("-m", "headscan", *arguments, "--method", "recency:decay=.5,occlusion")
    document = json.loads((tmp_path / "a" / "result.json").read_text("utf-8"))
    assert document["method"] == "recency"
    assert document["scores"][-1] == 0.5
    assert "Recency" in (tmp_path / "a" / "report.html").read_text("utf-8")
    loaded = f"headscan.load({str(tmp_path / 'a')!r})"
    code = f"import headscan; print(list({loaded}.frame().columns))"
    assert "recency" in run("-c", code)


def test_an_inversion_method_is_an_option_with_its_parameter(installed, tmp_path):
    _, run = installed
    assert "guessed=" in run("-m", "headscan", "invert", "--help")
    arguments = (
        "invert",
        "gpt-vanilla",
        "--prompt",
        "Once upon a time",
        "--at",
        "block.0",
        "--out",
        str(tmp_path / "i"),
    )
    run("-m", "headscan", *arguments, "--method", "guess:guessed=7")
    document = json.loads((tmp_path / "i" / "result.json").read_text("utf-8"))
    assert set(document["prompts"][0]["recovered"]) == {7}
    assert "unique" not in document["prompts"][0]["verdict"]
    assert "guessed is not a parameter of the method exact" in run(
        "-m", "headscan", *arguments, "--method", "exact:guessed=7", "--overwrite", status=2
    )


def test_a_remedy_is_found_with_its_parameter(installed):
    _, run = installed
    code = (
        "from headscan.remedies import REMEDIES; print(REMEDIES.build('shrink', {'share': .25}), "
        "list(REMEDIES))"
    )
    assert "Shrink(share=0.25)" in run("-c", code)


def test_a_verb_is_a_command_with_a_result_and_a_page(installed, tmp_path):
    _, run = installed
    out = tmp_path / "words"
    assert "longest-word Find the longest words of a text." in run("-m", "headscan", "--help")
    assert "Least number of letters" in run("-m", "headscan", "longest-word", "--help")
    run("-m", "headscan", "longest-word", "stories", "--letters", "5", "--out", str(out))
    assert "The longest of 3 words" in (out / "report.html").read_text("utf-8")
    code = (
        f"import headscan; print(type(headscan.load({str(out)!r})).__name__, "
        f"len(headscan.load({str(out)!r}).words))"
    )
    assert run("-c", code).split() == ["LongestWord", "3"]
    assert "Did you mean 'longest-word'?" in run("-m", "headscan", "longest-wrod", status=2)
    assert "--letters must be at least 1" in run(
        "-m", "headscan", "longest-word", "stories", "--letters", "0", status=2
    )


def test_each_is_in_the_documentation_that_is_written_with_the_plugin(installed):
    """In one process: what they import takes seconds."""
    _, run = installed
    paths = [str(ROOT / "scripts" / script) for script in ("measures.py", "registries.py")]
    code = (
        "import runpy, sys; sys.argv = ['', '--print']; [runpy.run_path(path, "
        f"run_name='__main__') for path in {paths}]"
    )
    text = run("-c", code)
    assert "Top-three share" in text
    for name in ("repeats", "smoothed", "smoothing", "recency", "guess", "shrink"):
        assert name in text
