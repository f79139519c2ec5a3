"""A scan of a store by a real cluster of Spark says what one process says, also when a worker is
killed on the way.
"""

import threading

import headscan
from tests.scanner.test_cluster import OPTIONS, same, store
from tests.spark.conftest import wait


def test_two_workers_give_one_process_numbers(tmp_path, cluster):
    path = store(tmp_path)
    local = headscan.scan(path, **OPTIONS)
    distributed = headscan.scan(path, engine="spark", master=cluster.url, **OPTIONS)
    same(local, distributed)


def test_a_worker_that_is_killed_costs_nothing_but_time(tmp_path, cluster):
    """It is killed when the workers hold finished pieces, of which merges are to come."""
    path = store(tmp_path, 160_000)
    apps_before = set(cluster.folder.glob("app-*"))
    killed = threading.Event()

    def finished() -> bool:
        logs = [
            log
            for app in set(cluster.folder.glob("app-*")) - apps_before
            for log in app.glob("*/stderr")
        ]
        return any("Finished task" in log.read_text() for log in logs)

    def kill() -> None:
        wait(finished)
        cluster.kill(-1)
        killed.set()

    local = headscan.scan(path, context=20)
    threading.Thread(target=kill, daemon=True).start()
    distributed = headscan.scan(path, context=20, engine="spark", master=cluster.url)
    assert killed.is_set()
    assert "lost" in cluster.log or "Removing worker" in cluster.log
    same(local, distributed)
    cluster.add_worker()
