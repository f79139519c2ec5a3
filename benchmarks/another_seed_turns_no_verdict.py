"""Another master seed turns no verdict of the ledger.

Two complete runs: prompts, texts, starts, fresh weights and trainings all follow from the master
seed, and the second looks at the other half of the trained family. At least 97 % of the verdicts
(of claims about larger models: the tendencies) must agree, and none may turn from *supported* to
*refuted* or back. Runs are kept in --out and taken up where they stopped.

    python benchmarks/another_seed_turns_no_verdict.py [CLAIM ...] [--out FOLDER] [--seeds 0 1]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from headscan_lab.ledger.run import ReproduceResult, reproduce

import headscan

LEAST = 0.97


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
    pairs = [
        (a, b)
        for a, b in zip(first.claims, second.claims, strict=True)
        if a.tendency and b.tendency
    ]
    apart = [(a, b) for a, b in pairs if a.tendency != b.tendency]
    turned = [(a, b) for a, b in apart if {a.tendency, b.tendency} == {"supported", "refuted"}]
    share = 1 - len(apart) / len(pairs) if pairs else 0.0
    print(
        f"{len(pairs)} claims were measured in both runs; {share:.1%} of the tendencies agree (at "
        f"least {LEAST:.0%} is asked),"
    )
    print(f"{len(turned)} turned from *supported* to *refuted* or back (none may).\n")
    if apart:
        print(
            "| claim | statement | seed | effect | other seed | effect |\n|---|---|---|---|---|---|"
        )
    for a, b in apart:
        print(
            f"| {a.id} | {a.statement} | {a.tendency} | {a.effect:.3g} | {b.tendency} | "
            f"{b.effect:.3g} |"
        )
    raise SystemExit(0 if share >= LEAST and not turned else 1)


if __name__ == "__main__":
    main()
