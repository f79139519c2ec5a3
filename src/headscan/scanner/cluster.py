"""The pass over stored states on a Spark cluster: partial statistics by mapInArrow, merged along a
tree.

Each level of the tree merges `FAN` records of each key, so that no worker holds more than those of
one site, and the sites are merged side by side.

A record is the statistics of one site (or the counts, the sample, the accumulator of a probe) of
one piece of the store.
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

from headscan.measures.probe import PROBES
from headscan.run import BadInput
from headscan.run.spark import spark_session
from headscan.scanner.accumulate import Accumulation, accumulate
from headscan.scanner.probe_runner import PassOptions, ProbeRunner
from headscan.states import StoredSource, read_states
from headscan.states.plan import ReadingPlan
from headscan.statistics import Reservoir, SiteStatistics, TokenCounts
from headscan.statistics.accumulator import Accumulator, prefixed, unprefixed

REFUSED = "refused"
"""The key of a record that is the message of a piece which cannot be read."""

LARGEST_RECORD = 2**31 - 2**20
"""Bytes that a record of Spark can hold."""

RECORDS = pa.schema([("key", pa.string()), ("piece", pa.int64()), ("state", pa.binary())])
SCHEMA = "key string, piece long, state binary"

FAN = 4
"""Records that are merged at once."""

PIECES_A_CORE = 4
"""A lost worker has done little of the work, and the last one is waited for briefly."""

Kinds: TypeAlias = dict[str, type[Accumulator]]
"""The accumulators whose states are in the records of each key."""


@dataclass(frozen=True, kw_only=True)
class Shard:
    """The description of a store that a worker needs to read a piece of it.

    Attributes:
        where: path or URL.
        name: of the source.
        vocabulary: of the source, so that no worker reads all token ids to find it.
        field: column of a table.
        context, batch, max_tokens: how the store is cut into windows and batches.
        sites, probes, options: of the scan.
        first: the window at which it begins.
        pieces: how many pieces there are.
    """

    where: str
    name: str
    vocabulary: int
    field: str | None
    context: int | None
    batch: int | None
    max_tokens: int | None
    sites: tuple[str, ...]
    probes: tuple[str, ...]
    options: PassOptions
    first: int
    pieces: int

    def source(self) -> StoredSource:
        """Return the store, opened by this worker."""
        vectors = read_states(self.where, self.field)
        if vectors is None:
            raise BadInput(
                f"A worker of the cluster sees no states at {self.where}: it must be where all "
                "see it."
            )
        vectors = replace(vectors, name=self.name, vocabulary=self.vocabulary or None)
        return StoredSource(
            vectors,
            context=self.context,
            batch=self.batch,
            max_tokens=self.max_tokens,
            where=self.where,
        )

    def take(self, piece: int) -> Accumulation:
        """Return the pass over one piece: consecutive batches."""
        source = self.source()
        begin, end = bounds(source, self.first, piece, self.pieces)
        probes = [PROBES[name]() for name in self.probes]
        runner = ProbeRunner(probes, source, self.sites, self.options, announce=_say_nothing)
        accumulated = runner.empty_pass()
        batches = takewhile(lambda batch: int(batch.indices[0]) < end, source.batches(start=begin))
        accumulate(
            source,
            batches,
            accumulated,
            watch=runner.watch(accumulated),
            passing=runner.passing(),
            skip_first=self.options.skip_first,
        )
        return accumulated


def _say_nothing(_: str) -> None:
    """Announce nothing: the process that started the cluster does."""


def bounds(source: StoredSource, first: int, piece: int, pieces: int) -> tuple[int, int]:
    """Return the first window of a piece and of the next one; pieces begin with batches."""
    windows = _window_count(source)
    first_batch = first // source.batch
    batches = -(-windows // source.batch) - first_batch
    begin = first_batch + batches * piece // pieces
    end = first_batch + batches * (piece + 1) // pieces
    last_window = windows if piece + 1 == pieces else end * source.batch
    return max(first, begin * source.batch), last_window


def _window_count(source: StoredSource) -> int:
    """Return the windows of a store, a shorter one at its end included."""
    return source.whole + (1 if source.rest else 0)


def partial_sums(shard: Shard, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the records of the pieces whose numbers are in the batches.

    The refusal of a piece is a record, too: a task that failed would be tried four times, and its
    message would be lost.
    """
    torch.set_num_threads(1)  # a worker has as many tasks at once as cores
    for batch in batches:
        for piece in batch.column(0).to_pylist():
            try:
                yield from _records(piece, shard.take(piece))
            except BadInput as error:
                yield _record(REFUSED, piece, str(error).encode())


def merge(kinds: Kinds, table: pa.Table) -> pa.Table:
    """Merge the records of one key, in the order of their pieces, into one."""
    rows = sorted(table.to_pylist(), key=lambda row: int(row["piece"]))
    key = rows[0]["key"]
    state = _merged_state(kinds, key, [row["state"] for row in rows])
    return pa.Table.from_batches([_record(key, rows[0]["piece"], state)])


def whole(rows: Iterable[tuple[str, int, bytes]], empty: Accumulation) -> Accumulation:
    """Return one pass from the records that the tree has left."""
    by_key: dict[str, list[tuple[int, bytes]]] = {}
    for key, piece, state in rows:
        by_key.setdefault(key, []).append((piece, state))
    if REFUSED in by_key:
        _, message = min(by_key[REFUSED])
        raise BadInput(message.decode())

    kinds = kinds_of(empty)
    tensors: dict[str, Tensor] = {}
    for key, pieces in by_key.items():
        states = [state for _, state in sorted(pieces)]
        merged = load(_merged_state(kinds, key, states))
        tensors |= prefixed(key, merged) if key in kinds else merged
    return empty.restored(tensors)


def kinds_of(accumulated: Accumulation) -> Kinds:
    """Return the accumulators of a pass by the keys of their records; other keys are numbers."""
    kinds: Kinds = {"counts": TokenCounts, "sample": Reservoir}
    for site in accumulated.sites:
        kinds[f"sites.{site}"] = SiteStatistics
    for key, extra in accumulated.extras.items():
        kinds[f"extras.{key}"] = type(extra)
    return kinds


def _records(piece: int, accumulated: Accumulation) -> Iterator[pa.RecordBatch]:
    """Yield the state of a pass in records that can be merged independently."""
    state = accumulated.state()
    for key in dict.fromkeys(name.partition("/")[0] for name in state):
        part = {key: state[key]} if key in state else unprefixed(key, state)
        data = _saved(part)
        if len(data) > LARGEST_RECORD:
            raise BadInput(
                f"The statistics of {key} take {len(data) / 1e9:.1f} GB, and a record of Spark "
                "holds 2."
            )
        yield _record(key, piece, data)


def _record(key: str, piece: int, state: bytes) -> pa.RecordBatch:
    columns = {"key": [key], "piece": [piece], "state": [state]}
    return pa.RecordBatch.from_pydict(columns, schema=RECORDS)


def _saved(state: Mapping[str, Tensor]) -> bytes:
    return save({name: tensor.contiguous() for name, tensor in state.items()})


def _merged_state(kinds: Kinds, key: str, states: list[bytes]) -> bytes:
    """Return the states of one key merged in order; of refusals the first."""
    if key == REFUSED or len(states) == 1:
        return states[0]
    if key not in kinds:  # the number of windows, or the number after the last window
        numbers = torch.stack([load(state)[key] for state in states])
        return save({key: numbers.sum() if key == "windows" else numbers.max()})
    merged = kinds[key].restore(load(states[0]))
    for state in states[1:]:
        merged.merge(kinds[key].restore(load(state)))
    return _saved(merged.state())


def on_cluster(
    source: StoredSource, plan: ReadingPlan, runner: ProbeRunner, first: int, master: str
) -> Accumulation:
    """Return the pass over a store from window `first` on, by the workers of a Spark cluster.

    Its numbers are those of one process, but for the order of additions. When a worker is lost, the
    pieces that it had finished are read again.

    Raises BadInput where Spark cannot be reached or gives up, or a worker cannot read the store.
    """
    assert source.where is not None
    where = source.where if "://" in source.where else os.path.abspath(source.where)
    empty = runner.empty_pass()
    with spark_session(master) as session:
        cores = session.sparkContext.defaultParallelism
        batches = -(-_window_count(source) // source.batch) - first // source.batch
        shard = Shard(
            where=where,
            name=source.name,
            vocabulary=source.vocabulary,
            field=plan.reading.field,
            context=plan.windowing.context,
            batch=plan.windowing.batch,
            max_tokens=plan.reading.max_tokens,
            sites=runner.sites,
            probes=tuple(probe.name for probe in runner.probes),
            options=runner.options,
            first=first,
            pieces=max(1, min(PIECES_A_CORE * cores, batches)),
        )
        rows = tree(session, shard, kinds_of(empty)).collect()
    source.passed()
    return whole(((row["key"], row["piece"], bytes(row["state"])) for row in rows), empty)


def tree(session: Any, shard: Shard, kinds: Kinds) -> Any:
    """Return the frame of records in which at most `FAN` pieces of each key are left."""

    # Spark inspects the arguments of this function, so it cannot be a partial of `merge`.
    def merged(table: pa.Table) -> pa.Table:
        return merge(kinds, table)

    pieces = session.range(0, shard.pieces, 1, shard.pieces)
    frame = pieces.mapInArrow(partial(partial_sums, shard), SCHEMA)
    size = 1
    while shard.pieces > FAN * size:
        size *= FAN
        frame = frame.selectExpr("*", f"piece div {size} as node").groupBy("key", "node")
        frame = frame.applyInArrow(merged, SCHEMA)
    return frame
