"""A policy: a release, its attacker, a defence, and the limits that must hold."""

import hashlib
import os
import tomllib
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from headscan.leaks.defences import MECHANISMS
from headscan.leaks.priors import PriorName
from headscan.leaks.settings import PrivacySettings
from headscan.model.slicing.cache_slice import CachePart
from headscan.run import BadInput, Option, OptionField, Settings, options_of
from headscan.run.errors import nearest
from headscan.run.files import read_at_most
from headscan.run.settings import PARAMETERS

KNOWS = ("nothing", "family", "weights")
"""The knowledge of a model that attackers may have, the least first.

An attacker can make every attack that needs as much or less.
"""
LARGEST_FILE = 1 << 20
S = TypeVar("S", bound=Settings)


@dataclass(frozen=True, kw_only=True)
class PolicyRelease(Settings):
    """[release]: what is released, and what is done to it first."""

    what: Annotated[str, Option("What is released.")] = "states"
    sites: Annotated[str | None, Option("Sites, as globs.")] = None
    stored: Annotated[CachePart, Option("Part of the cache: keys, values or both.")] = "both"
    defence: Annotated[str, Option("A defence as --defence takes it, or none.")] = "none"
    noise: Annotated[
        float, Option("Gaussian noise, in rms of the release's coordinates.", low=0, high=1e6)
    ] = 0.0
    format: Annotated[str | None, Option("Number format.")] = None


@dataclass(frozen=True, kw_only=True)
class PolicyAttacker(Settings):
    """[attacker]: to whom. Bounds hold for whoever knows less, too; attacks count only where they
    need no more.
    """

    knows: Annotated[
        Literal["weights", "family", "nothing"], Option("What the attacker knows of the model.")
    ] = "weights"
    prior: Annotated[PriorName, Option("What the attacker knows of texts.")] = "model"


@dataclass(frozen=True, kw_only=True)
class PolicyLimits(Settings):
    """[limits]: what the release may give away, at most."""

    mean_bits: Annotated[float | None, Option("Bits a token, in the mean.", low=0)] = None
    worst_position: Annotated[
        float | None, Option("Bits of the position that leaks most.", low=0)
    ] = None
    tokens_read: Annotated[
        float | None, Option("Share of tokens that an attack reads.", low=0, high=1)
    ] = None
    membership_advantage: Annotated[
        float | None, Option("True minus false positives of a test.", low=0, high=1)
    ] = None


@dataclass(frozen=True, kw_only=True)
class PolicyEvidence(Settings):
    """[evidence]: how much is looked at, and what counts as shown."""

    windows: Annotated[int, Option("Pieces of the text.", low=2)] = 30
    length: Annotated[int, Option("Tokens of a piece.", low=2)] = 12
    candidates: Annotated[
        int | None, Option("Candidates of a position. Default: as many as minutes allow.", low=2)
    ] = None
    draws: Annotated[int, Option("Monte Carlo draws a position.", low=2)] = 16
    share: Annotated[
        float,
        Option(
            "Share of windows whose worst position must be within its limit.", low=0.5, high=0.999
        ),
    ] = 0.9
    shown_by: Annotated[
        Literal["proof", "tests"],
        Option("A pass needs a proved upper bound, or all tests below the limit."),
    ] = "proof"
    tests: Annotated[str, Option("Tests beside the bits, as --test takes them.")] = ""


SECTIONS = ("release", "attacker", "limits", "evidence")
# Keys, not options: messages call them by their bare names.
PARAMETERS.update({PolicyRelease, PolicyAttacker, PolicyLimits, PolicyEvidence})


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A policy file that was read and checked."""

    title: str
    release: PolicyRelease
    attacker: PolicyAttacker
    limits: PolicyLimits
    evidence: PolicyEvidence
    file: str
    sha256: str

    @property
    def wanted(self) -> dict[str, float]:
        """Return the limits that are set."""
        return {name: value for name, value in asdict(self.limits).items() if value is not None}

    @property
    def tests(self) -> list[str]:
        """Return the tests that are asked for, and those that the limits need."""
        tests = [self.evidence.tests] if self.evidence.tests else []
        for limit, release, test in (
            ("tokens_read", "cache", "attacks"),
            ("membership_advantage", "embedding", "index"),
        ):
            needed = limit in self.wanted and self.release.what == release
            if needed and test not in self.evidence.tests:
                tests.append(test)
        return tests

    def over(self, settings: PrivacySettings) -> PrivacySettings:
        """Return the settings with the values that the policy says."""
        return replace(
            settings,
            release=self.release.what,
            sites=self.release.sites,
            stored=self.release.stored,
            format=self.release.format,
            noise=(self.release.noise,),
            defence=None if self.release.defence == "none" else self.release.defence,
            prior=self.attacker.prior,
            windows=self.evidence.windows,
            length=self.evidence.length,
            candidates=self.evidence.candidates,
            draws=self.evidence.draws,
        )

    def capable(self, needs: str) -> bool:
        """Return whether the attacker knows what an attack needs."""
        return needs in KNOWS and KNOWS.index(needs) <= KNOWS.index(self.attacker.knows)

    @property
    def reads(self) -> bool:
        """Return whether bits and exact search are within the attacker's means.

        They take the weights, and a defence's secrets.
        """
        if not self.capable("weights"):
            return False
        if self.release.defence == "none":
            return True
        return not any(item.keyed for item in MECHANISMS.build_each(self.release.defence))


def read_policy(path: str | os.PathLike[str]) -> Policy:
    """Read a policy from a TOML file.

    Raises:
        BadInput: no file, no TOML, an unknown table or key (with the nearest one), a value of the
            wrong type or out of its range, no limit at all. The message names file, table and key.
    """
    file = Path(path)
    try:
        raw = read_at_most(file, LARGEST_FILE)
        tables = tomllib.loads(raw.decode())
    except OSError as error:
        raise BadInput(f"The policy {file} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise BadInput(f"The policy {file} is no TOML: {error}.") from None
    title = tables.get("title", file.stem)
    policy = Policy(
        title=title,
        release=_section(file, "release", PolicyRelease, tables),
        attacker=_section(file, "attacker", PolicyAttacker, tables),
        limits=_section(file, "limits", PolicyLimits, tables),
        evidence=_section(file, "evidence", PolicyEvidence, tables),
        file=file.name,
        sha256=hashlib.sha256(raw).hexdigest(),
    )
    known = [*SECTIONS, "title"]
    for name in tables:
        if name not in known:
            raise BadInput(f"{file}: there is no table [{name}].{nearest(name, known)}")
    if not isinstance(title, str):
        raise BadInput(f"{file}: title takes a text, not {title!r}.")
    if not policy.wanted:
        names = ", ".join(limit.name for limit in fields(PolicyLimits))
        raise BadInput(f"{file}: [limits] sets no limit; there are: {names}.")
    return policy


def _section(file: Path, name: str, kind: type[S], tables: dict[str, object]) -> S:
    """Return one table of the file, checked."""
    options = {option.name: option for option in options_of(kind)}
    table = tables.get(name, {})
    if not isinstance(table, dict):
        raise BadInput(f"{file}: {name} is a table, [{name}], not {table!r}.")
    for key, value in table.items():
        if key not in options:
            raise BadInput(
                f"{file}: [{name}] has no key {key!r}; it has "
                f"{', '.join(options)}.{nearest(key, options)}"
            )
        problem = _type_problem(options[key], value)
        if problem:
            raise BadInput(f"{file}: {key} in [{name}] takes a {problem}, not {value!r}.")
    try:
        return kind(**table)
    except BadInput as error:
        raise BadInput(f"{file}, [{name}]: {error}") from None


def _type_problem(option: OptionField, value: object) -> str:
    """Return the name of the type that a key takes; an empty text if the value has it."""
    kind = str(option.type)
    name = "text"
    fits = isinstance(value, str)
    if "float" in kind:
        name = "number"
        fits = isinstance(value, int | float)
    elif "int" in kind:
        name = "whole number"
        fits = isinstance(value, int)
    return "" if fits and not isinstance(value, bool) else name
