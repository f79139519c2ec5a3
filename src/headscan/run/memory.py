"""How much memory a process may use, and how much of it what is unpacked may take."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_limits = [1 << 62]


def memory() -> tuple[int, int]:
    """Bytes of memory that this process may use at all (its container's, if less than the
    machine's), and those still free.
    """
    page, pages = (
        (os.sysconf(f"SC_{name}") for name in ("PAGE_SIZE", "PHYS_PAGES"))
        if hasattr(os, "sysconf")
        else (1, 1 << 62)
    )
    total = page * pages
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            total = min(total, int(Path(file).read_text()))
    with suppress(OSError, KeyError):  # elsewhere than on Linux all of it counts as free
        known = dict(line.split()[:2] for line in Path("/proc/meminfo").read_text().splitlines())
        resident = page * int(Path("/proc/self/statm").read_text().split()[1])
        pages = min(1024 * int(known["MemAvailable:"]), total - resident) // page
    return total, max(0, min(total, page * pages))


def unpackable() -> int:
    """Bytes to which a file may be unpacked: half of the memory that is free, or what `within`
    allows if that is less.
    """
    return min(memory()[1] // 2, _limits[-1])


@contextmanager
def within(limit: int) -> Iterator[None]:
    """Inside, files are unpacked to no more than so many bytes, or 128 MiB if that is more."""
    _limits.append(max(limit, 1 << 27))
    try:
        yield
    finally:
        _limits.pop()
