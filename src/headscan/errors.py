"""The one exception that means: the input is at fault, not headscan."""

from __future__ import annotations

__all__ = ["BadInput"]


class BadInput(ValueError):
    """What the user gave cannot be used. The message is one clear sentence that says what and how to mend it.

    The command line prints the message alone on standard error and exits with status 2; every other exception is a
    fault of headscan's own (status 1).

    >>> str(BadInput("The text is empty."))
    'The text is empty.'
    """
