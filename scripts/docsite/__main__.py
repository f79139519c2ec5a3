"""Build the documentation as a site that needs no network: `python scripts/docsite [FOLDER]`, by
default into `site/`.

The pages are docs/ (notebooks executed), the files at the root that they lead to, and one page a
measure, finding, claim, command, format and package, all made from the code. A warning of Sphinx, a
broken link, or a page that would ask a network ends it with status 1.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from check import faults
from stage import ROOT, stage

OPTIONS = [
    "-b",
    "html",
    "-c",
    str(Path(__file__).parent),
    "-W",
    "--keep-going",
    "-q",
    "-T",
    "-j",
    "auto",
]


def build(folder: Path) -> list[str]:
    """The site in a folder, which is emptied first; what is wrong with it, a sentence each."""
    try:
        from sphinx.cmd.build import main
    except ImportError:
        return ["Sphinx is not installed: pip install 'headscan[docs]'."]
    with tempfile.TemporaryDirectory() as work_folder:
        source = Path(work_folder) / "source"
        stage(source)
        shutil.rmtree(folder, ignore_errors=True)
        if main([*OPTIONS, "-d", f"{work_folder}/doctrees", str(source), str(folder)]):
            return ["Sphinx found faults in the pages, see above."]
    return faults(folder)


if __name__ == "__main__":
    site = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "site"
    wrong = build(site)
    print(*wrong, sep="\n", file=sys.stderr)
    if wrong:
        sys.exit(1)
    print(
        "The documentation is built. Open it, without a "
        f"network:\n{(site / 'index.html').resolve()}"
    )
