"""Write docs/generated/registries.md (everything that is registered, with its parameters) and
docs/findings.md (every code), from the code.

python scripts/registries.py [--check | --print]
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

from headscan_lab.evaluation.task import TASKS
from headscan_lab.ledger.statement import STATEMENTS

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

PAGE = Path(__file__).resolve().parents[1] / "docs" / "generated" / "registries.md"
CODES = PAGE.parents[1] / "findings.md"
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
        "`headscan checkup --fail-on CODES`; see [checkup](../checkup.md)",
        CONDITIONS,
    ),
    ("Remedies", "`headscan remedy --remedies NAME`", REMEDIES),
    ("Statements of the ledger", "`headscan reproduce ID`", STATEMENTS),
]


def sentence(name: str, item: object) -> str:
    """The first sentence of an item's own words or docstring; SystemExit where it has none."""
    docstrings = [
        getattr(getattr(item, "words", None), "sentence", ""),
        getattr(item, "sentence", ""),
        getattr(item, "about", ""),
        getattr(item, "statement", ""),
    ]
    if inspect.isroutine(item) or isinstance(item, type):
        docstrings.append(inspect.getdoc(item) or "")
    text = next((text for text in docstrings if isinstance(text, str) and text), "")
    if not text:
        raise SystemExit(f"{name} does not say what it does: give it a docstring.")
    return " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")


ADVICE = {
    "HS110": "nothing",
    "HS111": "centre vectors before you compare them",
    "HS112": "look at the top direction: `--measures anatomy`",
    "HS113": "read more text; compare with `--null`",
    "HS114": "compare equal lengths, or read more text",
    "HS115": "give `--max-tokens`",
    "HS116": "look at these branches",
    "HS117": "`headscan.decone` moves the direction into a bias",
    "HS120": "nothing",
    "HS121": "look at this layer",
    "HS122": "look at the layer with the lowest value",
    "HS123": "say on how many tokens the comparison is based",
    "HS124": "give more windows, or fewer tokens a window",
    "HS125": "nothing",
    "HS126": "do not call these layers similar",
    "HS127": "use SVCCA and neighbours there",
    "HS128": "rebuild the index",
    "HS210": "compare a model's loss with it",
    "HS211": "use a lower `--order`",
    "HS212": "use more text, or a lower `--order`",
    "HS213": "nothing",
    "HS214": "nothing",
    "HS215": "train longer where it is low",
    "HS216": "train longer where it is low",
    "HS217": "train longer, or accept generalisation",
    "HS330": "read on the page which limit is broken, or cannot be shown",
    "HS310": "protect states as the text",
    "HS311": "check the attention mask",
    "HS312": "take more features, or less noise",
    "HS320": "nothing",
    "HS321": "use `--method occlusion`",
    "HS322": "explain more predictions: `--generate 8`",
    "HS323": "give more steps, or float32",
    "HS410": "apply it: [how](how-to/search.md)",
    "HS411": "keep the vectors as they are",
    "HS412": "do not apply these",
    "HS413": "fit on more vectors",
    "HS414": "apply it: [how](how-to/compress.md)",
    "HS415": "give more bytes, or take another",
    "HS501": "look at the last batches and the learning rate",
    "HS502": "look at the data and the learning rate",
    "HS503": "look at the block that is named first",
    "HS504": "look at the block that is named first",
    "HS505": "look at the block that is named first",
    "HS506": "look at the block that is named first",
    "HS507": "normalise queries and keys, or cap the logits",
    "HS508": "normalise queries and keys",
    "HS509": "look at `branch_ratio` of that block",
    "HS510": "lower the learning rate",
    "HS511": "warm the learning rate up",
    "HS512": "check `requires_grad` and parameter groups",
    "HS513": "look at the token of that row",
    "HS514": "raise the balancing loss",
    "HS515": "check sampler and shards",
    "HS516": "check the shard",
    "HS517": "go back to an earlier checkpoint; lower the rate",
    "HS601": "check that the right checkpoint was loaded",
    "HS701": "keep blocks in higher precision: `--keep`",
    "HS702": "keep this part in higher precision",
    "HS703": "keep these blocks",
    "HS704": "read these tokens' contexts on the page",
    "HS705": "read these contexts on the page",
    "HS706": "nothing",
    "HS707": "use the commands of the recipe on the page",
}
"""What to do about the findings that are no conditions of a checkup, which have their own words."""
CODES_HEAD = """# Findings

Written by `scripts/registries.py`. HS1 is shape, HS2 prediction, HS3 leak, HS4 remedy, HS5 a
training run, HS6 weights, HS7 damage. Thresholds are conventions unless a test is named;
[how they were set](../lab/docs/methods/checkup.md#findings).

- `--fail-on 'HS101,HS2*'`: exit status 3 where one of these is found; in each such verb.
- `--ignore HS101,SINK`: these do not count; they stay on the page, marked.
- `--baseline last.json`: findings of an earlier result do not count; a new alarm is exit status 3.

| code | found by | means | threshold | what to do |
|---|---|---|---|---|
"""


def codes() -> str:
    """docs/findings.md: every code of every verb, a row each."""
    conditions = dict(CONDITIONS.items())
    lines = []
    for code in sorted({*conditions, *KINDS}):
        kinds = [kind for kind in KINDS.values() if kind.code == code]
        condition = conditions.get(code)
        names = ", ".join(kind.name for kind in kinds)
        verbs = ", ".join([kind.verb for kind in kinds] + ["checkup"] * (condition is not None))
        thresholds = [
            kind.threshold for kind in kinds if condition is None or kind.verb != "checkup"
        ]
        meaning = kinds[0].meaning if kinds else ""
        todo = ADVICE.get(code, "")
        title = names
        if condition is not None:
            side = "at least" if condition.least else "at most"
            alarm = "" if condition.alarm is None else f", alarm {condition.alarm:g}"
            thresholds.append(f"{side} {condition.threshold:g} {condition.unit}{alarm}")
            meaning = condition.meaning
            todo = condition.todo.split(". ")[0].split(": headscan")[0].rstrip(".")
            title = f"{condition.title}{f' ({names})' if names else ''}"
        cells = [f"**{code}** {title}", verbs, meaning, "; ".join(thresholds), todo]
        lines.append(f"| {' | '.join(' '.join(cell.split()) for cell in cells)} |")
    return CODES_HEAD + "\n".join(lines) + "\n"


def page() -> str:
    """The whole page as Markdown."""
    parts = [
        "# What is registered\n\nWritten by `scripts/registries.py`; a test fails when it is out "
        "of date. Measures have",
        "",
    ]
    parts[0] += (
        " a page of their own, [measures](../measures.md).\n[CONTRIBUTING](../../CONTRIBUTING.md) "
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
