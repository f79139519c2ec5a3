"""Find what is wrong with a built site: links and anchors that lead nowhere, and whatever would be
asked of a network.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = {
    ("script", "src"),
    ("link", "href"),
    ("img", "src"),
    ("iframe", "src"),
    ("source", "src"),
    ("video", "src"),
}
STYLES = re.compile(r"url\(\s*['\"]?(?:https?:)?//|@import\s+(?:url\()?['\"]?(?:https?:)?//")


class _Page(HTMLParser):
    """The anchors of a page, where it leads, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = {""}
        self.leads: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        self.anchors |= {named.get("id", ""), named.get("name", "")}
        for name, value in named.items():
            if (tag, name) in FETCHED and named.get("rel") not in (
                "canonical",
                "next",
                "prev",
                "index",
                "search",
            ):
                self.loads.append(value)
            elif tag == "a" and name == "href":
                self.leads.append(value)


def faults(site: Path) -> list[str]:
    """A sentence for every fault; none where the site holds by itself."""
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    wrong = [] if pages else [f"{site} has no page."]
    for path, page in pages.items():
        name = path.relative_to(site)
        for target in page.loads + page.leads:
            parts = urlsplit(target)
            if parts.scheme in ("http", "https") or parts.netloc:
                wrong += [f"{name} loads {target} from a network."] if target in page.loads else []
            elif parts.scheme == "":
                target_path = (path.parent / unquote(parts.path)).resolve() if parts.path else path
                if not target_path.is_file():
                    wrong.append(f"{name} leads to {target}, which is not there.")
                elif (
                    target_path in pages
                    and target in page.leads
                    and unquote(parts.fragment) not in pages[target_path].anchors
                ):
                    wrong.append(f"{name} leads to {target}, which has no such place.")
    for path in sorted(site.rglob("*.css")):
        if STYLES.search(path.read_text(encoding="utf-8")):
            wrong.append(f"{path.relative_to(site)} loads a font or a style from a network.")
    return list(dict.fromkeys(wrong))
