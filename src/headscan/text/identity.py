"""The identity of a text: its content, hashed as it is read, and compared when it is read again."""

import hashlib
from dataclasses import dataclass
from typing import Any, NamedTuple

from headscan.run.errors import BadInput


@dataclass(frozen=True)
class TextMark:
    """The position up to which a text was read, and the SHA-256 of its content up to there."""

    documents: int
    characters: int
    sha256: str


class _Position(NamedTuple):
    """The position up to which the text was read, and the running hash up to there."""

    documents: int
    characters: int
    digest: Any  # hashlib's type has no public name


class TextIdentity:
    """The SHA-256 of a text as it is read: its characters as UTF-8, the byte 0xFF (never in UTF-8)
    between two documents.

    So it is the file's own SHA-256 when the text is one .txt read whole as one document (without
    byte order mark). With `expected`, the mark of an earlier reading, the text is compared when the
    reading comes to that position again, however it is cut into pieces: a text that changed before
    the position is refused.
    """

    def __init__(self, name: str, expected: TextMark | None = None) -> None:
        self.name = name
        self._position = _Position(0, 0, hashlib.sha256())
        self._blank = True
        # Where nothing was read, nothing can have changed.
        self._expected = expected if expected and expected.documents else None

    def add(self, text: str, *, begins: bool) -> None:
        """Read on; `begins`: a document begins with this piece.

        Nothing of the piece is recorded where this is interrupted.
        """
        documents = self.documents
        digest = self._position.digest.copy()
        if begins:
            if documents:
                digest.update(b"\xff")
            documents += 1
        if self._expected is not None:
            self._compare(text, documents, digest.copy(), self._expected)
        digest.update(text.encode())

        self._blank = self._blank and text.isspace()
        # One assignment, so that an interruption leaves a consistent position.
        self._position = _Position(documents, self.characters + len(text), digest)

    @property
    def documents(self) -> int:
        return self._position.documents

    @property
    def characters(self) -> int:
        return self._position.characters

    def _compare(self, text: str, documents: int, digest: Any, expected: TextMark) -> None:
        """Raise BadInput where the text differs from the expected one, if this piece shows it.

        `documents` counts the document of this piece, `digest` is that of everything before it.
        """
        missing = expected.characters - self.characters
        if documents > expected.documents:
            raise self._changed()
        if documents < expected.documents:
            if len(text) > missing:
                raise self._changed()
            return
        if len(text) >= missing:
            digest.update(text[:missing].encode())
            if digest.hexdigest() != expected.sha256:
                raise self._changed()
            self._expected = None

    def mark(self) -> TextMark:
        """Return how far the text was read until now."""
        documents, characters, digest = self._position
        return TextMark(documents, characters, digest.hexdigest())

    def finish(self) -> None:
        """End the reading.

        Raises BadInput where it never came as far as the earlier reading, or all of the text is
        white space.
        """
        if self.characters and self._blank:
            raise BadInput(f"The text {self.name} is white space alone.")
        if self._expected is not None:
            raise self._changed()

    def _changed(self) -> BadInput:
        return BadInput(
            f"The text {self.name} has changed since the run that is to be resumed: start afresh "
            "without --resume."
        )
