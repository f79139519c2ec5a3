"""Training says nothing of its progress in tests."""

from transformers.utils import logging

logging.disable_progress_bar()
