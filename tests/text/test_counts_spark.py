"""The same counts from a real Spark cluster: a master and two workers on loopback. Slow: it starts three Java machines."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from headscan.text.counts import count
from headscan.text.settings import Counting
from tests.reference.counts import as_dictionary

pyspark = pytest.importorskip("pyspark")

pytestmark = [
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java 17; the Spark engine is NOT tested"),
    pytest.mark.skipif("HEADSCAN_SLOW" not in os.environ, reason="slow: set HEADSCAN_SLOW=1 to run Spark"),
]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """spark://127.0.0.1:port of a master with two workers of one core each."""
    home = Path(pyspark.__file__).parent
    logs = tmp_path_factory.mktemp("spark")
    port = free_port()
    environment = os.environ | {
        "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOG_DIR": str(logs), "SPARK_WORKER_DIR": str(logs),
        "PYSPARK_PYTHON": sys.executable,
    }  # fmt: skip
    start = [str(home / "bin" / "spark-class")]
    url = f"spark://127.0.0.1:{port}"
    master = [*start, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port)]
    worker = [*start, "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "1g"]
    processes = []
    try:
        with (logs / "out.txt").open("w") as out:
            processes.append(
                subprocess.Popen([*master, "--webui-port", str(free_port())], env=environment, stdout=out, stderr=out)
            )
            for _ in range(240):
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except OSError:
                    time.sleep(0.5)
            for _ in range(2):
                command = [*worker, "--webui-port", str(free_port()), url]
                processes.append(subprocess.Popen(command, env=environment, stdout=out, stderr=out))
            for _ in range(240):
                if (logs / "out.txt").read_text().count("Successfully registered with master") == 2:
                    break
                time.sleep(0.5)
        yield url
    finally:
        for process in processes[::-1]:
            process.terminate()
        for process in processes:
            process.wait(30)


@pytest.mark.parametrize("min_count", [1, 3])
def test_a_cluster_of_two_workers_gives_identical_counts(tmp_path, cluster, min_count):
    rng = np.random.default_rng(0)
    texts = [np.minimum(500 ** rng.random(n) - 1, 499).astype(np.int64) for n in (40_000, 3, 2, 1, 15_000)]
    here = count(texts, 500, Counting(order=3, min_count=min_count))
    there = count(texts, 500, Counting(order=3, engine="spark", master=cluster, min_count=min_count), folder=tmp_path)
    assert as_dictionary(there) == as_dictionary(here)
    for name in ("contexts", "indptr", "indices", "counts"):
        assert np.array_equal(getattr(there, name), getattr(here, name)), name
