"""The small models of the inversion's tests."""

from tests.inversion.conftest import bert, gpt2, ids, llama

__all__ = ["bert", "gpt2", "ids", "llama"]
