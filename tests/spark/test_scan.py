"""A scan of a store by a real cluster of Spark says what one process says, also when a worker is killed on the way."""

from __future__ import annotations

import threading

import headscan
from tests.scanner.test_cluster import OPTIONS, same, store


def test_two_workers_give_one_process_numbers(tmp_path, cluster):
    path = store(tmp_path)
    here = headscan.scan(path, **OPTIONS)
    there = headscan.scan(path, engine="spark", master=cluster.url, **OPTIONS)
    same(here, there)


def test_a_worker_that_is_killed_costs_nothing_but_time(tmp_path, cluster):
    """It is killed when it holds finished pieces, of which others' merges are to come."""
    path = store(tmp_path, 160_000)
    told, killed = [], threading.Event()

    def progress(stage, done, total, unit="tokens"):
        told.append(done)
        if 0 < done < total and not killed.is_set():
            killed.set()
            cluster.kill(-1)

    here = headscan.scan(path, context=20)
    there = headscan.scan(path, context=20, engine="spark", master=cluster.url, progress=progress)
    assert killed.is_set(), told
    assert "lost" in cluster.log or "Removing worker" in cluster.log
    same(here, there)
    cluster.add_worker()
