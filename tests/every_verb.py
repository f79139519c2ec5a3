"""The short calls of every verb, and how far two results are apart, from benchmarks/_verbs.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from _verbs import CALLS, agreement, timed_document

sys.path.pop(0)

__all__ = ["CALLS", "agreement", "timed_document"]
