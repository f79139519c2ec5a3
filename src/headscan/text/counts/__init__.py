"""Counting: from a corpus of any size to its distinct contexts of K tokens and how often each token followed each.

Positions count whose whole context lies inside their document. Counting is exact: keys are the tokens themselves, packed
into integers, never hashes. It is also out of core: under a memory limit the keys are sorted in chunks, equal ones merged
at once, and the rest spread over key ranges on disk, each of which fits in memory again (an external sample sort). Sorted
keys are the CSR arrays already; databases hash first and must sort afterwards, which is why this measured faster than
DuckDB and Polars (benchmarks/counting_is_no_slower_than_duckdb_and_polars.py). Beyond one machine there is Spark.
"""

from headscan.text.counts.counting import count, count_text, count_tokens
from headscan.text.counts.sort import count_prefixes, prefix_tokens
from headscan.text.counts.store import ContextCounts, grouped_counts
from headscan.text.counts.tokens import TokenStore, store_text, store_tokens

__all__ = [
    "ContextCounts",
    "TokenStore",
    "count",
    "count_prefixes",
    "count_text",
    "count_tokens",
    "grouped_counts",
    "prefix_tokens",
    "store_text",
    "store_tokens",
]
