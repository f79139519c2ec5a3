"""Write docs/notebooks/*.ipynb from the scripts beside them, executed, for Jupyter and Colab.

    python scripts/notebooks.py [--check] [NAME ...]

A script is split at its lines `# %%`: comments become text, code is run in one process, and what it
prints and its last expression become outputs. `--check` compares the cells without running them.
"""

import ast
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "notebooks"
COLAB = "https://colab.research.google.com/github/headscan/headscan/blob/main/docs/notebooks"
SOURCE = "git+https://github.com/headscan/headscan"
INSTALL = "\n".join(
    [
        "# In Colab, or in a fresh environment, remove the # of these lines:",
        f"# %pip install 'headscan[train] @ {SOURCE}'",
        f"# %pip install 'headscan-lab @ {SOURCE}#subdirectory=lab'",
    ]
)
HEADING = {"=": "#", "-": "##", "~": "###"}


def markdown(text: str) -> str:
    """Return reStructuredText of a script as Markdown: headings, code and links to other notebooks.

    >>> print(markdown("A title\\n=======\\nSee :doc:`5_the_theorist` and ``x``."))
    # A title
    See [5_the_theorist](5_the_theorist.ipynb) and `x`.
    """
    lines = text.strip().splitlines()
    result = []
    for number, line in enumerate(lines):
        following = lines[number + 1] if number + 1 < len(lines) else ""
        if re.fullmatch(r"([=~-])\1{2,}", line):
            continue
        if re.fullmatch(r"([=~-])\1{2,}", following):
            line = f"{HEADING[following[0]]} {line}"
        result.append(line)
    joined = re.sub(r":doc:`([^`]+)`", _link, "\n".join(result))
    return joined.replace("``", "`")


def _link(match: re.Match[str]) -> str:
    """Return the Markdown link to another notebook, or to a page of the repository."""
    name = match[1].removeprefix("/")
    if name == match[1]:
        return f"[{name}]({name}.ipynb)"
    root = FOLDER.parents[1]
    page = f"docs/{name}.md" if (root / "docs" / f"{name}.md").is_file() else f"lab/docs/{name}.md"
    return f"[{name}](https://github.com/headscan/headscan/blob/main/{page})"


def cells_of(script: Path) -> list[tuple[str, str]]:
    """Return (kind, source) of each cell."""
    text = script.read_text(encoding="utf-8")
    head, *parts = re.split(r"^# %%.*\n", text, flags=re.MULTILINE)
    docstring = ast.get_docstring(ast.parse(head)) or ""
    badge = f"[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({COLAB}/{script.stem}.ipynb)"
    cells = [("markdown", f"{markdown(docstring)}\n\n{badge}"), ("code", INSTALL)]
    for part in parts:
        lines = part.splitlines()
        count = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
        comment = "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines[:count])
        if comment.strip():
            cells.append(("markdown", markdown(comment)))
        code = "\n".join(lines[count:]).strip()
        if code:
            cells.append(("code", code))
    return cells


def outputs_of(code: str, names: dict[str, object]) -> list[dict[str, object]]:
    """Run a cell and return its outputs as nbformat has them."""
    tree = ast.parse(code)
    last = tree.body[-1] if tree.body else None
    value = None
    stream = io.StringIO()
    with redirect_stdout(stream), redirect_stderr(io.StringIO()):
        if isinstance(last, ast.Expr):
            exec(compile(ast.Module(tree.body[:-1], []), "<cell>", "exec"), names)
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
        else:
            exec(compile(tree, "<cell>", "exec"), names)
    outputs: list[dict[str, object]] = []
    if stream.getvalue():
        text = stream.getvalue().splitlines(keepends=True)
        outputs.append({"output_type": "stream", "name": "stdout", "text": text})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_().splitlines(keepends=True)
        outputs.append(
            {"output_type": "execute_result", "execution_count": None, "data": data, "metadata": {}}
        )
    return outputs


def notebook(script: Path, *, execute: bool) -> dict[str, object]:
    """Return a notebook; without `execute` its code cells have no outputs."""
    names: dict[str, object] = {"__name__": "__main__"}
    cells = []
    count = 0
    for number, (kind, source) in enumerate(cells_of(script)):
        cell: dict[str, object] = {
            "cell_type": kind,
            "id": f"cell-{number}",
            "metadata": {},
            "source": source.splitlines(keepends=True),
        }
        if kind == "code":
            count += 1
            outputs = outputs_of(source, names) if execute else []
            for output in outputs:
                if "execution_count" in output:
                    output["execution_count"] = count
            cell |= {"execution_count": count if execute else None, "outputs": outputs}
        cells.append(cell)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def outdated() -> list[str]:
    """Return the notebooks whose cells are not those of their script."""
    names = []
    for script in sorted(FOLDER.glob("*.py")):
        path = script.with_suffix(".ipynb")
        fresh = [cell["source"] for cell in notebook(script, execute=False)["cells"]]  # type: ignore[attr-defined]
        stored = json.loads(path.read_text(encoding="utf-8"))["cells"] if path.is_file() else []
        if [cell["source"] for cell in stored] != fresh:
            names.append(path.name)
    return names


def main() -> None:
    """Write the notebooks named, or all, each in a process and a folder of its own."""
    arguments = sys.argv[1:]
    if arguments == ["--check"]:
        sys.exit(f"Run scripts/notebooks.py: {', '.join(outdated())}" if outdated() else 0)
    if arguments[:1] == ["--one"]:
        script = Path(arguments[1])
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            text = json.dumps(notebook(script, execute=True), ensure_ascii=False, indent=1)
            os.chdir("/")
        script.with_suffix(".ipynb").write_text(text + "\n", encoding="utf-8")
        return
    for script in sorted(FOLDER.glob("*.py")):
        if not arguments or script.stem in arguments:
            subprocess.run([sys.executable, __file__, "--one", str(script)], check=True)


if __name__ == "__main__":
    main()
