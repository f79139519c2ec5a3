"""A session on a Spark cluster, for what outgrows one machine (extra `spark`; Java 17 or 21)."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlparse

from headscan.run.errors import BadInput
from headscan.run.settings import Option

MASTER = Option(
    "URL of the Spark master, such as spark://host:7077 or local[2].",
    identity=False,
    group="Advanced",
)
"""What every verb with an engine `spark` says of the cluster."""


def check_engine(engine: str, master: str | None) -> None:
    """Spark has a master, and nothing else has one."""
    if engine == "spark" and master is None:
        raise BadInput(
            'The engine "spark" needs the URL of a master, such as spark://host:7077 or local[2].'
        )
    if engine != "spark" and master is not None:
        raise BadInput(f"--master is not used by the engine {engine}; it belongs to spark.")


@contextmanager
def spark_session(master: str) -> Iterator[Any]:
    """A `SparkSession` on the cluster `master`, stopped at the end. Raises `BadInput` if the extra
    is not installed, if no master answers within ten seconds, or if the cluster gives up.
    """
    check_master(master)
    session = _session(master)
    try:
        yield session
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(
            f"The Spark cluster {master} gave up: {str(error).splitlines()[0][:200]}"
        ) from error
    finally:
        session.stop()


def check_master(master: str) -> None:
    """Raise `BadInput` where no master answers: Spark itself would try for minutes and leave a
    traceback of Java.
    """
    if master.startswith("local"):
        return
    address = urlparse(master)
    if address.scheme != "spark" or not address.hostname or not address.port:
        raise BadInput(f'"{master}" is no Spark master; write spark://host:port or local[2].')
    try:
        socket.create_connection((address.hostname, address.port), timeout=10.0).close()
    except OSError:
        raise BadInput(f"No Spark master answers at {master}.") from None


def _session(master: str) -> Any:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise BadInput(
            'The engine "spark" needs the package pyspark: pip install "headscan[spark]".'
        ) from None
    if "127.0.0.1" in master or "local" in master:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    try:
        builder = (
            SparkSession.builder.master(master)
            .appName("headscan")
            .config("spark.ui.enabled", "false")
        )
        builder = builder.config("spark.ui.showConsoleProgress", "false").config(
            "spark.sql.shuffle.partitions", "16"
        )
        # A record of a scan is the statistics of a site: megabytes each, gigabytes in all.
        session = builder.config("spark.driver.maxResultSize", "0").getOrCreate()
    except Exception as error:
        raise BadInput(
            f"Spark could not be started for {master}: {str(error).splitlines()[0][:200]}"
        ) from error
    session.sparkContext.setLogLevel("ERROR")
    return session
