"""A real cluster of Spark: a master and two workers on loopback, each a process of its own. Slow:
four Java machines start.

`make spark` installs the extra (half a gigabyte, so that it is not of `dev`) and runs these;
elsewhere they are skipped, loudly.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.spark)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass
class Cluster:
    """The folder of a cluster and its processes, each the first of a group."""

    folder: Path
    home: Path
    port: int = field(default_factory=free_port)
    workers: list[subprocess.Popen] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return (self.folder / "out.txt").read_text()

    def start(self, *command: str) -> subprocess.Popen:
        environment = os.environ | {
            "SPARK_HOME": str(self.home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOG_DIR": str(self.folder),
            "SPARK_WORKER_DIR": str(self.folder),
            "PYSPARK_PYTHON": sys.executable,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")]),
        }
        with (self.folder / "out.txt").open("a") as out:
            return subprocess.Popen(
                [
                    str(self.home / "bin" / "spark-class"),
                    *command,
                    "--webui-port",
                    str(free_port()),
                ],
                env=environment,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def add_worker(self) -> None:
        """One more worker of one core; returns when the master knows it."""
        known = self.log.count("Successfully registered with master")
        kind = "org.apache.spark.deploy.worker.Worker"
        self.workers.append(
            self.start(kind, "--host", "127.0.0.1", "--cores", "1", "--memory", "1g", self.url)
        )
        wait(lambda: self.log.count("Successfully registered with master") > known)

    def kill(self, number: int) -> None:
        """A worker and all that it has started, as a machine that is switched off."""
        os.killpg(self.workers[number].pid, signal.SIGKILL)
        self.workers[number].wait(30)


def wait(until, seconds=120.0) -> None:
    end = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < end, "the cluster does not come up"
        time.sleep(0.2)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """A master with two workers of one core each."""
    pyspark = pytest.importorskip(
        "pyspark", reason="pyspark is not installed: the Spark engines are NOT tested (make spark)"
    )
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17: the Spark engines are NOT tested")
    started = Cluster(tmp_path_factory.mktemp("spark"), Path(pyspark.__file__).parent)
    master = started.start(
        "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(started.port)
    )
    os.environ["PYSPARK_PYTHON"] = sys.executable

    def answers() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", started.port)) == 0

    try:
        wait(answers)
        for _ in range(2):
            started.add_worker()
        yield started
    finally:
        for process in [*started.workers, master]:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(30)
