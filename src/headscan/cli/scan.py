"""`headscan scan`: the shape of models' representations on a text."""

from __future__ import annotations

import headscan
from headscan.cli.command import Command

SOURCE_HELP = (
    "A model (Hugging Face id, local folder, .gguf file, embedded specimen), which reads --text; or stored states: a file, "
    "folder or URL (.npy, .npz, .safetensors, .parquet, a datasets folder, ...)."
)


COMMAND = Command(
    lambda: headscan.scan, subject="SOURCE...", subject_help=SOURCE_HELP, distributed=True,
    estimate=lambda: headscan.estimate_scan,
)  # fmt: skip
