"""Under `torchrun`, a verb runs in many processes: join them, and let only the first one speak."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def joined(*, wanted: bool = True) -> Iterator[bool]:
    """Join the process group that `torchrun` describes, if there is one; yields whether this process may print."""
    if not wanted or int(os.environ.get("WORLD_SIZE", "1")) < 2:
        yield True
        return
    import torch
    import torch.distributed as dist

    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        yield dist.get_rank() == 0
    finally:
        dist.destroy_process_group()
