"""The pass over stored states on a Spark cluster: partial statistics by mapInArrow, merged along a
tree.

Each level of the tree merges `FAN` records of each key, so that no worker holds more than those of
one site, and the sites are merged side by side.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from typing import Any, TypeAlias

import pyarrow as pa
import torch
from safetensors.torch import load, save
from torch import Tensor

from headscan.run import BadInput
from headscan.run.spark import spark_session
from headscan.scanner.accumulate import Accumulation, ProbeRunner, accumulate, empty_pass
from headscan.scanner.settings import Scanning, choose
from headscan.states import StoredSource, read_states
from headscan.statistics import Reservoir, SiteStatistics, TokenCounts
from headscan.statistics.accumulator import Accumulator, prefixed, unprefixed

# ---- A piece of stored states on a worker of a cluster: its statistics as records, and records merged.
#
# A record is the statistics of one site (or the counts, the sample, a probe's) of one piece of the
# store.

REFUSED = "refused"
LONGEST = 2**31 - 2**20  # bytes that a record of Spark can hold
RECORDS = pa.schema([("key", pa.string()), ("piece", pa.int64()), ("state", pa.binary())])
SCHEMA = "key string, piece long, state binary"
Kinds: TypeAlias = dict[str, type[Accumulator]]


@dataclass(frozen=True)
class Shard:
    """What a worker must know to take a piece of a store: where it is, the source's name and
    vocabulary (so that no worker reads all token ids for it), sites and settings of the scan, the
    window at which it begins, and how many pieces there are.
    """

    where: str
    name: str
    vocabulary: int
    sites: tuple[str, ...]
    settings: Scanning
    first: int
    pieces: int

    def source(self) -> StoredSource:
        settings = self.settings
        vectors = read_states(self.where, None if settings.field == "text" else settings.field)
        if vectors is None:
            raise BadInput(
                f"A worker of the cluster sees no states at {self.where}: it must be where all "
                "see it."
            )
        vectors = replace(vectors, name=self.name, vocabulary=self.vocabulary or None)
        return StoredSource(
            vectors,
            context=settings.context,
            batch=settings.batch,
            max_tokens=settings.max_tokens,
            where=self.where,
        )

    def take(self, piece: int) -> Accumulation:
        """The pass over one piece: consecutive batches."""
        source = self.source()
        settings = self.settings
        begin, end = bounds(source, self.first, piece, self.pieces)
        runner = ProbeRunner(
            choose(settings.measures)[1], source, self.sites, settings, announce=lambda _: None
        )
        accumulated = empty_pass(source, self.sites, runner, settings)
        batches = takewhile(lambda batch: int(batch.indices[0]) < end, source.batches(start=begin))
        watch = runner.watch(accumulated)
        passing = runner.passing()
        accumulate(
            source,
            batches,
            accumulated,
            watch=watch,
            passing=passing,
            skip_first=settings.skip_first,
        )
        return accumulated


def bounds(source: StoredSource, first: int, piece: int, pieces: int) -> tuple[int, int]:
    """The first window of a piece, and that of the next; pieces begin with batches."""
    windows = source.whole + (1 if source.rest else 0)
    start = first // source.batch
    many = -(-windows // source.batch)
    here, there = (start + (many - start) * number // pieces for number in (piece, piece + 1))
    return max(first, here * source.batch), windows if piece + 1 == pieces else there * source.batch


def partial_sums(shard: Shard, given: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The records of the pieces whose numbers are given. What cannot be read is a record, too: a
    task that fails is tried four times, and nobody would see why.
    """
    torch.set_num_threads(1)  # a worker has as many tasks at once as cores
    for piece in (number for batch in given for number in batch.column(0).to_pylist()):
        try:
            yield from _records(piece, shard.take(piece))
        except BadInput as error:
            yield _record(REFUSED, piece, str(error).encode())


def merge(kinds: Kinds, table: pa.Table) -> pa.Table:
    """The records of one key as one, merged in the order of their pieces."""
    rows = sorted(table.to_pylist(), key=lambda row: int(row["piece"]))
    key = rows[0]["key"]
    first = rows[0]["piece"]
    return pa.Table.from_batches(
        [_record(key, first, _together(kinds, key, [row["state"] for row in rows]))]
    )


def whole(rows: Iterable[tuple[str, int, bytes]], empty: Accumulation) -> Accumulation:
    """One pass of the records that the tree has left."""
    by_key = dict[str, list[tuple[int, bytes]]]()
    for key, piece, state in rows:
        by_key.setdefault(key, []).append((piece, state))
    if REFUSED in by_key:
        raise BadInput(min(by_key[REFUSED])[1].decode())
    tensors = dict[str, Tensor]()
    for key, parts in by_key.items():
        merged = load(_together(kinds_of(empty), key, [state for _, state in sorted(parts)]))
        tensors |= prefixed(key, merged) if key in kinds_of(empty) else merged
    return empty.restored(tensors)


def kinds_of(accumulated: Accumulation) -> Kinds:
    """What the records of each key are states of; other keys are of a number."""
    kinds: Kinds = {"counts": TokenCounts, "sample": Reservoir}
    kinds |= {f"sites.{site}": SiteStatistics for site in accumulated.sites}
    return kinds | {f"extras.{key}": type(extra) for key, extra in accumulated.extras.items()}


def _records(piece: int, accumulated: Accumulation) -> Iterator[pa.RecordBatch]:
    """A pass's state, by what can be merged apart from the rest."""
    state = accumulated.state()
    for key in dict.fromkeys(name.partition("/")[0] for name in state):
        data = _saved({key: state[key]} if key in state else unprefixed(key, state))
        if len(data) > LONGEST:
            raise BadInput(
                f"The statistics of {key} take {len(data) / 1e9:.1f} GB, and a record of Spark "
                "holds 2."
            )
        yield _record(key, piece, data)


def _record(key: str, piece: int, state: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"key": [key], "piece": [piece], "state": [state]}, schema=RECORDS
    )


def _saved(state: Mapping[str, Tensor]) -> bytes:
    return save({name: tensor.contiguous() for name, tensor in state.items()})


def _together(kinds: Kinds, key: str, states: list[bytes]) -> bytes:
    """The states of one key, merged in order; the first of what could not be read."""
    if key == REFUSED or len(states) == 1:
        return states[0]
    if key not in kinds:  # how many windows were seen, and the number after the last
        numbers = torch.stack([load(state)[key] for state in states])
        return save({key: numbers.sum() if key == "windows" else numbers.max()})
    merged = kinds[key].restore(load(states[0]))
    for state in states[1:]:
        merged.merge(kinds[key].restore(load(state)))
    return _saved(merged.state())


FAN = 4
PIECES = 4  # pieces a core: what a lost worker had done is little, and none waits long for the last


def on_cluster(
    source: StoredSource,
    sites: tuple[str, ...],
    empty: Accumulation,
    first: int,
    settings: Scanning,
) -> Accumulation:
    """The pass over a store from window `first` on, by workers of `settings.master`; `empty` is a
    pass that has seen nothing.

    What it says is what one process says, but for the order of additions. A worker that is lost
    costs what it had done.

    Raises BadInput where Spark cannot be reached or gives up, or a worker cannot read the store.
    """
    assert settings.master is not None
    assert source.where is not None
    where = source.where if "://" in source.where else os.path.abspath(source.where)
    own = settings.but(text=None, tokenizer=None)
    windows = source.whole + (1 if source.rest else 0)
    with spark_session(settings.master) as session:
        context = session.sparkContext
        batches = -(-windows // source.batch) - first // source.batch
        pieces = max(1, min(PIECES * context.defaultParallelism, batches))
        rows = tree(
            session,
            Shard(where, source.name, source.vocabulary, sites, own, first, pieces),
            kinds_of(empty),
        ).collect()
    source.passed()
    return whole(((row["key"], row["piece"], bytes(row["state"])) for row in rows), empty)


def tree(session: Any, shard: Shard, kinds: Kinds) -> Any:
    """The frame of records in which at most `FAN` pieces of each key are left."""

    def merged(
        table: pa.Table,
    ) -> pa.Table:  # Spark looks at a function's arguments: a partial has none to it
        return merge(kinds, table)

    frame = session.range(0, shard.pieces, 1, shard.pieces).mapInArrow(
        partial(partial_sums, shard), SCHEMA
    )
    size = 1
    while shard.pieces > FAN * size:
        size *= FAN
        frame = frame.selectExpr("*", f"piece div {size} as node").groupBy("key", "node")
        frame = frame.applyInArrow(merged, SCHEMA)
    return frame
