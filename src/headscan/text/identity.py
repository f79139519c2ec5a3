"""Whether a text is the one that was read before: its content, hashed as it is read, and compared when it is read again."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from headscan.run.errors import BadInput

__all__ = ["TextIdentity", "TextMark"]


@dataclass(frozen=True)
class TextMark:
    """How far a text was read, and the SHA-256 of what it said up to there."""

    documents: int
    characters: int
    sha256: str


class TextIdentity:
    """The SHA-256 of a text as it is read: its characters as UTF-8, the byte 0xFF (never in UTF-8) between two documents.

    So it is the file's own SHA-256 when the text is one .txt read whole as one document (without byte order mark). With
    `expected`, the mark of an earlier reading, the text is compared when the reading comes to that place again, however
    it falls into pieces: a text that changed before it is refused.

    >>> first = TextIdentity("hens.txt")
    >>> first.add("hens", begins=True)
    >>> again = TextIdentity("hens.txt", expected=first.mark())
    >>> again.add("he", begins=True); again.add("ns and hens", begins=False); again.finish()
    >>> other = TextIdentity("hens.txt", expected=first.mark())
    >>> other.add("cats", begins=True)
    Traceback (most recent call last):
    headscan.BadInput: The text hens.txt has changed since the run that is to be resumed: start afresh without \
--resume.
    """

    def __init__(self, name: str, expected: TextMark | None = None) -> None:
        self.name, self._expected = name, expected
        self.documents = self.characters = 0
        self._sha256 = hashlib.sha256()

    def add(self, text: str, *, begins: bool) -> None:
        """Read on; `begins` where a document begins with this piece."""
        if begins:
            if self.documents:
                self._sha256.update(b"\xff")
            self.documents += 1
        wanted = self._expected
        if wanted is not None:
            missing = wanted.characters - self.characters
            if self.documents > wanted.documents or (len(text) > missing and self.documents < wanted.documents):
                raise self._changed()
            if self.documents == wanted.documents and len(text) >= missing:
                head = self._sha256.copy()
                head.update(text[:missing].encode())
                if head.hexdigest() != wanted.sha256:
                    raise self._changed()
                self._expected = None
        self._sha256.update(text.encode())
        self.characters += len(text)

    def mark(self) -> TextMark:
        """What was read up to now."""
        return TextMark(self.documents, self.characters, self._sha256.hexdigest())

    def finish(self) -> None:
        """The reading has ended; BadInput where it never came as far as the reading before."""
        if self._expected is not None and self._expected.documents:
            raise self._changed()

    def _changed(self) -> BadInput:
        return BadInput(
            f"The text {self.name} has changed since the run that is to be resumed: start afresh without --resume."
        )
