"""10 GiB of zeros in a packed file of 328 kB: `scan` and `ntp` refuse it in a sentence and hold
less than 600 MB.

python -m tests.attack.zeros
"""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import zstandard

LIMIT = 600e6
LINES = {
    "scan": ["scan", "gpt-vanilla-early", "--max-tokens", "20000", "--text"],
    "ntp": ["ntp", "--tokenizer", "gpt-vanilla-early", "--order", "1"],
}


def main() -> int:
    """Print what each verb said and took; 1 where one of them did not refuse, or took too much."""
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        bomb = Path(folder) / "zeros.txt.zst"
        with zstandard.open(bomb, "wb") as file:
            for _ in range(640):
                file.write(bytes(1 << 24))
        for verb, line in LINES.items():
            began = time.monotonic()
            arguments = [
                sys.executable,
                "-m",
                "headscan",
                *line,
                str(bomb),
                "--out",
                f"{folder}/{verb}",
            ]
            done = subprocess.run(arguments, capture_output=True, text=True)
            # of the largest child up to now
            peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
            sentences = done.stderr.strip().splitlines()
            wrong += done.returncode != 2 or len(sentences) != 1 or peak > LIMIT
            print(
                f"{verb}: exit {done.returncode}, {time.monotonic() - began:.1f} s, "
                f"{peak / 1e6:.0f} MB: {sentences[-1:]}"
            )
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
