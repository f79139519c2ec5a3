"""The small models of the inversion's tests, and settings of the verb."""

from headscan.leaks.settings import PrivacySettings
from tests.inversion.conftest import bert, gpt2, ids, llama

__all__ = ["bert", "gpt2", "ids", "llama"]


def settings(**changes):
    """Return the verb's defaults, some of them changed."""
    defaults = {
        "release": "states",
        "sites": None,
        "noise": (0.0, 0.4, 0.8, 1.6),
        "format": None,
        "defence": None,
        "stored": "both",
        "prior": "model",
        "windows": 5,
        "length": 21,
        "candidates": None,
        "draws": 64,
        "seed": 0,
    }
    return PrivacySettings(**defaults | changes)
