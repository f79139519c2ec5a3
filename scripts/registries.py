"""Write docs/registries.md (everything that is registered, with its parameters) and
docs/findings.md (every code), from the code.

python scripts/registries.py [--check | --print]
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

from headscan_lab.evaluation.task import TASKS
from headscan_lab.ledger.experiment import EXPERIMENTS

from headscan.attribution.method import METHODS as ATTRIBUTION
from headscan.comparison.nulls import NULLS
from headscan.comparison.similarity import SIMILARITIES
from headscan.diagnosis import CONDITIONS
from headscan.inversion.methods import METHODS as INVERSION
from headscan.inversion.observation import OBSERVATIONS
from headscan.leaks import CHANNELS, MECHANISMS, TESTS
from headscan.measures import PROBES
from headscan.remedies import REMEDIES
from headscan.run import Registry, options_of
from headscan.run.kinds import KINDS
from headscan.states import FORMATS
from headscan.training.monitor import ALARMS, FAMILIES, TRACKERS
from headscan.training.objective import OBJECTIVES, REGULARISERS
from headscan.training.optimisers import OPTIMISERS
from headscan.training.recovery import RECOVERIES

PAGE = Path(__file__).resolve().parents[1] / "docs" / "registries.md"
CODES = PAGE.with_name("findings.md")
SECTIONS: list[tuple[str, str, Registry[Any]]] = [
    (
        "Formats of stored states",
        "`headscan scan PATH`, `headscan invert MODEL --states PATH`",
        FORMATS,
    ),
    (
        "Probes",
        "`headscan scan --measures NAME`; `collapse` and `zipf` come with headscan-lab",
        PROBES,
    ),
    ("Measures of similarity", "`headscan compare --measures NAME`", SIMILARITIES),
    ("Nulls of a comparison", "`headscan compare --nulls NAME`", NULLS),
    ("Attribution methods", "`headscan attribute --method NAME`", ATTRIBUTION),
    ("Inversion methods", "`headscan invert --method NAME`", INVERSION),
    ("What may be given to an inversion", "`headscan invert --given NAME`", OBSERVATIONS),
    ("Releases", "`headscan privacy --release NAME`", CHANNELS),
    ("Defences", "`headscan privacy --defence NAME`", MECHANISMS),
    ("Tests of a release", "`headscan privacy --test NAME`", TESTS),
    ("Training objectives", "`headscan train --objective NAME`", OBJECTIVES),
    (
        "Regularisers",
        "`headscan train --regulariser NAME:STRENGTH`; they come with headscan-lab",
        REGULARISERS,
    ),
    ("Optimisers", "`headscan train --optimiser NAME`", OPTIMISERS),
    ("Families of the monitor", "`headscan.training.Monitor(families=...)`", FAMILIES),
    ("Trackers", "`headscan.training.Monitor(to=...)`", TRACKERS),
    ("Alarms of the monitor", "`headscan.training.Monitor(alarms=...)`", ALARMS),
    ("Head recoveries", "`headscan recover --mode NAME`", RECOVERIES),
    ("Evaluation tasks", "`headscan evaluate --tasks NAME`", TASKS),
    (
        "Conditions of a checkup",
        "`headscan checkup --fail-on CODES`; see [checkup](checkup.md)",
        CONDITIONS,
    ),
    ("Remedies", "`headscan remedy --remedies NAME`", REMEDIES),
    ("Experiments of the ledger", "the tables of `headscan_lab.ledger`", EXPERIMENTS),
]


def sentence(name: str, item: object) -> str:
    """The first sentence of an item's own words or docstring; SystemExit where it has none."""
    docstrings = [
        getattr(getattr(item, "words", None), "sentence", ""),
        getattr(item, "sentence", ""),
        getattr(item, "about", ""),
    ]
    if inspect.isroutine(item) or isinstance(item, type):
        docstrings.append(inspect.getdoc(item) or "")
    text = next((text for text in docstrings if isinstance(text, str) and text), "")
    if not text:
        raise SystemExit(f"{name} does not say what it does: give it a docstring.")
    return " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")


def codes() -> str:
    """docs/findings.md: every code of every verb."""
    lines = [
        "# Findings by code",
        "",
        "Written by `scripts/registries.py` from the kinds of findings that each verb declares and "
        "the conditions of a checkup; a test fails when",
        "it is out of date. HS1: shape, HS2: prediction, HS3: leak, HS4: remedy, HS5: a run, HS6: "
        "weights; a phenomenon has one code.",
        "`--ignore HS101,SINK` (codes or names, with `*`) takes findings out of what counts: they "
        "stay on the page, marked.",
        "`--baseline last.json` does so with those that an earlier result of the same verb has at "
        "the same model and site, and",
        "ends with status 3 where an alarm is new. `checkup --fail-on CODES` ends with status 3 "
        "where one of these was found",
        "and counts. A scan's DRIFT, SPIKE and FLAT are told (level `fine`, `+`) where the number "
        "is short of its limit by less",
        "than a tenth, too: windows or texts of another length may be on the other side of it. "
        "Where the interval of CONE, SPIKE",
        "or FLAT holds the limit, the finding says so and is no alarm.",
        "",
    ]
    conditions = dict(CONDITIONS.items())
    for code in sorted({*conditions, *KINDS}):
        kinds = [kind for kind in KINDS.values() if kind.code == code]
        condition = conditions.get(code)
        title = ", ".join(
            filter(None, [condition.title if condition else "", *(kind.name for kind in kinds)])
        )
        lines += [f"## {code} {title}", ""]
        for kind in kinds:
            lines += [
                f"`{kind.verb}`: {kind.meaning} Threshold: {kind.threshold} ({kind.ground}). "
                f"False: {kind.wrong}.",
                "",
            ]
        if condition is not None:
            beyond = (
                f", an alarm at {'least' if condition.least else 'most'} {condition.alarm:g}"
                if condition.alarm is not None
                else ""
            )
            side = "least" if condition.least else "most"
            lines += [
                f"`checkup`: {condition.meaning} {condition.sentence} Threshold: at {side} "
                f"{condition.threshold:g} ({condition.unit}){beyond}; source: "
                f"{condition.source.rstrip('.')}. {condition.todo} *Limits:* {condition.limits} "
                "The reference models that it was set beside, and how often it was false: "
                "[checkup](checkup.md).",
                "",
            ]
    return "\n".join(lines).rstrip() + "\n"


def page() -> str:
    """The whole page as Markdown."""
    parts = [
        "# What is registered\n\nWritten by `scripts/registries.py`; a test fails when it is out "
        "of date. Measures have",
        "",
    ]
    parts[0] += (
        " a page of their own, [measures](measures.md).\n[CONTRIBUTING](../CONTRIBUTING.md) "
        "shows how to add one, in one file.\n"
    )
    for title, use, registry in SECTIONS:
        parts.append(f"## {title}\n\n{use}\n\n| name | what it is | parameters |\n|---|---|---|")
        for name, item in registry.items():
            options = options_of(item) if isinstance(item, type) else ()
            shown = "; ".join(
                f"`{option.name}` {option.option.help}" for option in options
            ).replace("|", "\\|")
            parts.append(f"| `{name}` | {sentence(name, item)} | {shown} |")
        parts.append("")
    return "\n".join(parts).rstrip() + "\n"


if __name__ == "__main__":
    for path, text in ((PAGE, page()), (CODES, codes())):
        if "--print" in sys.argv:
            print(text)
        elif "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            sys.exit(f"{path} is out of date: run {__file__}")
