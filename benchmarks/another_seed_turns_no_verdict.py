"""Another master seed turns no verdict of the ledger.

Two complete runs: prompts, texts, starts, fresh weights and trainings all follow from the master
seed. No verdict may turn from *supported* to *not supported here* or back. Runs are kept in --out
and taken up where they stopped.

    python benchmarks/another_seed_turns_no_verdict.py [CLAIM ...] [--out FOLDER] [--seeds 0 1]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from headscan_lab.ledger.run import ReproduceResult, reproduce

import headscan


def run(claims: list[str], seed: int, folder: Path) -> ReproduceResult:
    """One complete run, read back where it is whole."""
    run_folder = folder / f"seed-{seed}"
    if (run_folder / "result.json").is_file():
        result = headscan.load(run_folder)
        assert isinstance(result, ReproduceResult)
        return result
    return reproduce(claims, seed=seed, out=run_folder, resume=run_folder.is_dir())


def main() -> None:
    """Run twice, compare, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("claims", nargs="*")
    parser.add_argument(
        "--out", type=Path, default=Path.home() / ".cache" / "headscan" / "ledger-twice"
    )
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 1))
    options = parser.parse_args()
    first, second = (run(options.claims, seed, options.out) for seed in options.seeds)
    pairs = list(zip(first.claims, second.claims, strict=True))
    apart = [(a, b) for a, b in pairs if a.verdict != b.verdict]
    opposite = {"supported", "not supported here"}
    turned = [(a, b) for a, b in apart if {a.verdict, b.verdict} == opposite]
    share = 1 - len(apart) / len(pairs)
    print(f"{len(pairs)} statements were tried twice; {share:.1%} of the verdicts agree,")
    print(f"{len(turned)} turned from *supported* to *not supported here* or back (none may).\n")
    if apart:
        print("| id | statement | seed | other seed |\n|---|---|---|---|")
    for a, b in apart:
        print(f"| {a.id} | {a.statement} | {a.verdict} | {b.verdict} |")
    raise SystemExit(1 if turned else 0)


if __name__ == "__main__":
    main()
