"""Write the measured numbers of README from the pages that they come from.

    python scripts/readme.py

`benchmarks/run.py` does it at the end of a series; tests/test_publication.py compares the two.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = ROOT / "lab" / "docs" / "benchmarks.md"
CONE = ROOT / "lab" / "docs" / "methods" / "cone.md"
QWEN = "Qwen2.5-Coder-1.5B-Instruct (dequantised Q4_K_M)"
INTERVALS = ROOT / "lab" / "docs" / "methods" / "intervals.md"
LEADERBOARD = ROOT / "lab" / "docs" / "leaderboard.md"
INVERSIONS = ROOT / "lab" / "docs" / "methods" / "inversion.md"
NUMBER = re.compile(r"(?<![\d.])\.\d+")
MODELS = "| model | r | permuted |"
OCCLUSION = "occlusion_is_faster_than_a_forward_pass_a_token"
INVERSION = "exact_inversion_recovers_every_token_of_a_real_model_in_seconds"
COST = "what_a_scan_of_a_real_model_costs_beside_its_forward_pass"


def table(benchmarks: str, section: str) -> list[dict[str, str]]:
    """Return the first table of a section of lab/docs/benchmarks.md, a dictionary a row.

    >>> page = "<!-- a -->\\n| x | y |\\n|---|---|\\n| 1 | 2 |\\n\\n<!-- b -->\\n"
    >>> table(page, "a")
    [{'x': '1', 'y': '2'}]
    """
    text = benchmarks.partition(f"<!-- {section} -->\n")[2]
    text = re.split(r"^<!-- \w+ -->$", text, maxsplit=1, flags=re.M)[0]
    first = re.search(r"(?:^\|.*\n)+", text, flags=re.M)
    if first is None:
        raise ValueError(f"lab/docs/benchmarks.md has no table in the section {section}")
    head, _, *lines = first[0].splitlines()
    names = _cells(head)
    return [dict(zip(names, _cells(line), strict=True)) for line in lines]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def row(page: Path, start: str) -> list[str]:
    """Return the cells of the first row of a page's tables that begins so, with leading zeros."""
    lines = page.read_text(encoding="utf-8").splitlines()
    line = next(line for line in lines if line.startswith(f"| {start} |"))
    return _cells(NUMBER.sub(lambda match: f"0{match[0]}", line))


def _rounded(interval: str) -> str:
    """Return a number and its interval with two places: '0.141 [0.121, 0.160]'."""
    return re.sub(r"\d+\.\d+", lambda match: f"{float(match[0]) + 1e-9:.2f}", interval)


def _extent(values: list[str], places: int) -> str:
    """Return the least and the greatest of some numbers: '1.4 to 5.4'."""
    numbers = [float(value) for value in values]
    return f"{min(numbers):.{places}f} to {max(numbers):.{places}f}"


def speed_claims(benchmarks: str) -> list[tuple[str, str]]:
    """Return the rows of README's table whose numbers a benchmark measures, by how each begins."""
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
            f"token | {QWEN}, blocks {sites}, {prompts} prompts each | "
            "[measurement](lab/docs/benchmarks.md) |",
        ),
        (
            "| Occlusion is",
            f"| Occlusion is {ratios} times faster than captum, with equal scores | {models} "
            f"models of up to 6 blocks, {tokens} tokens | [measurement](lab/docs/benchmarks.md) |",
        ),
    ]


def cost(benchmarks: str) -> tuple[str, str]:
    """Return README's line on what a scan costs: how it begins, and the line."""
    bare, scan, *_ = table(benchmarks, COST)
    seconds = _extent(re.findall(r"[\d.]+", scan["seconds"]), 0)
    ratio = scan["of the forward pass"].split("**")[1]
    memory = scan["beside the model"].strip("*")
    section = benchmarks.partition(f"<!-- {COST} -->\n")[2]
    read = re.search(r"^(Qwen.+), ([\d,]+) tokens:$", section, flags=re.M)
    if read is None or bare["way"] != "bare" or scan["way"] != "scan":
        raise ValueError(f"lab/docs/benchmarks.md has another table in the section {COST}")
    return (
        "Cost: a scan of",
        f"Cost: a scan of {read[2]} tokens by {read[1]} takes {seconds} s on two cores, {ratio} "
        f"times the forward pass, and {memory} beside the model.",
    )


def bias_claim() -> tuple[str, str]:
    """Return the row on the bias of the head: how it begins, and the row.

    The share is the least of (before - after) / before over the models of the second table.
    """
    text = NUMBER.sub(lambda match: f"0{match[0]}", CONE.read_text(encoding="utf-8"))
    lines = text.partition(MODELS)[2].partition("\n\n")[0].splitlines()[2:]
    shares = []
    for line in lines:
        before, after = (float(cell.split()[0]) for cell in _cells(line)[4:6])
        shares.append((before - after) / before)
    return (
        "| A bias of the head",
        f"| A bias of the head takes away {min(shares):.2f} or more of the cone at the head's "
        "input; for every linear head W(x − μ) + Wμ = Wx, so no logit changes | "
        f"{len(shares)} models, 2,048 to 8,192 tokens each | [cone](docs/cone.md) |",
    )


def study_claims() -> list[tuple[str, str]]:
    """Return the rows whose numbers stand in the laboratory's tables, by how each begins."""
    cosine = row(CONE, "Qwen2.5-Coder-1.5B-Instruct (28)")[1]
    headless, with_head, unigram = (
        _rounded(row(LEADERBOARD, arm)[6]) for arm in ("headless", "ce", "ce+unigram")
    )
    coverages = []
    for text in ("wikitext-2", "mixed"):
        cells = row(INTERVALS, f"Qwen2.5-Coder-1.5B (own) | {text}, 8 x 256")[3:8]
        coverages += [cell.partition(",")[0] for cell in cells]
    inversions = INVERSIONS.read_text(encoding="utf-8")
    tried = re.search(r"false word in ([\d,]+)", inversions)
    if tried is None:
        raise ValueError(f"{INVERSIONS.name} does not say how many inversions were tried")
    return [
        (
            "| [Average cosine]",
            f"| [Average cosine](docs/glossary.md) similarity {cosine} | "
            f"{QWEN}, block.27, 2,048 tokens of wikitext-2 test, windows of 128 | "
            "[cone](docs/cone.md) |",
        ),
        (
            "| At equal loss",
            "| At equal loss (5.00 nats) a headless model has a lower average cosine than one "
            f"with a head, {headless} and {with_head}; a head whose bias starts at the log "
            f"[unigram](docs/glossary.md) has {unigram} | GPT-2 of 3 blocks, last block, "
            "TinyStories, 5 seeds, 2 learning rates | [leaderboard](lab/docs/leaderboard.md) |",
        ),
        (
            "| No false verdict",
            f"| No false verdict in {tried[1]} adversarial inversions, each checked by brute force "
            "| tiny random models, 21 kinds of attack | [inversion](docs/inversion.md) |",
        ),
        (
            "| 95 % intervals",
            f"| 95 % intervals cover {_extent(coverages, 2)} of fresh texts of the same length, "
            f"five measures | {QWEN}, 40 sets of 8 × 256 tokens, two texts | "
            "[intervals](docs/intervals.md) |",
        ),
        bias_claim(),
    ]


def claims(benchmarks: str) -> list[tuple[str, str]]:
    """Return the measured rows and lines of README: how each begins, and the whole line."""
    return [*speed_claims(benchmarks), *study_claims(), cost(benchmarks)]


def rewritten(readme: str, benchmarks: str) -> str:
    """Return README with the measured rows of its table as the measurements have them."""
    rows = claims(benchmarks)
    lines = []
    for line in readme.split("\n"):
        measured = [row for start, row in rows if line.startswith(start)]
        lines.append(measured[0] if measured else line)
    return "\n".join(lines)


def main() -> None:
    """Write README."""
    path = ROOT / "README.md"
    benchmarks = BENCHMARKS.read_text(encoding="utf-8")
    path.write_text(rewritten(path.read_text(encoding="utf-8"), benchmarks), encoding="utf-8")


if __name__ == "__main__":
    main()
