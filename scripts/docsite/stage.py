"""The tree that Sphinx reads: the repository's Markdown, moved, with links that hold there, and the
pages made from the code.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from entries import entries
from reference import reference

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = "https://github.com/headscan/headscan/blob/main/"
TOP = ("BENCHMARKS.md", "CONTRIBUTING.md", "CHANGELOG.md", "AGENTS.md")
START = ["five-pictures", "tutorials/first-scan", "notebooks/index", "gallery"]
REFERENCE = [
    "commands/index",
    "python/index",
    "glossary",
    "findings",
    "findings/index",
    "measures",
    "states",
    "scaling",
    "formats/index",
    "generated/tables",
    "generated/registries",
    "generated/gaussian",
    "generated/population",
    "generated/coverage",
]
PROJECT = ["CONTRIBUTING", "AGENTS", "CHANGELOG", "BENCHMARKS", "architecture", "decisions"]
# their text would stand before the guides in every search
UNSEARCHED = ("CHANGELOG.md", "AGENTS.md", "ledger.md", "benchmarks.md", "claims/")
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
CODE = re.compile(r"(^```.*?^```$|^(?: {4}|\t)[^\n]*$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)


def page_of(path: str) -> str | None:
    """Return the page of the site that a file of the repository becomes, or None."""
    if path in TOP or path.startswith("docs/images/"):
        return path.removeprefix("docs/")
    if path.startswith("docs/notebooks/") and path.endswith((".py", ".ipynb")):
        return f"notebooks/{Path(path).stem}.rst"
    if path == "docs/schemas":
        return "formats/index.md"
    if path.startswith("docs/schemas/"):
        return path.removeprefix("docs/")
    if path.startswith(("docs/", "lab/docs/")) and path.endswith(".md"):
        return re.sub(
            r"(^|/)README\.md$", r"\1index.md", path.removeprefix("lab/").removeprefix("docs/")
        )
    return None


def relinked(text: str, path: str) -> str:
    """A file's Markdown with links that hold in the site; what is no page there is linked in the
    repository.

    Raises SystemExit where a link leads nowhere.
    """
    folder = os.path.dirname(page_of(path) or "")

    def link(match: re.Match[str]) -> str:
        target, hash, anchor = match[2].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return match[0]
        target_path = os.path.normpath(os.path.join(os.path.dirname(path), target))
        if not (ROOT / target_path).exists():
            raise SystemExit(f"{path} has a broken link: {match[2]}")
        page = page_of(target_path)
        moved = os.path.relpath(page, folder) if page else REPOSITORY + target_path
        return f"{match[1]}{moved}{hash}{anchor}{match[3]}"

    parts = CODE.split(text)
    return "".join(part if CODE.fullmatch(part) else LINK.sub(link, part) for part in parts)


def contents(caption: str, pages: list[str]) -> str:
    """A hidden table of contents, which the sidebar shows."""
    return "\n".join(
        ["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```", ""]
    )


def stage(source: Path) -> None:
    """Write everything that Sphinx reads into a folder."""
    texts = {
        path: (ROOT / path).read_text(encoding="utf-8") for path in TOP if (ROOT / path).exists()
    }
    for file in sorted([*(ROOT / "docs").rglob("*.md"), *(ROOT / "lab" / "docs").rglob("*.md")]):
        texts[file.relative_to(ROOT).as_posix()] = file.read_text(encoding="utf-8")
    pages = {str(page_of(path)): relinked(text, path) for path, text in texts.items()}
    generated = entries(pages) | reference(pages)
    twice = (generated.keys() & pages.keys()) - {"measures.md", "ledger.md", "methods/checkup.md"}
    if twice:
        raise SystemExit(f"made from the code and written, too: {', '.join(sorted(twice))}")
    named = {f"{name}.md" for name in [*START, *REFERENCE, *PROJECT, "index"]}
    laboratory = {page_of(path) for path in texts if path.startswith("lab/")}
    howto = [name.removesuffix(".md") for name in pages if name.startswith("how-to/")]
    others = [name for name in pages if name not in named and not name.startswith("how-to/")]
    tables = {
        "Tutorials": START,
        "How to": howto,
        "Explanation": [name.removesuffix(".md") for name in others if name not in laboratory],
        "Reference": REFERENCE,
        "Laboratory": [name.removesuffix(".md") for name in others if name in laboratory],
        "Project": PROJECT,
    }
    pages |= generated
    pages["index.md"] += "".join(contents(caption, names) for caption, names in tables.items())
    for name, text in pages.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        if name.startswith(UNSEARCHED):
            text = "---\nnosearch: true\n" + (
                text.removeprefix("---\n") if text.startswith("---\n") else f"---\n\n{text}"
            )
        (source / name).write_text(text, encoding="utf-8")
    shutil.copytree(
        ROOT / "docs" / "images", source / "images", ignore=shutil.ignore_patterns("*.py")
    )
    shutil.copytree(ROOT / "docs" / "schemas", source / "schemas")
    shutil.copytree(ROOT / "docs" / "notebooks", source / "percent")
