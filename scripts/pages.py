"""A small page of every kind, made by real runs, and pictures of it to look at.

    python scripts/pages.py FOLDER [--only scan,invert]

Writes FOLDER/KIND/report.html and, with Chromium and playwright, pictures 1200 and 390 pixels wide,
light and dark, and in print. Says of each page what it weighs, whether an error was logged, whether
it is wider than the screen, and what axe-core finds against it. The tests open the same pages
(tests/report/test_accessible.py).
"""

from __future__ import annotations

import argparse
import io
import json
import shlex
import sys
from contextlib import redirect_stderr, redirect_stdout
from importlib import resources
from pathlib import Path
from unittest import mock

CHROMIUM = Path("/usr/bin/chromium")
VIEWS = [(1200, "light"), (1200, "dark"), (390, "light"), (390, "dark")]
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-3d-apis", "--disable-background-networking"]
PROMPT = "'Once upon a time there was a little girl named Lily.'"
EXAMPLES = {
    "checkup": "checkup gpt-vanilla --text stories --context 32 --max-tokens 320",
    "scan": "scan gpt-vanilla --text stories --context 32 --max-tokens 320 --null --sample 64 "
    "--sites embedding,block.4 --measures rogue",
    "states": "states gpt-vanilla --text stories --context 32 --max-tokens 320 --sites "
    "block.0,block.1",
    "verification": "states gpt-vanilla --verify {dump}",
    "compare": "compare gpt-vanilla gpt-headless --text stories --context 32 --max-tokens 960 "
    "--sites embedding,block.0,block.4 --draws 19",
    "changes": "compare gpt-vanilla gpt-headless --changes --text stories --context 32 "
    "--max-tokens 320",
    "ntp": "ntp stories --tokenizer gpt-vanilla --order 1 --max-tokens 600 --model gpt-vanilla "
    "--gap 1e-3 --groups 5",
    "invert": "invert gpt-vanilla --prompt 'Once upon a time there was' --at block.1",
    "privacy": "privacy gpt-vanilla --text stories --sites block.1 --noise 0,1.6 --windows 1 "
    "--length 4 --candidates 64",
    "attribute": f"attribute gpt-vanilla --prompt {PROMPT} --method gradient-x-input",
    "flow": "flow gpt-vanilla --prompt 'Once upon a time there was' --at block.1 --no-recover",
    "channel": "channel gpt-vanilla --prompt 'Once upon' --at block.1 --noise 1",
    "weights": "weights gpt-vanilla-early",
    "damage": "compare gpt-vanilla --damage --against q4_0 --text stories --context 32 "
    "--max-tokens 640 --sample 64",
    "train": "train gpt --text stories --steps 4 --size tiny --context 32 --batch 4 "
    "--geometry-every 2",
    "recover": "recover gpt-headless --text stories --context 32 --max-tokens 960",
    "tournament": "tournament --text stories --arms ce,ce+unigram --seeds 2 --steps 4 "
    "--vocabulary 300 --width 8 --rates 0.01 --matched-loss 5.5 --processes 1",
    "remedy": "remedy {column} --partners {partners} --against {partners} --held-out 300 "
    "--formats dense,column",
    "evaluation": "evaluate gpt-vanilla --text {sets} --tasks blimp,synonyms",
    "reproduce": "reproduce S3 P2 P4",
}
"""A command a kind, short enough for a test; those of `reproduce` end in two different verdicts.
"""
PAIRS = {
    "number": [
        ("The dogs run home.", "The dogs runs home."),
        ("A girl sings.", "A girl sing."),
        ("They were sad.", "They was sad."),
    ],
    "order": [
        ("He saw a big tree.", "He saw big a tree."),
        ("She went to the park.", "She went the to park."),
    ],
}
"""Minimal pairs of two paradigms: the first of each is right."""


def materials(folder: Path) -> dict[str, str]:
    """Two columns of vectors whose rows belong together, about a far mean; and a folder of minimal
    pairs.
    """
    import numpy as np

    folder = folder.with_name(f"{folder.name}-materials")  # the folder itself is written anew
    (folder / "sets" / "blimp").mkdir(parents=True, exist_ok=True)
    for name, pairs in PAIRS.items():
        lines = [json.dumps({"sentence_good": good, "sentence_bad": bad}) for good, bad in pairs]
        (folder / "sets" / "blimp" / f"{name}.jsonl").write_text("\n".join(lines))

    draw = np.random.default_rng(0)
    rows = draw.standard_normal((600, 8))
    paths = {name: folder / f"{name}.npy" for name in ("column", "partners")}
    for path in paths.values():
        np.save(
            path,
            (rows + 0.5 * draw.standard_normal(rows.shape) + 20 * np.eye(8)[0]).astype(np.float32),
        )
    dump = folder / "dump.npz"
    np.savez(dump, layer=draw.standard_normal((64, 128)), token_ids=np.arange(64) + 5)
    paths |= {"sets": folder / "sets", "dump": dump}
    return {name: str(path) for name, path in paths.items()}


def _command(kind: str, folder: Path) -> str:
    template = EXAMPLES[kind]
    return template.format(**materials(folder)) if "{" in template else template


def make(kind: str, folder: Path) -> Path:
    """Run the command of a kind, in this process (another one takes seconds to start); the page it
    wrote.
    """
    from headscan.cli import main

    printed = io.StringIO()
    arguments = [
        "headscan",
        *shlex.split(_command(kind, folder)),
        "--out",
        str(folder),
        "--overwrite",
    ]
    with (
        mock.patch.object(sys, "argv", arguments),
        redirect_stdout(printed),
        redirect_stderr(printed),
    ):
        try:
            main()
        except SystemExit as leaving:
            if leaving.code:
                raise RuntimeError(
                    f"{shlex.join(arguments)}: {printed.getvalue()[-2000:]}"
                ) from None
    return folder / "report.html"


def axe() -> str | None:
    """The source of axe-core; None where the package that carries it is not installed."""
    try:
        return (resources.files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
    except ModuleNotFoundError:
        return None


# Of elements with one tag, class, ancestors, attributes and computed look, the first.
REPRESENTATIVES = """(elements) => {
  const shape = (element) => element.tagName + element.className
    + [...element.attributes].map((attribute) => attribute.name);
  const path = (element) => (element ? path(element.parentElement) + ">" + shape(element) : "");
  const look = (element) => {
    const style = getComputedStyle(element);
    return [style.color, style.backgroundColor, style.backgroundImage, style.opacity,
      style.fontSize, style.fontWeight, element.checkVisibility()];
  };
  const first = new Map();
  for (const element of elements) {
    const key = path(element) + look(element) + look(element.parentElement || element);
    if (!first.has(key)) first.set(key, element);
  }
  return [...first.values()]; }"""
AXE = """(contrastOnly) => {
  const written = (element) => /^(INPUT|SELECT)$/.test(element.tagName)
    || [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  const texts = (REPRESENTATIVES)([...document.body.querySelectorAll("*")].filter(written));
  const options = {resultTypes: ["violations"]};
  const contrast = {...options, runOnly: ["color-contrast"]};
  const others = {...options, rules: {"color-contrast": {enabled: false}}};
  const runs = [() => axe.run({include: texts}, contrast)];
  if (!contrastOnly) runs.push(() => axe.run(document, others));
  const found = async () => {
    const results = [];
    for (const run of runs) results.push(...(await run()).violations);
    return results;
  };
  return found(); }"""


def violations(page: object, contrast_only: bool = False) -> list[str]:
    """Return the faults that axe-core finds on an open page, with everything unfolded.

    Contrast, which takes four fifths of its time, is looked at once for all elements of one class,
    place and colour. Of what it finds only two examples a rule are described.
    """
    page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")  # type: ignore[attr-defined]
    if page.evaluate("!window.axe"):  # type: ignore[attr-defined]
        page.evaluate(axe())  # type: ignore[attr-defined]
    script = AXE.replace("REPRESENTATIVES", REPRESENTATIVES)
    found_violations = page.evaluate(script, contrast_only)  # type: ignore[attr-defined]
    return [
        f"{violation['id']}: {node['html'][:160]}"
        for violation in found_violations
        for node in violation["nodes"][:2]
    ]


def look(browser: object, path: Path) -> None:
    """Take pictures of a page and print what is wrong with it."""
    print(f"{path.parent.name}: {path.stat().st_size / 1e6:.2f} MB")
    for width, scheme in VIEWS:
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[attr-defined]
        faults: list[str] = []
        page.on(
            "console", lambda m, faults=faults: faults.append(m.text) if m.type == "error" else None
        )
        page.on("pageerror", lambda e, faults=faults: faults.append(str(e)))
        page.goto(path.resolve().as_uri())
        page.wait_for_selector("html[data-ready=true]", timeout=60_000)
        page.wait_for_timeout(500)
        wide = page.evaluate("document.documentElement.scrollWidth")
        page.screenshot(path=path.with_name(f"{width}-{scheme}.png"), full_page=True)
        if (width, scheme) == VIEWS[0]:
            page.pdf(path=path.with_name("print.pdf"))
        faults += violations(page) if axe() else []
        faults += [f"{wide} pixels wide"] if wide > width else []
        print(f"  {width} {scheme}: {'; '.join(faults) or 'nothing against it'}")
        page.close()


def main() -> None:
    """Make the pages, and look at them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default=",".join(EXAMPLES))
    parser.add_argument("--pictures-only", action="store_true")
    options = parser.parse_args()
    kinds = options.only.split(",")
    if not options.pictures_only:
        for kind in kinds:
            make(kind, options.folder / kind)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        for kind in kinds:
            look(browser, options.folder / kind / "report.html")
        browser.close()


if __name__ == "__main__":
    main()
