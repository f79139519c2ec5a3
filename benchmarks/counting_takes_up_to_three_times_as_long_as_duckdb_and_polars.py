"""Counting contexts takes up to three times as long as hand-written group-bys of DuckDB and Polars,
and ends in order

All on the same tokens in one run: `headscan.text.counts.count`, which ends with contexts, CSR
arrays and counts in order, against group-bys over the token columns (which end with an unordered
table), each by all cores. The dictionary of Python counts `--dict-tokens` tokens and is scaled.

    python benchmarks/counting_takes_up_to_three_times_as_long_as_duckdb_and_polars.py [--tokens
    20000000] [--repeats 2]
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections import defaultdict

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
from _table import show

from headscan.text.counts import count
from headscan.text.source import Counting

VOCABULARY = 32_768


def zipf(tokens: int) -> np.ndarray:
    """Independent tokens by Zipf's law: nearly every trigram is new, the hardest case for any
    group-by.
    """
    rng = np.random.default_rng(0)
    return np.minimum((VOCABULARY ** rng.random(tokens) - 1).astype(np.uint16), VOCABULARY - 1)


def repetitive(tokens: int) -> np.ndarray:
    """A text that repeats itself as texts do: phrases of eight tokens, themselves by Zipf's law."""
    rng = np.random.default_rng(1)
    phrases = zipf(200_000 * 8).reshape(-1, 8)
    count = math.ceil(tokens / 8)
    ranks = (len(phrases) ** rng.random(count) - 1).astype(np.int64)
    drawn = np.minimum(ranks, len(phrases) - 1)
    return phrases[drawn].reshape(-1)[:tokens].copy()


def timed(function, repeats: int) -> tuple[float, int]:
    best = float("inf")
    rows = 0
    for _ in range(repeats):
        started = time.perf_counter()
        rows = function()
        best = min(best, time.perf_counter() - started)
    return best, rows


def measure(name: str, order: int, ids: np.ndarray, repeats: int, dict_tokens: int) -> dict:
    n = len(ids) - order

    def columns() -> dict[str, np.ndarray]:
        return {f"c{i}": ids[i : i + n].astype(np.int32) for i in range(order + 1)}

    def duck() -> int:
        with duckdb.connect() as connection:
            connection.register("grams", pa.table(columns()))
            connection.execute(
                f"create table counted as select {', '.join(columns())}, count(*) n from grams "
                "group by all"
            )
            row = connection.execute("select count(*) from counted").fetchone()
            assert row is not None
            return int(row[0])

    def polars() -> int:
        table = pl.DataFrame(columns())
        return len(table.lazy().group_by(table.columns).agg(pl.len()).collect(engine="streaming"))

    def dictionary() -> int:
        table: dict = defaultdict(int)
        tokens = ids[:dict_tokens].tolist()
        for gram in zip(*(tokens[i:] for i in range(order + 1)), strict=False):
            table[gram] += 1
        return len(table)

    rivals = {"polars": polars, "duckdb": duck}
    seconds: dict[str, float] = {}
    seconds["headscan"], distinct = timed(
        lambda: len(count([ids], VOCABULARY, Counting(order=order)).counts), repeats
    )
    for rival, function in rivals.items():
        seconds[rival], rows = timed(function, repeats)
        assert rows == distinct, (rival, rows, distinct)
    seconds["dictionary (scaled)"] = timed(dictionary, 1)[0] * len(ids) / min(dict_tokens, len(ids))
    faster = min(seconds[rival] for rival in rivals)
    return {
        "data": name,
        "order": order,
        "tokens": len(ids),
        "distinct": distinct,
        **{f"{k}, s": v for k, v in seconds.items()},
        "faster rival / headscan": faster / seconds["headscan"],
        "dictionary / headscan": seconds["dictionary (scaled)"] / seconds["headscan"],
        "load": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=20_000_000)
    parser.add_argument("--dict-tokens", type=int, default=3_000_000)
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    texts = {"zipf": zipf, "repetitive": repetitive}
    show(
        [
            measure(name, order, make(options.tokens), options.repeats, options.dict_tokens)
            for name, make in texts.items()
            for order in (3, 8)
        ]
    )


if __name__ == "__main__":
    main()
