"""What a format of stored states is, and how the one of a place is found."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from headscan.run import BadInput, Registry
from headscan.states.location import Location
from headscan.states.vectors import Vectors

__all__ = ["FORMATS", "StateFormat", "read_states"]


class StateFormat(ABC):
    """A way in which people store states. Subclass it in a file of headscan/states/formats, or of a plug-in.

    Attributes:
        title: of the documentation. sentence: what it is. tried: whether the tests hold it to files that the real library
            wrote; else it was written from that library's documentation. first: asked before others that would take the
            place too.
    """

    title: ClassVar[str]
    sentence: ClassVar[str]
    tried: ClassVar[str]
    first: ClassVar[int] = 0

    @abstractmethod
    def recognises(self, place: Location) -> bool:
        """Whether a place is of this format, from names alone as far as that can be."""

    @abstractmethod
    def read(self, place: Location, field: str | None) -> Vectors:
        """What is there; `field` names the column, where the user says one.

        Raises:
            BadInput: it is truncated, of another format, or its shapes are none of states.
        """


FORMATS: Registry[type[StateFormat]] = Registry("format", "headscan.states.formats")
"""All formats of stored states."""


def read_states(path: str, field: str | None = None) -> Vectors | None:
    """The stored states at a path or URL; None where no format knows the place.

    `PATH#SITE` is one site of it.

    Raises:
        BadInput: there is nothing at a URL; what is there cannot be read.
    """
    whole, _, site = path.partition("#")
    place = Location(whole)
    if place.remote and not place.exists:
        raise BadInput(f"There is nothing at {whole}.")
    for known in sorted(FORMATS.values(), key=lambda one: -one.first):
        if known().recognises(place):
            break
    else:
        if place.remote:
            raise BadInput(f"{whole} is of no format of states; there are: {', '.join(FORMATS)}.")
        return None
    found = known().read(place, field)
    if not site:
        return found
    if site not in found.sites:
        raise BadInput(f"{whole} has no site '{site}'; it has: {', '.join(found.sites)}.")
    from dataclasses import replace

    return replace(found, sites={site: found.sites[site]})
