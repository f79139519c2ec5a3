"""Which findings of a run count: those that are ignored, or known from a baseline, do not."""

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from headscan.run.errors import BadInput, nearest
from headscan.run.files import read_at_most
from headscan.run.kinds import KINDS
from headscan.run.saving import SCHEMA
from headscan.run.settings import names_in

R = TypeVar("R")
SPELT = re.compile(r"HS\d{3}")


def listed(names: str | Sequence[str] | None, flag: str = "--ignore") -> list[str]:
    """Return the globs of codes and names in an option, such as `--ignore`.

    Raises:
        BadInput: for a glob that matches no finding.
    """
    globs = names_in(names)
    if not globs:
        return []  # the packages of all verbs declare kinds: they are not loaded for nothing
    known = [*KINDS, *(kind.name for kind in KINDS.values())]
    for glob in globs:
        if not SPELT.fullmatch(glob) and not any(fnmatchcase(word, glob) for word in known):
            raise BadInput(
                f"{flag}: no finding is called {glob!r}.{nearest(glob, known)} docs/findings.md "
                "lists them all."
            )
    return globs


def earlier(baseline: str | os.PathLike[str] | None, verb: str) -> set[tuple[object, ...]]:
    """Return (code, model, site) of every finding in a saved result of the same verb.

    Raises:
        BadInput: where there is no such result.
    """
    if baseline is None:
        return set()
    path = Path(baseline)
    try:
        path = path / "result.json" if path.is_dir() else path
        stored = json.loads(read_at_most(path).decode())
        kind = stored["protocol"]["verb"]
        schema = stored.get("schema")
        has_kind = isinstance(stored.get("kind"), str)
        rows: set[tuple[object, ...]] = {
            (row["code"], row["model"], row["site"]) for row in stored["findings"]
        }
    except FileNotFoundError:
        raise BadInput(f"--baseline: there is no file {path}.") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise BadInput(f"--baseline: {path} is no result.json of headscan.") from None
    if kind != verb:
        raise BadInput(f"--baseline: {path} is a result of {kind}, not of {verb}.")
    if schema != SCHEMA or not has_kind:
        raise BadInput(
            f"--baseline: {path} is no result.json that this version reads (schema {SCHEMA})."
        )
    return rows


@dataclass(frozen=True)
class Passed:
    """The findings of a run that do not count: ignored ones, and those of a baseline.

    Attributes:
        ignored: globs of codes and names.
        known: (code, model, site) of the baseline's findings.
    """

    ignored: Sequence[str] = ()
    known: frozenset[tuple[object, ...]] = frozenset()

    @classmethod
    def of(
        cls, ignore: str | Sequence[str] | None, baseline: str | os.PathLike[str] | None, verb: str
    ) -> "Passed":
        """Return what does not count in a call; made before any work, so that a wrong one costs
        nothing.
        """
        return cls(listed(ignore), frozenset(earlier(baseline, verb)))

    def mark(self, result: R) -> R:
        """Return the result with `passed` set on its findings.

        The codes that a checkup fails on (`failed`) are limited to findings that count.
        """
        if not self.ignored and not self.known:
            return result
        unmarked: Any = result
        findings = [self._marked(finding) for finding in unmarked.findings]
        marked = replace(unmarked, findings=findings)
        failed = getattr(marked, "failed", None)
        if failed:
            counted = counting(findings)
            marked = replace(marked, failed=[code for code in failed if code in counted])
        return cast(R, marked)

    def _marked(self, finding: Any) -> Any:
        reason = self._why(finding.code, finding.name, finding.model, finding.site)
        return replace(finding, passed=reason)

    def _why(
        self, code: str, name: str, model: str | None, site: str | None
    ) -> Literal["", "ignored", "known"]:
        if any(fnmatchcase(word, glob) for glob in self.ignored for word in (code, name)):
            return "ignored"
        return "known" if (code, model, site) in self.known else ""


def counting(findings: Iterable[Any]) -> set[str]:
    """Return the codes of the findings that count."""
    return {finding.code for finding in findings if not finding.passed}


def named(findings: Iterable[Any], globs: Sequence[str]) -> list[str]:
    """Return the codes of the findings that count and that a glob names by code or name.

    What is only close to a limit (level `fine`) is no finding here.
    """
    codes = []
    for finding in findings:
        words = (finding.code, getattr(finding, "name", ""))
        is_named = any(fnmatchcase(word, glob) for glob in globs for word in words)
        if is_named and not finding.passed and finding.level != "fine":
            codes.append(finding.code)
    return codes


def is_alarm(finding: Any) -> bool:
    """Return whether a finding is an alarm that counts."""
    return finding.level == "alarm" and not finding.passed


def new_alarms(findings: Iterable[Any]) -> list[str]:
    """Return the codes of the alarms that count, on which a run with a baseline fails."""
    return [finding.code for finding in findings if is_alarm(finding)]
