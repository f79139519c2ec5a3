"""Count the words of the documentation by kind, and the private words and long sentences of the
program's strings and of the user's pages.

    python scripts/words.py

tests/test_words.py holds the limits.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXPLANATIONS = (
    "cone checkup intervals inversion leaks attribution flow compare damage remedies training ntp "
    "weights"
)
KINDS = {
    "front": ("README.md", "docs/README.md"),
    "tutorials": ("docs/tutorials/*.md", "docs/five-pictures.md", "docs/gallery.md"),
    "how-to": ("docs/how-to/*.md",),
    "explanation": tuple(f"docs/{name}.md" for name in EXPLANATIONS.split()),
    "reference": ("docs/glossary.md", "docs/states.md", "docs/scaling.md"),
    "written by scripts": ("docs/findings.md", "docs/measures.md", "docs/generated/*.md"),
    "release": ("CHANGELOG.md", "BENCHMARKS.md", "SECURITY.md"),
    "contributors": (
        "AGENTS.md",
        "CONTRIBUTING.md",
        "docs/architecture.md",
        "docs/decisions.md",
    ),
    "laboratory": ("lab/docs/**/*.md",),
}
USER_KINDS = ("front", "tutorials", "how-to", "explanation", "reference")
PRIVATE = re.compile(
    r"\b(?:specimens?|stand-ins?|stands? in for|house|held against|hold against|holds? against|"
    r"beside the nulls?|the nulls? makes?|cures?|ill ones|arms?|speaks?|rests? on|"
    r"holds? the limit|holds? 0|told|in the night)\b",
    re.IGNORECASE,
)
"""Words that only this project uses so; what the program says has none of them."""
ALLOWED = re.compile(r"packaging/specimens|headscan\[specimens\]|--arms|'cure'")
LONG = 35
"""Words of the longest sentence."""
SENTENCE_END = re.compile(r"(?<=[.!?:;])\s+")
BARE_NUMBER = re.compile(r"(?<![\w.)\]}*/\\:-])\.\d(?!\d*em)")
"""A number without its leading zero."""


@cache
def program_strings(folder: Path = ROOT / "src" / "headscan") -> list[tuple[str, str]]:
    """Return (place, string) of all strings that the program can print; docstrings are none."""
    return list(_strings_in(folder))


def _strings_in(folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        silent = set()
        for node in nodes:
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                silent.add(id(node.value))
        for node in nodes:
            text = ""
            if isinstance(node, ast.JoinedStr):
                silent.update(id(part) for part in node.values)
                pieces = [
                    part.value if isinstance(part, ast.Constant) else "{}" for part in node.values
                ]
                text = "".join(map(str, pieces))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = "" if id(node) in silent else node.value
            if " " in text.strip() and "<" not in text:
                assert isinstance(node, ast.expr)
                yield f"{path.relative_to(ROOT)}:{node.lineno}", text


def pages(kind: str) -> list[Path]:
    """Return the pages of a kind."""
    return sorted(page for glob in KINDS[kind] for page in ROOT.glob(glob))


def prose(page: Path) -> str:
    """Return a page without code, tables, links' targets and pictures."""
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"^(```|~~~).*?^\1", "", text, flags=re.M | re.S)
    text = re.sub(r"^(?: {4}|\||!\[).*$", "", text, flags=re.M)
    text = re.sub(r"`[^`]*`", "CODE", text)
    return re.sub(r"\]\([^)]*\)", "]", text)


def faults(text: str) -> list[str]:
    """Return the private words and the sentences of more than `LONG` words of a text.

    >>> faults("The loss is held against a null.")
    ['held against']
    """
    found = PRIVATE.findall(ALLOWED.sub("", text))
    found += [f"no leading zero: {number}" for number in BARE_NUMBER.findall(text)]
    for paragraph in re.split(r"\n\s*\n|\n[-*] |\n#+ ", text):
        for sentence in SENTENCE_END.split(paragraph):
            if len(sentence.split()) > LONG:
                found.append(f"{len(sentence.split())} words: {' '.join(sentence.split())[:80]}")
    return found


def main() -> None:
    """Print the words by kind, and what is at fault."""
    total = 0
    for kind in KINDS:
        words = {page: len(page.read_text(encoding="utf-8").split()) for page in pages(kind)}
        total += sum(words.values()) if kind in USER_KINDS else 0
        print(f"{kind:14} {sum(words.values()):7,} words in {len(words)} pages")
    print(f"{'for users':14} {total:7,} words")
    for place, text in program_strings():
        for fault in faults(text):
            print(f"{place}: {fault}")
    for kind in USER_KINDS:
        for page in pages(kind):
            for fault in faults(prose(page)):
                print(f"{page.relative_to(ROOT)}: {fault}")


if __name__ == "__main__":
    main()
