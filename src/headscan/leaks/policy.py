"""A policy: what is released, to whom, behind which defence, within which limits; and what was
shown of each limit.
"""

import hashlib
import json
import math
import os
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from headscan.leaks.mechanisms import MECHANISMS
from headscan.leaks.result import LeakRow, LimitRow, PrivacyResult, TrialRow
from headscan.run import (
    BadInput,
    Given,
    Interval,
    Option,
    Settings,
    options_of,
    plain,
    write_atomic,
)
from headscan.run.errors import nearest
from headscan.run.files import read_at_most
from headscan.run.settings import PARAMETERS
from headscan.statistics.information import fano_bits

KNOWS = ("nothing", "family", "weights")  # an attacker can do what needs as much or less
PASS = "pass"
FAIL = "fail"
UNSHOWN = "cannot be shown"
FREE = -1.0  # in place of an upper end: the row need not show one

# ---- What a policy says. Each section is a table of the file, each field a key.


@dataclass(frozen=True, kw_only=True)
class PolicyRelease(Settings):
    """[release]: what leaves the house, and what is done to it first."""

    what: Annotated[str, Option("What is released.")] = "states"
    sites: Annotated[str | None, Option("Sites, as globs.")] = None
    stored: Annotated[Literal["keys", "values", "both"], Option("What of the cache.")] = "both"
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
    prior: Annotated[
        Literal["model", "uniform", "text"], Option("What the attacker knows of texts.")
    ] = "model"


@dataclass(frozen=True, kw_only=True)
class PolicyLimits(Settings):
    """[limits]: what the release may give away, at most."""

    mean_bits: Annotated[float | None, Option("Bits a token, in the mean.", low=0)] = None
    worst_position: Annotated[
        float | None, Option("Bits of the position that tells most.", low=0)
    ] = None
    tokens_read: Annotated[
        float | None, Option("Share of tokens that an attack reads.", low=0, high=1)
    ] = None
    membership_advantage: Annotated[
        float | None, Option("True less false positives of a test.", low=0, high=1)
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
        Option("A pass takes a proved ceiling, or that all tests stay below."),
    ] = "proof"
    tests: Annotated[str, Option("Tests beside the bits, as --test takes them.")] = ""


SECTIONS = {
    "release": PolicyRelease,
    "attacker": PolicyAttacker,
    "limits": PolicyLimits,
    "evidence": PolicyEvidence,
}
PARAMETERS.update(SECTIONS.values())  # keys, not options: messages call them by their bare names


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
        return {name: value for name, value in asdict(self.limits).items() if value is not None}

    def over(self, asked: Given) -> Given:
        """The verb's arguments as the policy has them; the tests that its limits need are among
        them.
        """
        tests = [self.evidence.tests] if self.evidence.tests else []
        release = asdict(self.release)
        for limit, what, test in (
            ("tokens_read", "cache", "attacks"),
            ("membership_advantage", "embedding", "index"),
        ):
            if (
                limit in self.wanted
                and self.release.what == what
                and test not in self.evidence.tests
            ):
                tests.append(test)
        evidence = {name: value for name, value in asdict(self.evidence).items() if name in asked}
        changed = {
            "release": release.pop("what"),
            "test": tests or None,
            "prior": self.attacker.prior,
            **release,
            **evidence,
        }
        changed |= {
            "noise": (self.release.noise,),
            "defence": None if release["defence"] == "none" else release["defence"],
        }
        return Given(asked | changed)

    def capable(self, needs: str) -> bool:
        return needs in KNOWS and KNOWS.index(needs) <= KNOWS.index(self.attacker.knows)

    @property
    def reads(self) -> bool:
        """Whether bits and exact search are within the attacker's means: they take the weights, and
        a defence's secrets.
        """
        return self.capable("weights") and not (
            self.release.defence != "none"
            and any(one.keyed for one in MECHANISMS.build_each(self.release.defence))
        )


def read_policy(path: str | os.PathLike[str]) -> Policy:
    """Read a policy from a TOML file.

    Raises BadInput, which names file, table and key: no file, no TOML, an unknown table or key
    (with the nearest one), a value of the wrong type or out of its range, no limit at all.
    """
    file = Path(path)
    try:
        raw = read_at_most(file, 1 << 20)
        found = tomllib.loads(raw.decode())
    except OSError as error:
        raise BadInput(f"The policy {file} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise BadInput(f"The policy {file} is no TOML: {error}.") from None
    title = found.pop("title", file.stem)
    made: dict[str, Any] = {
        name: _section(file, name, kind, found.pop(name, {})) for name, kind in SECTIONS.items()
    }
    for name in found:
        raise BadInput(f"{file}: there is no table [{name}].{nearest(name, [*SECTIONS, 'title'])}")
    if not isinstance(title, str):
        raise BadInput(f"{file}: title takes a text, not {title!r}.")
    policy = Policy(title=title, **made, file=file.name, sha256=hashlib.sha256(raw).hexdigest())
    if not policy.wanted:
        raise BadInput(
            f"{file}: [limits] sets no limit; there are: "
            f"{', '.join(field.name for field in fields(PolicyLimits))}."
        )
    return policy


def _section(file: Path, name: str, kind: type[Settings], given: object) -> Settings:
    options = {option.name: option for option in options_of(kind)}
    if not isinstance(given, dict):
        raise BadInput(f"{file}: {name} is a table, [{name}], not {given!r}.")
    for key, value in given.items():
        if key not in options:
            raise BadInput(
                f"{file}: [{name}] has no key {key!r}; it has "
                f"{', '.join(options)}.{nearest(key, options)}"
            )
        takes = str(options[key].type)
        wanted = (
            ("number", int | float)
            if "float" in takes
            else ("whole number", int)
            if "int" in takes
            else ("text", str)
        )
        if not isinstance(value, wanted[1]) or isinstance(value, bool):
            raise BadInput(f"{file}: {key} in [{name}] takes a {wanted[0]}, not {value!r}.")
    try:
        return kind(**given)
    except BadInput as error:
        raise BadInput(f"{file}, [{name}]: {error}") from None


# ---- What was shown of each limit: by interval or bound against limit.


@dataclass(frozen=True)
class _Shown:
    """What one row shows of a limit."""

    value: float | None
    low: float | None  # the release gives away more than that; None: nothing is shown
    # no more than that; None: nothing is shown, though it would have to be; or FREE
    high: float | None
    why: str
    interval: Interval | None = None  # of the value


def judge(
    policy: Policy,
    rows: Sequence[LeakRow],
    trials: Sequence[TrialRow],
    prior: tuple[float, int] | None = None,
) -> list[LimitRow]:
    """A row a limit: *fail* where something is shown to be above it, *pass* where all is shown to
    be within, else neither.

    Lower bounds and attacks speak against a limit only where the attacker of the policy knows what
    they need. `prior` is its entropy in bits a token and the number of tokens: what exact inversion
    of a release without noise says of bits (Fano).
    """
    found = []
    for name, most in policy.wanted.items():
        if name in ("mean_bits", "worst_position"):
            shown = [
                one
                for row in rows
                for one in (_mean if name == "mean_bits" else _worst)(policy, row, prior)
            ]
        else:
            shown = (
                _read(policy, rows, trials)
                if name == "tokens_read"
                else _tried(policy, trials, "advantage", bounded=False)
            )
        above = [one for one in shown if one.low is not None and one.low > most]
        short = [one for one in shown if one.high is None or one.high > most]
        bounded = [one for one in shown if one.high != FREE]
        verdict = FAIL if above else UNSHOWN if short or not bounded else PASS
        said = (
            above
            or short
            or bounded
            or [_Shown(None, None, None, "Nothing that was run speaks of it.")]
        )
        worst = max(said, key=lambda one: -1.0 if one.value is None else one.value)
        alone = name == "mean_bits" and "worst_position" not in policy.wanted
        why = worst.why + (
            " A limit on the mean alone: single positions may tell more." if alone else ""
        )
        low, high = worst.interval or (most, most)
        if verdict == UNSHOWN and low > most:
            why += (
                " That is above the limit for one who has the weights and no secret to guess; "
                "whether this policy's attacker, "
            )
            why += f"who knows {policy.attacker.knows} of the model, reads as much was not shown."
        elif verdict == UNSHOWN and high > most:
            why += " The limit lies between these ends."
        found.append(
            LimitRow(
                limit=name,
                at_most=most,
                value=worst.value,
                interval=worst.interval,
                verdict=verdict,
                evidence=why,
            )
        )
    return found


def _mean(policy: Policy, row: LeakRow, prior: tuple[float, int] | None) -> list[_Shown]:
    if row.bits_upper is not None:
        low, high = row.bits_interval or (None, None)
        why = (
            f"Bits at {row.site} between proved bounds, of {row.tokens} positions in "
            f"{row.windows} windows."
        )
        why += "" if row.bits_interval else " One window has no interval."
        return [_Shown(row.bits_upper, low if policy.reads else None, high, why, row.bits_interval)]
    if row.attack != "exact" or prior is None:
        return []
    entropy, size = prior
    low = max(0.0, fano_bits(max(row.text_accuracy_interval[0], 1 / size), size, entropy))
    why = (
        f"Exact search reads {row.text_accuracy:.0%} of {row.tokens} tokens at {row.site}; bits "
        "by Fano."
    )
    return [_Shown(low, low if policy.reads else None, entropy, why, (low, entropy))]


def _worst(policy: Policy, row: LeakRow, prior: tuple[float, int] | None) -> list[_Shown]:
    if row.worst_upper is None or row.worst_lower is None or row.windows is None:
        # The worst position tells at least what the mean does: that speaks against the limit, and
        # nothing for it.
        return [replace(one, high=None) for one in _mean(policy, row, prior)]
    # windows, to hold for that share of them at 95 %
    needed = math.ceil(math.log(0.05) / math.log(policy.evidence.share))
    enough = row.windows >= needed or row.worst_upper > policy.wanted["worst_position"]
    why = f"The worst of {row.tokens} positions at {row.site}, in {row.windows} windows."
    why += (
        ""
        if row.windows >= needed
        else f" To hold for {policy.evidence.share:.0%} of windows takes {needed} of them."
    )
    low = row.worst_lower if policy.reads else None
    high = row.worst_upper if enough else None
    return [_Shown(row.worst_upper, low, high, why, (row.worst_lower, row.worst_upper))]


def _read(policy: Policy, rows: Sequence[LeakRow], trials: Sequence[TrialRow]) -> list[_Shown]:
    found = list[_Shown]()
    tests = policy.evidence.shown_by == "tests"
    for row in rows:
        ends, (low, high) = row.attack_accuracy_upper_interval, row.text_accuracy_interval
        if ends is not None:
            why = (
                f"No attack exceeds {row.attack_accuracy_upper:.0%} at {row.site}, in the mean "
                "over the prior (Fano)."
            )
            found.append(_Shown(row.attack_accuracy_upper, None, ends[1], why, (0.0, ends[1])))
        if policy.release.what != "embedding" and (policy.reads or ends is None):
            # (that of an embedding's rows is given all other tokens, which no attacker has)
            why = (
                f"The {row.attack} attack reads {row.text_accuracy:.0%} of {row.tokens} tokens at "
                f"{row.site}."
            )
            shown = high if tests and policy.reads else None if ends is None and not tests else FREE
            found.append(
                _Shown(row.text_accuracy, low if policy.reads else None, shown, why, (low, high))
            )
    bounded = bool(rows) and all(row.attack_accuracy_upper_interval for row in rows)
    return found + _tried(policy, trials, "tokens read", bounded=bounded)


def _tried(
    policy: Policy, trials: Sequence[TrialRow], quantity: str, *, bounded: bool
) -> list[_Shown]:
    """What tests show: attacks that succeed speak against a limit; those that fail for it only
    where the policy says so.
    """
    found = []
    tests = policy.evidence.shown_by == "tests"
    for row in trials:
        if row.quantity == quantity and row.interval is not None and policy.capable(row.knows):
            why = (
                f"By {row.test}, {row.setting}, of {row.count:,} "
                f"{'tokens' if quantity == 'tokens read' else 'texts'}."
            )
            high = row.interval[1] if tests else FREE if bounded else None
            why += " Another test may do better." if tests or high is None else ""
            found.append(_Shown(row.value, row.interval[0], high, why, row.interval))
    return found


# ---- The receipt.


def held_to(
    policy: Policy, result: PrivacyResult, prior: tuple[float, int] | None, folder: Path | None
) -> PrivacyResult:
    """The result with verdict, limits and what was not examined; FOLDER/receipt.json holds them
    with hashes and protocol.
    """
    limits = judge(policy, result.rows, result.trials, prior)
    found = {row.verdict for row in limits}
    sites = ", ".join(dict.fromkeys(row.site for row in result.rows)) or "none"
    knows = policy.attacker.knows
    left = [
        f"Releases other than {policy.release.what}, and sites other than {sites}.",
        "Texts of another kind or length; attackers who expect them better than the prior "
        f"'{policy.attacker.prior}' does.",
        "What later releases tell of earlier tokens; several releases of one text; side channels "
        "such as timing.",
        "Whether the defence is in fact applied where the release leaves the house.",
    ]
    if "membership_advantage" not in policy.wanted:
        left.append("Whether a text is in the index or in the training data.")
    if policy.evidence.shown_by == "tests":
        left.append("Attacks other than those listed: a pass rests on them, not on a proof.")
    if "worst_position" not in policy.wanted:
        left.append("The worst position: the limits are of means.")
    if not policy.reads and not any(policy.capable(row.knows) for row in result.trials):
        left.append(f"Attacks by one who knows {knows} of the model and no secret: none was run.")
    verdict = FAIL if FAIL in found else UNSHOWN if UNSHOWN in found else PASS
    result = replace(result, verdict=verdict, limits=limits, not_examined=left)
    if folder is not None:
        names = (
            "verdict",
            "limits",
            "not_examined",
            "models",
            "protocol",
            "meaning",
            "what",
            "rows",
            "trials",
        )
        held = {"policy": asdict(policy)} | {name: getattr(result, name) for name in names}
        write_atomic(
            folder / "receipt.json",
            json.dumps(plain(held), ensure_ascii=False, indent=1, allow_nan=False).encode(),
        )
    return result
