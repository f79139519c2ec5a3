"""A policy: what is released, to whom, behind which defence, within which limits; and what was shown of each limit."""

import hashlib
import json
import math
import os
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from headscan.leaks.result import LeakRow, LimitRow, PrivacyResult, TrialRow
from headscan.run import BadInput, Given, Interval, Option, Settings, options_of, plain, write_atomic
from headscan.run.errors import nearest
from headscan.run.settings import PARAMETERS
from headscan.statistics.information import fano_bits

KNOWS = ("nothing", "family", "weights")  # an attacker can do what needs as much or less
PASS, FAIL, UNSHOWN = "pass", "fail", "cannot be shown"
FREE = -1.0  # in place of an upper end: the row need not show one

# ---- What a policy says. Each section is a table of the file, each field a key.


@dataclass(frozen=True, kw_only=True)
class PolicyRelease(Settings):
    """[release]: what leaves the house, and what is done to it first."""

    what: Annotated[str, Option("What is released.")] = "states"
    sites: Annotated[str | None, Option("Sites, as globs.")] = None
    stored: Annotated[Literal["keys", "values", "both"], Option("What of the cache.")] = "both"
    defence: Annotated[str, Option("A defence as --defence takes it, or none.")] = "none"
    noise: Annotated[float, Option("Gaussian noise, in rms of the release's coordinates.", low=0)] = 0.0
    format: Annotated[str | None, Option("Number format.")] = None


@dataclass(frozen=True, kw_only=True)
class PolicyAttacker(Settings):
    """[attacker]: to whom. Bounds hold for whoever knows less, too; attacks count only where they need no more."""

    knows: Annotated[Literal["weights", "family", "nothing"], Option("What the attacker knows of the model.")] = "weights"
    prior: Annotated[Literal["model", "uniform", "text"], Option("What the attacker knows of texts.")] = "model"


@dataclass(frozen=True, kw_only=True)
class PolicyLimits(Settings):
    """[limits]: what the release may give away, at most."""

    mean_bits: Annotated[float | None, Option("Bits a token, in the mean.", low=0)] = None
    worst_position: Annotated[float | None, Option("Bits of the position that tells most.", low=0)] = None
    tokens_read: Annotated[float | None, Option("Share of tokens that an attack reads.", low=0, high=1)] = None
    membership_advantage: Annotated[float | None, Option("True less false positives of a test.", low=0, high=1)] = None


@dataclass(frozen=True, kw_only=True)
class PolicyEvidence(Settings):
    """[evidence]: how much is looked at, and what counts as shown."""

    windows: Annotated[int, Option("Pieces of the text.", low=2)] = 30
    length: Annotated[int, Option("Tokens of a piece.", low=2)] = 12
    candidates: Annotated[int | None, Option("Candidates of a position. Default: as many as minutes allow.", low=2)] = None
    draws: Annotated[int, Option("Monte Carlo draws a position.", low=2)] = 16
    share: Annotated[float, Option("Share of windows whose worst position must be within its limit.", low=0.5, high=0.999)] = 0.9
    shown_by: Annotated[
        Literal["proof", "tests"], Option("Whether a pass needs a proved ceiling, or that every test run stays below.")
    ] = "proof"
    tests: Annotated[str, Option("Tests beside the bits, as --test takes them.")] = ""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A policy file that was read and checked."""

    title: str
    release: PolicyRelease
    attacker: PolicyAttacker
    limits: PolicyLimits
    evidence: PolicyEvidence
    name: str = ""
    sha256: str = ""

    @property
    def wanted(self) -> dict[str, float]:
        return {name: value for name, value in asdict(self.limits).items() if value is not None}

    def over(self, asked: Given) -> Given:
        """The verb's arguments as the policy has them; the tests that its limits need are among them."""
        tests = [self.evidence.tests] if self.evidence.tests else []
        if "membership_advantage" in self.wanted and self.release.what == "embedding" and "index" not in self.evidence.tests:
            tests.append("index")
        release, evidence, none = self.release, self.evidence, self.release.defence == "none"
        given = {
            "release": release.what, "sites": release.sites, "stored": release.stored, "noise": (release.noise,),
            "format": release.format, "defence": None if none else release.defence, "prior": self.attacker.prior,
            "windows": evidence.windows, "length": evidence.length, "candidates": evidence.candidates,
            "draws": evidence.draws, "test": tests or None,
        }  # fmt: skip
        return Given(asked | given)


SECTIONS = {"release": PolicyRelease, "attacker": PolicyAttacker, "limits": PolicyLimits, "evidence": PolicyEvidence}
PARAMETERS.update(SECTIONS.values())  # keys, not options: messages call them by their bare names


def read_policy(path: str | os.PathLike[str]) -> Policy:
    """Read a policy from a TOML file.

    Raises BadInput, which names file, table and key: no file, no TOML, an unknown table or key (with the nearest one), a
    value of the wrong type or out of its range, no limit at all.
    """
    file = Path(path)
    try:
        raw = file.read_bytes()
        found = tomllib.loads(raw.decode())
    except OSError as error:
        raise BadInput(f"The policy {file} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"The policy {file} is no TOML: {error}.") from None
    title = found.pop("title", file.stem)
    made: dict[str, Any] = {name: _section(file, name, kind, found.pop(name, {})) for name, kind in SECTIONS.items()}
    for name in found:
        raise BadInput(f"{file}: there is no table [{name}].{nearest(name, [*SECTIONS, 'title'])}")
    if not isinstance(title, str):
        raise BadInput(f"{file}: title takes a text, not {title!r}.")
    policy = Policy(title=title, **made, name=file.name, sha256=hashlib.sha256(raw).hexdigest())
    if not policy.wanted:
        raise BadInput(f"{file}: [limits] sets no limit; there are: {', '.join(field.name for field in fields(PolicyLimits))}.")
    return policy


def _section(file: Path, name: str, kind: type[Settings], given: object) -> Settings:
    options = {option.name: option for option in options_of(kind)}
    if not isinstance(given, dict):
        raise BadInput(f"{file}: {name} is a table, [{name}], not {given!r}.")
    for key, value in given.items():
        if key not in options:
            raise BadInput(f"{file}: [{name}] has no key {key!r}; it has {', '.join(options)}.{nearest(key, options)}")
        numeric = isinstance(value, int | float) and not isinstance(value, bool)
        takes = str(options[key].type)
        wanted = "number" if "float" in takes else "whole number" if "int" in takes else "text"
        if (wanted == "text") is not isinstance(value, str) or (wanted != "text" and not numeric):
            raise BadInput(f"{file}: {key} in [{name}] takes a {wanted}, not {value!r}.")
        if wanted == "whole number" and not isinstance(value, int):
            raise BadInput(f"{file}: {key} in [{name}] takes a whole number, not {value!r}.")
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
    high: float | None  # no more than that; None: nothing is shown, though it would have to be; or FREE
    why: str
    interval: Interval | None = None  # of the value


def judge(
    policy: Policy, rows: Sequence[LeakRow], trials: Sequence[TrialRow], prior: tuple[float, int] | None = None
) -> list[LimitRow]:
    """A row a limit: *fail* where something is shown to be above it, *pass* where all is shown to be within, else neither.

    Lower bounds and attacks speak against a limit only where the attacker of the policy knows what they need. `prior` is its
    entropy in bits a token and the number of tokens: what exact inversion of a release without noise says of bits (Fano).
    """
    found = []
    for name, most in policy.wanted.items():
        if name == "mean_bits":
            shown = _mean(policy, rows, prior)
        elif name == "worst_position":
            shown = _worst(policy, rows, prior)
        else:
            shown = _read(policy, rows, trials) if name == "tokens_read" else _tried(policy, trials, "advantage", bounded=False)
        found.append(_limit(policy, name, most, shown))
    return found


def _limit(policy: Policy, name: str, most: float, shown: list[_Shown]) -> LimitRow:
    above = [one for one in shown if one.low is not None and one.low > most]
    short = [one for one in shown if one.high is None or one.high > most]
    bounded = [one for one in shown if one.high != FREE]
    verdict = FAIL if above else UNSHOWN if short or not bounded else PASS
    said = above or short or bounded or [_Shown(None, None, None, "Nothing that was run speaks of it.")]
    worst = max(said, key=lambda one: -1.0 if one.value is None else one.value)
    alone = name == "mean_bits" and "worst_position" not in policy.wanted
    why = worst.why + (" A limit on the mean alone: single positions may tell more." if alone else "")
    return LimitRow(limit=name, at_most=most, value=worst.value, interval=worst.interval, verdict=verdict, evidence=why)


def verdict_of_limits(limits: Sequence[LimitRow]) -> str:
    """fail where any limit fails, pass where all pass."""
    found = {row.verdict for row in limits}
    return FAIL if FAIL in found else UNSHOWN if UNSHOWN in found else PASS


def _capable(policy: Policy, needs: str) -> bool:
    return needs in KNOWS and KNOWS.index(needs) <= KNOWS.index(policy.attacker.knows)


def _mean(policy: Policy, rows: Sequence[LeakRow], prior: tuple[float, int] | None) -> list[_Shown]:
    white, found = _capable(policy, "weights"), list[_Shown]()
    for row in rows:
        if row.bits_upper is not None:
            low, high = row.bits_interval or (None, None)
            why = f"Bits at {row.site} between proved bounds, of {row.tokens} positions in {row.windows} windows."
            why += "" if row.bits_interval else " One window has no interval."
            found.append(_Shown(row.bits_upper, low if white else None, high, why, row.bits_interval))
        elif row.attack == "exact" and prior is not None:
            entropy, size = prior
            low = max(0.0, fano_bits(max(row.text_accuracy_interval[0], 1 / size), size, entropy))
            why = f"Exact search reads {row.text_accuracy:.0%} of {row.tokens} tokens at {row.site}; bits by Fano."
            found.append(_Shown(low, low if white else None, entropy, why, (low, entropy)))
    return found


def _worst(policy: Policy, rows: Sequence[LeakRow], prior: tuple[float, int] | None) -> list[_Shown]:
    share, white, found = policy.evidence.share, _capable(policy, "weights"), list[_Shown]()
    needed = math.ceil(math.log(0.05) / math.log(share))  # of so many windows the worst is beyond that share, 95 %
    for row in rows:
        if row.worst_upper is None or row.worst_lower is None or row.windows is None:
            # No position tells less than the mean says: that speaks against the limit, and nothing for it.
            found += [replace(one, high=None) for one in _mean(policy, [row], prior)]
            continue
        why, enough = f"The worst of {row.tokens} positions at {row.site}, in {row.windows} windows.", row.windows >= needed
        why += "" if enough else f" To hold for {share:.0%} of windows takes {needed} of them."
        high = row.worst_upper if enough or row.worst_upper > policy.wanted["worst_position"] else None
        ends = row.worst_lower, row.worst_upper
        found.append(_Shown(row.worst_upper, row.worst_lower if white else None, high, why, ends))
    return found


def _read(policy: Policy, rows: Sequence[LeakRow], trials: Sequence[TrialRow]) -> list[_Shown]:
    white, found, tests = _capable(policy, "weights"), list[_Shown](), policy.evidence.shown_by == "tests"
    genie = policy.release.what == "embedding"  # its attack is given all other tokens, which no attacker has
    for row in rows:
        ends, (low, high) = row.attack_accuracy_upper_interval, row.text_accuracy_interval
        if ends is not None:
            why = f"No attack exceeds {row.attack_accuracy_upper:.0%} at {row.site}, in the mean over the prior (Fano)."
            found.append(_Shown(row.attack_accuracy_upper, None, ends[1], why, (0.0, ends[1])))
        if not genie:
            why = f"The {row.attack} attack reads {row.text_accuracy:.0%} of {row.tokens} tokens at {row.site}."
            shown = high if tests else None if ends is None else FREE
            found.append(_Shown(row.text_accuracy, low if white else None, shown, why, (low, high)))
    bounded = bool(rows) and all(row.attack_accuracy_upper_interval for row in rows)
    return found + _tried(policy, trials, "tokens read", bounded=bounded)


def _tried(policy: Policy, trials: Sequence[TrialRow], quantity: str, *, bounded: bool) -> list[_Shown]:
    """What tests show: attacks that succeed speak against a limit; those that fail for it only where the policy says so."""
    told = [row for row in trials if row.quantity == quantity and row.interval is not None]
    bounded |= any(row.knows == "bound" for row in told)
    found = []
    for row in told:
        low, high = row.interval or (0.0, 1.0)
        why = f"By {row.test}, {row.setting}, of {row.count:,} {'tokens' if quantity == 'tokens read' else 'texts'}."
        if row.knows == "bound":
            found.append(_Shown(row.value, None, high, f"{why} A proved ceiling.", (0.0, high)))
        elif _capable(policy, row.knows):
            tests = policy.evidence.shown_by == "tests"
            why += " Another test may do better." if tests else ""
            found.append(_Shown(row.value, low, high if tests else FREE if bounded else None, why, (low, high)))
    return found


# ---- The receipt.


def not_examined(policy: Policy, rows: Sequence[LeakRow], trials: Sequence[TrialRow]) -> list[str]:
    """What a verdict says nothing of, as sentences."""
    sites = ", ".join(dict.fromkeys(row.site for row in rows)) or "none"
    said = [
        f"Releases other than {policy.release.what}, and sites other than {sites}.",
        "Texts of another kind than the sample, and other lengths.",
        f"Attackers who expect the text better than the prior '{policy.attacker.prior}' does.",
        "What later releases tell of earlier tokens; several releases of one text; side channels such as timing.",
    ]
    if "membership_advantage" not in policy.wanted:
        said.append("Whether a text is in the index or in the training data.")
    if "tokens_read" in policy.wanted and policy.evidence.shown_by == "tests":
        said.append("Attacks other than those listed: a pass rests on them, not on a proof.")
    if "worst_position" not in policy.wanted:
        said.append("The worst position: the limits are of means.")
    if policy.attacker.knows != "weights" and not any(_capable(policy, row.knows) for row in trials):
        said.append(f"Attacks by one who knows {policy.attacker.knows} of the model: none was run.")
    said.append("Whether the defence is in fact applied where the release leaves the house.")
    return said


def held_to(policy: Policy, result: PrivacyResult, prior: tuple[float, int] | None) -> PrivacyResult:
    """The result with verdict, limits and what was not examined."""
    limits = judge(policy, result.rows, result.trials, prior)
    left = not_examined(policy, result.rows, result.trials)
    return replace(result, verdict=verdict_of_limits(limits), limits=limits, not_examined=left)


def write_receipt(folder: Path, policy: Policy, result: PrivacyResult) -> None:
    """DIR/receipt.json: the policy, hashes of what was examined, protocol, limits, numbers, what was not examined."""
    held = {
        "verdict": result.verdict, "policy": asdict(policy), "limits": result.limits, "not_examined": result.not_examined,
        "models": result.models, "protocol": result.protocol, "meaning": result.meaning, "prior": result.what,
        "rows": result.rows, "trials": result.trials,
    }  # fmt: skip
    write_atomic(folder / "receipt.json", json.dumps(plain(held), ensure_ascii=False, indent=1, allow_nan=False).encode())
