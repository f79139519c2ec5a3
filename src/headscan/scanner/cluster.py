"""The pass over stored states on a Spark cluster: partial statistics by mapInArrow, merged along a tree.

Each level of the tree merges `FAN` records of each key, so that no worker holds more than those of one site, and the sites
are merged side by side.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from typing import Any, Protocol

import pyarrow as pa
import torch
from safetensors.torch import load, save
from torch import Tensor

from headscan.run import BadInput, Progress
from headscan.run.spark import spark_session
from headscan.scanner.accumulate import Accumulation, ProbeRunner, accumulate
from headscan.scanner.settings import Scanning, choose
from headscan.states import StoredSource, read_states
from headscan.statistics import SiteStatistics, TokenCounts
from headscan.statistics.accumulator import Accumulator, prefixed, unprefixed
from headscan.statistics.reservoir import Reservoir

# ---- A piece of stored states on a worker of a cluster: its statistics as records, and records merged.
#
# A record is the statistics of one site (or the counts, the sample, a probe's) of one piece of the store.

REFUSED, SEEN = "refused", "windows"
LONGEST = 2**31 - 2**20  # bytes that a record of Spark can hold
RECORDS = pa.schema([("key", pa.string()), ("piece", pa.int64()), ("state", pa.binary())])
SCHEMA = "key string, piece long, state binary"


class Sent(Protocol):
    """A value that every worker has: a broadcast variable of Spark."""

    @property
    def value(self) -> bytes:
        """The bytes."""


@dataclass(frozen=True)
class Shard:
    """What a worker must know to take a piece of a store.

    Attributes:
        where: path or URL of the store, which all workers see. name: of the source, in messages.
        vocabulary: as the driver found it, so that no worker reads all token ids for it.
        sites, settings: of the scan. first: the window at which it begins. pieces: how many there are.
        empty: the state of a pass that has seen nothing but the pilot of its intervals.
    """

    where: str
    name: str
    vocabulary: int
    sites: tuple[str, ...]
    settings: Scanning
    first: int
    pieces: int
    empty: Sent

    def source(self) -> StoredSource:
        """The store, opened."""
        settings = self.settings
        vectors = read_states(self.where, None if settings.field == "text" else settings.field)
        if vectors is None:
            raise BadInput(f"A worker of the cluster sees no states at {self.where}: it must be where all see it.")
        vectors = replace(vectors, name=self.name, vocabulary=self.vocabulary or None)
        return StoredSource(
            vectors, context=settings.context, batch=settings.batch, max_tokens=settings.max_tokens, where=self.where
        )

    def take(self, piece: int) -> Accumulation:
        """The pass over one piece: consecutive batches."""
        source, settings = self.source(), self.settings
        begin, end = bounds(source, self.first, piece, self.pieces)
        accumulated = Accumulation.restore(load(self.empty.value))
        runner = ProbeRunner(choose(settings.measures)[1], source, self.sites, settings, announce=lambda _: None)
        batches = takewhile(lambda batch: int(batch.indices[0]) < end, source.batches(start=begin))
        watch, passing = runner.watch(accumulated), runner.passing()
        accumulate(source, batches, accumulated, watch=watch, passing=passing, skip_first=settings.skip_first)
        return accumulated


def bounds(source: StoredSource, first: int, piece: int, pieces: int) -> tuple[int, int]:
    """The first window of a piece, and that of the next; pieces begin with batches."""
    windows = source.whole + (1 if source.rest else 0)
    start, many = first // source.batch, -(-windows // source.batch)
    here, there = (start + (many - start) * number // pieces for number in (piece, piece + 1))
    return max(first, here * source.batch), windows if piece + 1 == pieces else there * source.batch


def partial_sums(shard: Shard, given: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The records of the pieces whose numbers are given. What cannot be read is a record, too: a task that fails is tried
    four times, and nobody would see why."""
    torch.set_num_threads(1)  # a worker has as many tasks at once as cores
    for piece in (number for batch in given for number in batch.column(0).to_pylist()):
        try:
            accumulated = shard.take(piece)
            yield from _records(piece, _parts(accumulated))
        except BadInput as error:
            yield _record(REFUSED, piece, str(error).encode())


def merge(table: pa.Table) -> pa.Table:
    """The records of one key as one, merged in the order of their pieces."""
    rows = sorted(table.to_pylist(), key=lambda row: int(row["piece"]))
    key, first = rows[0]["key"], rows[0]["piece"]
    state = rows[0]["state"] if key == REFUSED or len(rows) == 1 else _together(key, [row["state"] for row in rows])
    return pa.Table.from_batches([_record(key, first, state)])


def whole(rows: Iterable[tuple[str, int, bytes]]) -> Accumulation:
    """One pass of the records that the tree has left."""
    by_key = dict[str, list[tuple[int, bytes]]]()
    for key, piece, state in rows:
        by_key.setdefault(key, []).append((piece, state))
    if REFUSED in by_key:
        raise BadInput(min(by_key[REFUSED])[1].decode())
    found = dict[str, Tensor]()
    for key, parts in by_key.items():
        merged = load(_together(key, [one for _, one in sorted(parts)]))
        found |= merged if key == SEEN else prefixed(key, merged)
    return Accumulation.restore(found)


def _parts(accumulated: Accumulation) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Its state, by what can be merged apart from the rest."""
    state = accumulated.state()
    yield SEEN, {SEEN: state.pop(SEEN)}
    for key in dict.fromkeys(name.partition("/")[0] for name in state):
        yield key, unprefixed(key, state)


def _records(piece: int, parts: Iterable[tuple[str, dict[str, Tensor]]]) -> Iterator[pa.RecordBatch]:
    for key, state in parts:
        data = save({name: tensor.contiguous() for name, tensor in state.items()})
        if len(data) > LONGEST:
            raise BadInput(f"The statistics of {key} take {len(data) / 1e9:.1f} GB, and a record of Spark holds 2.")
        yield _record(key, piece, data)


def _record(key: str, piece: int, state: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"key": [key], "piece": [piece], "state": [state]}, schema=RECORDS)


def _together(key: str, states: list[bytes]) -> bytes:
    """The states of one key, merged in order."""
    if key == SEEN:
        counts = [load(one)[SEEN] for one in states]
        windows = sum(int(one[0]) for one in counts)
        return save({SEEN: torch.tensor([windows, max(int(one[1]) for one in counts)])})
    kind = _kind(key)
    merged = kind.restore(load(states[0]))
    for one in states[1:]:
        merged.merge(kind.restore(load(one)))
    return save({name: tensor.contiguous() for name, tensor in merged.state().items()})


def _kind(key: str) -> type[Accumulator]:
    """What a record of this key is the state of."""
    kinds: dict[str, type[Accumulator]] = {
        "site": SiteStatistics, "counts": TokenCounts, "sample": Reservoir,
    }  # fmt: skip
    first, _, rest = key.partition(".")
    return Accumulator.kinds[rest.partition(".")[0]] if first == "extra" else kinds[first]


FAN = 4
PIECES = 4  # pieces a core: what a lost worker had done is little, and none waits long for the last
SECONDS = 0.5  # between two looks at how far the cluster is


def on_cluster(source: StoredSource, sites: tuple[str, ...], empty: Accumulation, first: int, settings: Scanning,
               progress: Progress) -> Accumulation:  # fmt: skip
    """The pass over a store from window `first` on, by the workers of `settings.master`.

    Args:
        empty: a pass that has seen nothing, with the derivatives of its intervals (`calibrate`).
        progress: told how many vectors the pieces that are done had.

    What it says is what one process says, but for the order of additions. A worker that is lost costs what it had done.

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
        shard = Shard(
            where, source.name, source.vocabulary, sites, own, first, pieces,
            context.broadcast(save({name: tensor.contiguous() for name, tensor in empty.state().items()})),
        )  # fmt: skip

        def told(done: int) -> None:
            left = max(0, (source.tokens or 0) - first * source.context)
            progress(source.name, first * source.context + left * done // pieces, source.tokens, "tokens")

        rows = _collected(session, tree(session, shard), pieces, told)
    source.passed()
    return whole((row["key"], row["piece"], bytes(row["state"])) for row in rows)


def tree(session: Any, shard: Shard) -> Any:
    """The frame of records in which at most `FAN` pieces of each key are left."""
    frame = session.range(0, shard.pieces, 1, shard.pieces).mapInArrow(partial(partial_sums, shard), SCHEMA)
    size = 1
    while shard.pieces > FAN * size:
        size *= FAN
        frame = frame.selectExpr("*", f"piece div {size} as node").groupBy("key", "node")
        frame = frame.applyInArrow(merge, SCHEMA)
    return frame


def _collected(session: Any, frame: Any, pieces: int, told: Callable[[int], None]) -> list[Any]:
    """The rows, collected while somebody watches."""
    context = session.sparkContext
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(frame.collect)
        done = 0
        try:
            while not found.done():
                done = max(done, _done(context.statusTracker(), pieces))
                told(done)
                time.sleep(SECONDS)
        except BaseException:
            context.cancelAllJobs()
            raise
        return list(found.result())


def _done(tracker: Any, pieces: int) -> int:
    """How many pieces have been taken: tasks that are done of the first stage."""
    stages = [info for info in map(tracker.getStageInfo, tracker.getActiveStageIds()) if info is not None]
    return min((info.numCompletedTasks for info in stages if info.numTasks == pieces), default=0)
