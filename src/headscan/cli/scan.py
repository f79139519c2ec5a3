"""`headscan scan`: the shape of models' representations on a text."""

from __future__ import annotations

from typing import Any

import headscan
from headscan.cli.command import Command

__all__ = ["COMMAND"]

SOURCE_HELP = (
    "A model (Hugging Face id, local folder, .gguf file, embedded specimen), which reads --text; or stored states: a file, "
    "folder or URL (.npy, .npz, .safetensors, .parquet, a datasets folder, ...)."
)


def _dry_run(options: dict[str, Any]) -> bool:
    """Print what the scan would take, where that alone is asked for; nothing is written."""
    if not options.pop("dry_run", None):
        return False
    for one in headscan.estimate_scan(options.pop("subject"), **options):
        print(one)
    return True


COMMAND = Command(
    lambda: headscan.scan, subject="SOURCE...", subject_help=SOURCE_HELP, distributed=True, before=_dry_run,
    extra={"dry_run": (bool, "Print what it would take in memory and time, and stop: no weights are read, nothing is written.")},
)  # fmt: skip
