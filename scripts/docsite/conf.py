"""Settings of Sphinx; `python scripts/docsite` builds the site with them."""

from __future__ import annotations

import re
from pathlib import Path

import headscan

project = "headscan"
author = "The headscan maintainers"
release = headscan.__version__
copyright = "The headscan maintainers, Apache-2.0"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["percent"]
default_role = "code"  # `name` is code, as it is in Markdown
highlight_language = "default"
myst_heading_anchors = 4
smartquotes = False  # an option is --text
suppress_warnings = ["ref.python"]  # a field that classes have in common is linked to none of them

autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
napoleon_use_ivar = True
napoleon_attr_annotations = False  # shapes in types hold stars

# Every notebook is executed anew, in the tables and drawings that a result shows of itself, which
# need no script.
sphinx_gallery_conf = {
    "examples_dirs": "percent",
    "gallery_dirs": "notebooks",
    "filename_pattern": r"\.py$",
    "abort_on_example_error": True,
    "image_scrapers": (),
    "reset_modules": (),
    "capture_repr": ("_repr_html_", "__repr__"),
    "download_all_examples": False,
    "within_subsection_order": "FileNameSortKey",
    "write_computation_times": False,
    "show_memory": False,
    "remove_config_comments": True,
    "notebook_images": False,
}

html_theme = "furo"
html_title = f"headscan {release}"
html_copy_source = html_show_sourcelink = False
html_show_search_summary = (
    False  # it fetches each page that is found, which a browser forbids where pages are files
)
html_extra_path = [str(Path(__file__).resolve().parents[2] / "llms.txt")]
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"

_CODE = re.compile(r"(``.+?``|`[^`]+`)")
_SECTIONS = ("Args:", "Attributes:", "Raises:", "Returns:", "Yields:")


def _plain(
    app: object, kind: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Docstrings are plain Markdown: bars, stars and trailing underscores are no markup, an
    indented block is code, and indented lines right below a line are a list.
    """
    if kind == "data" and lines and lines[0] in (type(obj).__doc__ or ""):
        lines[:] = [""]  # said by the type, not of this constant
    plain: list[str] = []
    block = ""  # of what kind the indented lines are that are being read
    for line in lines:
        previous = plain[-1] if plain else ""
        if not line.startswith(" "):
            if block == "list" and line:
                plain.append("")
            block = block if not line else ""
        elif not block:
            if previous and previous.rstrip() not in _SECTIONS:
                block = "list"
                plain.append("")
            elif previous:
                block = "section"
            elif len(plain) > 1 and plain[-2].endswith(":"):
                block = "code"
                plain[-2] += ":"
        if block == "list" and line:
            line = ("- " if not line.startswith(" " * 5) else "  ") + line.strip()
        plain.append(
            line if block == "code" or line.lstrip().startswith((">>>", "...")) else _escaped(line)
        )
    lines[:] = plain


def _escaped(line: str) -> str:
    parts = _CODE.split(line)
    parts[::2] = [
        re.sub(r"(?<!\\)([|*`])|(?<=\w)(_)(?!\w)", r"\\\1\2", part) for part in parts[::2]
    ]
    # reStructuredText wants code to end where a word ends; `\\ ` ends a word without a space.
    for number in range(1, len(parts), 2):
        code = parts[number].strip("`")
        left = parts[number - 1][-1:]
        right = parts[number + 1][:1]
        opening = "\\ " if left.isalnum() else ""
        closing = "\\ " if right.isalnum() else ""
        parts[number] = f"{opening}``{code}``{closing}"
    return "".join(parts)


def setup(app: object) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", _plain, priority=400)  # type: ignore[attr-defined]
