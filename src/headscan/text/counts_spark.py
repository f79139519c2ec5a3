"""The same count on a Spark cluster, for a corpus that outgrows one machine (extra `spark`; Java 17 or 21)."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pyarrow as pa
import pyarrow.parquet as pq

from headscan.errors import BadInput
from headscan.text.counts_duckdb import batches, csr_of
from headscan.text.counts_keys import Keys
from headscan.text.counts_spool import Spool
from headscan.text.counts_store import CountStore

__all__ = ["count_spark"]

Progress = Callable[[str, int, int | None], None]
_CONNECT_SECONDS = 10.0


def count_spark(
    spool: Spool, keys: Keys, store: CountStore, *, master: str | None, min_count: int, progress: Progress | None
) -> None:
    """Group by all token columns on the cluster `master` (spark://host:port, or local[2] for threads of this process).

    Positions are written as Parquet under the store's folder, which all workers must see (a shared file system); each
    worker groups its share, shuffles, and writes sorted Parquet back. Raises `BadInput` if the extra is not
    installed, no folder is given, or no master answers within ten seconds.
    """
    if master is None:
        raise BadInput('The engine "spark" needs the URL of a master, such as spark://host:7077 or local[2].')
    if store.folder is None:
        raise BadInput('The engine "spark" needs a folder that every worker sees.')
    _check_master(master)
    if not store.needs(0):
        return
    work = (store.folder / "work" / "spark").resolve()
    shutil.rmtree(work, ignore_errors=True)
    (work / "grams").mkdir(parents=True)
    for number, batch in enumerate(batches(spool, keys)):
        pq.write_table(pa.Table.from_batches([batch]), work / "grams" / f"{number:06d}.parquet")
        if progress is not None:
            progress("writing", min((number + 1) << 22, len(spool.tokens)), len(spool.tokens))
    session = _session(master)
    try:
        _group(session, work, keys, min_count)
    except Exception as error:
        raise BadInput(f"The Spark cluster {master} gave up: {str(error).splitlines()[0][:200]}") from error
    finally:
        session.stop()
    answer = pq.read_table(work / "counted")
    answer = answer.sort_by([(f"t{place}", "ascending") for place in range(keys.length)])
    store.add(0, *csr_of(answer, keys.order))


def _group(session: Any, work: Path, keys: Keys, min_count: int) -> None:
    names = [f"t{place}" for place in range(keys.length)]
    frame = session.read.parquet(str(work / "grams")).groupBy(*names).count().withColumnRenamed("count", "n")
    if min_count > 1:
        from pyspark.sql import functions

        context = names[: keys.order]
        seen = frame.groupBy(*context).agg(functions.sum("n").alias("seen")).where(f"seen >= {min_count}")
        frame = frame.join(seen.drop("seen"), context)
    frame.write.mode("overwrite").parquet(str(work / "counted"))


def _check_master(master: str) -> None:
    """Spark itself would try for minutes and leave a traceback of Java; a dead port is found at once."""
    if master.startswith("local"):
        return
    address = urlparse(master)
    if address.scheme != "spark" or not address.hostname or not address.port:
        raise BadInput(f'"{master}" is no Spark master; write spark://host:port or local[2].')
    try:
        socket.create_connection((address.hostname, address.port), timeout=_CONNECT_SECONDS).close()
    except OSError:
        raise BadInput(f"No Spark master answers at {master}.") from None


def _session(master: str) -> Any:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise BadInput('The engine "spark" needs the package pyspark: pip install "headscan[spark]".') from None
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1" if "127.0.0.1" in master or "local" in master else "")
    if not os.environ["SPARK_LOCAL_IP"]:
        del os.environ["SPARK_LOCAL_IP"]
    try:
        builder = SparkSession.builder.master(master).appName("headscan").config("spark.ui.enabled", "false")
        builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.sql.shuffle.partitions", "16")
        session = builder.getOrCreate()
    except Exception as error:
        raise BadInput(f"Spark could not be started for {master}: {str(error).splitlines()[0][:200]}") from error
    session.sparkContext.setLogLevel("ERROR")
    return session
