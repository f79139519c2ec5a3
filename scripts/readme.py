"""Write the measured numbers of README from the sections of BENCHMARKS.md that they come from.

    python scripts/readme.py

`benchmarks/run.py` does it at the end of a series; tests/test_publication.py compares the two.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OCCLUSION = "occlusion_is_faster_than_a_forward_pass_a_token"
INVERSION = "exact_inversion_recovers_every_token_of_a_real_model_in_seconds"


def table(benchmarks: str, section: str) -> list[dict[str, str]]:
    """Return the first table of a section of BENCHMARKS.md, a dictionary a row.

    >>> page = "<!-- a -->\\n| x | y |\\n|---|---|\\n| 1 | 2 |\\n\\n<!-- b -->\\n"
    >>> table(page, "a")
    [{'x': '1', 'y': '2'}]
    """
    text = benchmarks.partition(f"<!-- {section} -->\n")[2]
    text = re.split(r"^<!-- \w+ -->$", text, maxsplit=1, flags=re.M)[0]
    first = re.search(r"(?:^\|.*\n)+", text, flags=re.M)
    if first is None:
        raise ValueError(f"BENCHMARKS.md has no table in the section {section}")
    head, _, *lines = first[0].splitlines()
    names = _cells(head)
    return [dict(zip(names, _cells(line), strict=True)) for line in lines]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _extent(values: list[str], places: int) -> str:
    """Return the least and the greatest of some numbers: '1.4 to 5.4'."""
    numbers = [float(value) for value in values]
    return f"{min(numbers):.{places}f} to {max(numbers):.{places}f}"


def claims(benchmarks: str) -> list[tuple[str, str]]:
    """Return the rows of README's table that are measured: how each begins, and the whole row."""
    occlusion = table(benchmarks, OCCLUSION)
    ratios = _extent([row["captum takes ×"] for row in occlusion], 1)
    models = len({row["model"] for row in occlusion})
    tokens = " and ".join(dict.fromkeys(row["tokens"] for row in occlusion))
    inversion = table(benchmarks, INVERSION)
    read = sum(int(row["tokens"]) for row in inversion)
    right = sum(int(row["right"]) for row in inversion)
    seconds = _extent([row["processor s a token"] for row in inversion], 1)
    sites = ", ".join(row["site"].removeprefix("block.") for row in inversion)
    prompts = inversion[0]["prompts"]
    return [
        (
            "| Exact search recovered",
            f"| Exact search recovered {right} of {read} tokens, {seconds} processor seconds a "
            f"token | Qwen2.5-Coder-1.5B-Instruct, blocks {sites}, {prompts} prompts each | "
            "[BENCHMARKS](BENCHMARKS.md) |",
        ),
        (
            "| Occlusion is",
            f"| Occlusion is {ratios} times faster than captum, with equal scores | {models} "
            f"models of up to 6 blocks, {tokens} tokens | [BENCHMARKS](BENCHMARKS.md) |",
        ),
    ]


def rewritten(readme: str, benchmarks: str) -> str:
    """Return README with the measured rows of its table as BENCHMARKS.md has them."""
    rows = claims(benchmarks)
    lines = []
    for line in readme.split("\n"):
        measured = [row for start, row in rows if line.startswith(start)]
        lines.append(measured[0] if measured else line)
    return "\n".join(lines)


def main() -> None:
    """Write README."""
    path = ROOT / "README.md"
    benchmarks = (ROOT / "BENCHMARKS.md").read_text(encoding="utf-8")
    path.write_text(rewritten(path.read_text(encoding="utf-8"), benchmarks), encoding="utf-8")


if __name__ == "__main__":
    main()
