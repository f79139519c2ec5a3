"""The settings of `privacy` that releases and tests read."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property

from headscan.leaks.defences import MECHANISMS, Mechanism
from headscan.leaks.number_formats import NumberFormat, read_format
from headscan.leaks.priors import PriorName
from headscan.model.slicing.cache_slice import CachePart

DefenceLike = str | Mechanism | Sequence[str | Mechanism] | None


@dataclass(frozen=True, kw_only=True)
class PrivacySettings:
    """The values that travel from the verb to a release and its tests.

    The verb's options document them. A policy changes some by `dataclasses.replace`.

    Raises:
        BadInput: an unknown number format or defence.
    """

    release: str
    sites: str | None
    noise: Sequence[float]
    format: str | None
    defence: DefenceLike
    stored: CachePart
    prior: PriorName
    windows: int
    length: int
    candidates: int | None
    draws: int
    seed: int

    def __post_init__(self) -> None:
        if self.format is not None:
            read_format(self.format)
        MECHANISMS.build_each(self.defence or ())

    def by_option(self) -> dict[str, object]:
        """Return the values that a policy says in place of the verb's options, by their names."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name != "seed"}

    @property
    def levels(self) -> tuple[float, ...]:
        """Return the noises, each once."""
        return tuple(dict.fromkeys(self.noise))

    @cached_property
    def number_format(self) -> NumberFormat | None:
        """Return the number format of the release; None: as computed."""
        return None if self.format is None else read_format(self.format)

    @cached_property
    def defences(self) -> list[Mechanism | None]:
        """Return the defences, with their defaults where only names were given.

        None is noise alone; it comes before several.
        """
        defences: list[Mechanism | None] = MECHANISMS.build_each(self.defence or ())
        return defences if len(defences) == 1 else [None, *defences]
