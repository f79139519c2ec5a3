"""The made-up language of the training tests, for the laboratory's too."""

from tests.training.conftest import story, story_file

__all__ = ["story", "story_file"]
