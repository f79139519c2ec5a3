"""The pass over stored states on a Spark cluster: partial statistics by mapInArrow, merged along a tree.

Each level of the tree merges `FAN` records of each key, so that no worker holds more than those of one site, and the sites
are merged side by side.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from safetensors.torch import save

from headscan.geometry.portion import SCHEMA, Portion, merge, partial_sums, whole
from headscan.geometry.settings import Scanning
from headscan.geometry.sweep import Sweep
from headscan.run import Progress
from headscan.run.spark import spark_session
from headscan.states import StoredSource

__all__ = ["on_cluster", "tree"]

FAN = 4
PIECES = 4  # pieces a core: what a lost worker had done is little, and none waits long for the last
SECONDS = 0.5  # between two looks at how far the cluster is


def on_cluster(source: StoredSource, sites: tuple[str, ...], empty: Sweep, first: int, settings: Scanning,
               progress: Progress) -> Sweep:  # fmt: skip
    """The pass over a store from window `first` on, by the workers of `settings.master`.

    Args:
        empty: a pass that has seen nothing, with the derivatives of its intervals (`learn`).
        progress: told how many vectors the pieces that are done had.

    What it says is what one process says, but for the order of additions. A worker that is lost costs what it had done.

    Raises BadInput where Spark cannot be reached or gives up, or a worker cannot read the store.
    """
    assert settings.master is not None
    assert source.where is not None
    where = source.where if "://" in source.where else os.path.abspath(source.where)
    own = settings.but(progress=None, out=None, resume=False, text=None, tokenizer=None)
    windows = source.whole + (1 if source.rest else 0)
    with spark_session(settings.master) as session:
        context = session.sparkContext
        batches = -(-windows // source.batch) - first // source.batch
        pieces = max(1, min(PIECES * context.defaultParallelism, batches))
        portion = Portion(
            where, source.name, source.vocabulary, sites, own, first, pieces,
            context.broadcast(save({name: tensor.contiguous() for name, tensor in empty.state().items()})),
        )  # fmt: skip

        def told(done: int) -> None:
            left = max(0, (source.tokens or 0) - first * source.context)
            progress(source.name, first * source.context + left * done // pieces, source.tokens, "tokens")

        rows = _collected(session, tree(session, portion), pieces, told)
    source.passed()
    return whole((row["key"], row["piece"], bytes(row["state"])) for row in rows)


def tree(session: Any, portion: Portion) -> Any:
    """The frame of records in which at most `FAN` pieces of each key are left."""
    frame = session.range(0, portion.pieces, 1, portion.pieces).mapInArrow(partial(partial_sums, portion), SCHEMA)
    size = 1
    while portion.pieces > FAN * size:
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
