"""Base classes and registries of releases (channels that leak) and of tests."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

from headscan.leaks.result import LeakedGradient, LeakRow, TrialRow
from headscan.leaks.settings import PrivacySettings
from headscan.model.lens import Lens
from headscan.run import Named, Registry, Run, Settings


@dataclass(frozen=True, kw_only=True)
class Leak:
    """The result of a channel.

    Attributes:
        rows: one a site, defence and noise.
        gradient: the tokens of a gradient.
        notes: sentences about what was left out.
    """

    rows: list[LeakRow]
    gradient: LeakedGradient | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class LeakChannel(Named, ABC):
    """A channel through which a text leaks.

    Attributes:
        uses: the options that it reads; the others of `CHANNEL_OPTIONS` are refused.
        meaning: a sentence that says what the bits in its rows are bits of.
    """

    uses: ClassVar[tuple[str, ...]] = ()
    meaning: ClassVar[str] = ""

    @abstractmethod
    def attack(
        self, lens: Lens, texts: list[list[int]], settings: PrivacySettings, run: Run
    ) -> Leak:
        """Let it leak from the token ids of each document; bound it, and read what can be read.

        Raises:
            BadInput: the model or the text is not fit for it.
        """


CHANNEL_OPTIONS = (
    "sites",
    "noise",
    "format",
    "defence",
    "stored",
    "prior",
    "windows",
    "length",
    "candidates",
    "draws",
)
"""The options that not every release reads."""

CHANNELS: Registry[type[LeakChannel]] = Registry(
    "release", "headscan.leaks.channels", "headscan.leaks.embedding", "headscan.leaks.gradient"
)
"""All releases by name."""


@dataclass(frozen=True, kw_only=True)
class LeakTest(Settings, Named, ABC):
    """A test of a release beside the bits: an attack by name, margins, membership.

    Its fields are its parameters.

    Attributes:
        releases: the releases that it applies to.
    """

    releases: ClassVar[tuple[str, ...]]

    def ready(self) -> None:
        """Raise BadInput, before any work, where its input is missing."""
        return None

    @abstractmethod
    def measure(
        self, lens: Lens, texts: list[list[int]], settings: PrivacySettings, run: Run
    ) -> list[TrialRow]:
        """Return its numbers, from the token ids of each document.

        Raises:
            BadInput: the model or the text is not fit for it.
        """


TESTS: Registry[type[LeakTest]] = Registry(
    "test",
    "headscan.leaks.cache_attacks",
    "headscan.leaks.margins",
    "headscan.leaks.query_inversion",
    "headscan.leaks.membership",
)
"""All tests by name."""
