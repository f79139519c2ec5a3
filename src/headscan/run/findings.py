"""Every finding of every verb: its code, its name, what it means, and on what its threshold stands;
and which count.

One table, because a reader meets the same phenomenon in a scan and in a checkup. HS1.. is shape,
HS2.. cause, HS3.. leak, HS4.. cure, HS5.. a run, HS6.. weights, HS7.. damage. The conditions of a
checkup (`headscan.diagnosis`) have their words beside their code; those that another verb names,
too, share a code here.
"""

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
from headscan.run.settings import names_in

R = TypeVar("R")
CONVENTION = "a convention, stated in the number"
TEST = "a test or interval at 95 %"
ALARM_LIMIT = "that of its alarm (docs/registries.md)"
ALARM_GROUND = "300 healthy runs of small models; HS514 and HS516: 102; HS517 needs none"
ALARM_ERRORS = "see docs/training.md"


@dataclass(frozen=True)
class Kind:
    """What a finding is: `threshold` and the `ground` it stands on; `wrong`: how often it was seen
    to be false.
    """

    code: str
    name: str
    verb: str
    meaning: str
    threshold: str
    ground: str = CONVENTION
    wrong: str = "not counted"


KINDS = (
    Kind(
        "HS101",
        "CONE",
        "scan",
        "Two tokens point much the same way on average, so that cosines between them say little.",
        "average cosine of the last block without sinks: from .15, an alert from .5; another site "
        "from .05 more on",
    ),
    Kind(
        "HS102",
        "ROGUE",
        "scan",
        "A few coordinates make most of a cone.",
        "from .3 of the average cosine",
    ),
    Kind(
        "HS104",
        "SINK",
        "scan",
        "A few tokens, mostly the first, are so long that they carry the energy of a layer.",
        "from a tenth of the energy; a sink is longer than three times the median of its window",
    ),
    Kind(
        "HS110", "ROUND", "scan", "There is no cone at any site.", "every average cosine below .15"
    ),
    Kind(
        "HS111",
        "DRIFT",
        "scan",
        "The cloud sits off the origin.",
        "mean vector from half of the average length",
    ),
    Kind(
        "HS112",
        "SPIKE",
        "scan",
        "One direction carries most of the energy.",
        "from half of it, an alert from .8; another site from .05 more on",
    ),
    Kind(
        "HS113",
        "FLAT",
        "scan",
        "Few of the dimensions are used.",
        "effective rank below a tenth of the width",
    ),
    Kind(
        "HS114",
        "LENGTH",
        "scan",
        "A number still changes with the length of the text, or little was read.",
        "last block's rank by a tenth, cosine or top share by .05 since half, twice that since a "
        "quarter; below 2,048 tokens",
    ),
    Kind(
        "HS115",
        "UNEQUAL",
        "scan",
        "Models read texts of unequal lengths: their spectral numbers are not compared.",
        "a length above that of another by more than the tolerance",
    ),
    Kind(
        "HS116",
        "BUILT",
        "scan",
        "Which branches build the cone of the last block.",
        "the fewest that make half of it",
    ),
    Kind(
        "HS117",
        "SAYS",
        "scan",
        "Whether the mean direction says how frequent each token is.",
        "correlation with the log frequency, beside random directions",
        TEST,
    ),
    Kind(
        "HS205",
        "UNKNOWN-TOKENS",
        "scan",
        "The tokenizer does not know the text: nothing else is said of it.",
        "from 1 % it is said, from 5 % it is an alert",
    ),
    Kind(
        "HS120",
        "SAME",
        "compare",
        "Two models have the same states and the same nearest neighbours.",
        "CKA of 1 to six digits and mutual neighbours of at least 0.99",
        "rounding of float32 and float16",
    ),
    Kind(
        "HS121",
        "PARTING",
        "compare",
        "The layer from which on two models differ.",
        "CKA falls by .1 from site to site",
    ),
    Kind(
        "HS122",
        "CLOSENESS",
        "compare",
        "How alike the sites of two models are at least.",
        "least CKA; good from .9",
    ),
    Kind(
        "HS123",
        "PARTLY-ALIGNED",
        "compare",
        "Two tokenizers share few ends of tokens.",
        "below half of the tokens",
    ),
    Kind(
        "HS124",
        "UNTESTED",
        "compare",
        "The text is too short to tell likeness from chance.",
        "below 19 draws",
        TEST,
    ),
    Kind(
        "HS125",
        "BEYOND-NULL",
        "compare",
        "All sites are more alike than the null makes them.",
        "adjusted p of .05",
        TEST,
        "p-values of 280 halves of one text: .025 to .065 at .05",
    ),
    Kind(
        "HS126",
        "WITHIN-NULL",
        "compare",
        "Sites that are no more alike than the null makes them.",
        "adjusted p above .05; an alert from half of the cells",
        TEST,
        "as HS125",
    ),
    Kind(
        "HS127",
        "ONE-DIRECTION",
        "compare",
        "CKA and Procrustes speak of one direction.",
        "from .9 of a site's variance",
    ),
    Kind(
        "HS128",
        "NEIGHBOURS-DIFFER",
        "compare",
        "Two models have the same states up to rotation, scale and shift, but other nearest "
        "neighbours by cosine.",
        "CKA of 1 to six digits, mutual neighbours below 0.99",
        "rounding of float32 and float16",
    ),
    Kind(
        "HS210",
        "BOUND",
        "ntp",
        "The least loss of any model that sees so many tokens, on this text.",
        "always given",
        "computed of this text",
    ),
    Kind(
        "HS211",
        "ONE SUCCESSOR",
        "ntp",
        "Most contexts have one successor: their logits have no finite part.",
        "above half of the contexts",
    ),
    Kind(
        "HS212",
        "UNSETTLED",
        "ntp",
        "More text would bring new successors: the supports are not settled.",
        "above a tenth of next occurrences, by Good and Turing's estimate",
    ),
    Kind(
        "HS213",
        "LOW RANK",
        "ntp",
        "The growing part of the logits is of low rank.",
        "below half of what the distinct supports allow",
    ),
    Kind("HS214", "RANK", "ntp", "The growing part of the logits is not of low rank.", "as HS213"),
    Kind(
        "HS215",
        "DIRECTION",
        "ntp",
        "How far a model's logits point where the text predicts.",
        "cosine; good above .9",
    ),
    Kind(
        "HS216",
        "COLLAPSE",
        "ntp",
        "Whether contexts of equal supports coincide.",
        "cosine; good above .9",
    ),
    Kind(
        "HS217",
        "OUTSIDE",
        "ntp",
        "A model gives probability to tokens that never followed.",
        "above 5 % of it",
    ),
    Kind(
        "HS310",
        "TOLD",
        "flow",
        "How much of the earlier tokens one output gives away.",
        "always given",
        "counted of these prompts",
    ),
    Kind(
        "HS311",
        "LATER",
        "flow",
        "Outputs move with the tokens that follow: the model is not causal.",
        "above 0",
    ),
    Kind(
        "HS312",
        "SHARED",
        "channel",
        "Tokens have one output: no decoder can tell them apart.",
        "above 0",
        "of all tokens",
    ),
    Kind(
        "HS320",
        "FAITHFUL",
        "attribute",
        "Replacing what the map ranks highest lowers the prediction more than chance.",
        "the gain's interval above 0, that of putting back not below",
        TEST,
        "docs/attribution.md has its coverage",
    ),
    Kind(
        "HS321",
        "UNFAITHFUL",
        "attribute",
        "The map ranks tokens no better than chance.",
        "both gains' intervals below a tenth of what random orders leave",
        TEST,
        "as HS320",
    ),
    Kind(
        "HS322",
        "UNDECIDED",
        "attribute",
        "What was measured cannot tell the map from chance.",
        "neither of both",
        TEST,
    ),
    Kind(
        "HS323",
        "INCOMPLETE",
        "attribute",
        "The map's scores miss the sum that they must have.",
        "by more than 1 %",
    ),
    Kind(
        "HS601",
        "UNTRAINED",
        "weights",
        "Most matrices have the spectra of random numbers: the weights look untrained.",
        "half of the matrices: no spike, and no further from random than twice what draws are",
        "untrained models, counted",
        "1 of 4 trained models, most of whose matrices are as they were drawn; docs/weights.md "
        "has the table",
    ),
    Kind(
        "HS701",
        "OVER-LIMIT",
        "compare",
        "The divergence of a second model's logits is not shown to be below --limit.",
        "upper end of the interval above it",
        TEST,
    ),
    Kind(
        "HS702",
        "WORST-PART",
        "compare",
        "The part of a second model that costs most alone.",
        "greatest divergence",
    ),
    Kind(
        "HS703",
        "KEEPING",
        "compare",
        "Whether the blocks kept beat other choices of as many bytes.",
        "paired intervals",
        TEST,
    ),
    Kind(
        "HS410",
        "HELPS",
        "remedy",
        "A remedy improves retrieval.",
        "interval of the gain above 0",
        TEST,
    ),
    Kind(
        "HS411",
        "NO_HELP",
        "remedy",
        "No remedy improves retrieval.",
        "no gain's interval above 0",
        TEST,
    ),
    Kind(
        "HS412",
        "HARMS",
        "remedy",
        "Retrieval falls under a remedy.",
        "interval of the gain below 0",
        TEST,
    ),
    Kind(
        "HS413", "FEW", "remedy", "Remedies were fitted on few vectors.", "below four a dimension"
    ),
    Kind(
        "HS501",
        "LOSS-LEAP",
        "train",
        "The loss leapt above what was logged lately.",
        ALARM_LIMIT,
        ALARM_GROUND,
        ALARM_ERRORS,
    ),
    Kind(
        "HS502",
        "LOSS-RISE",
        "train",
        "The loss rose and stayed there.",
        ALARM_LIMIT,
        ALARM_GROUND,
        ALARM_ERRORS,
    ),
    Kind(
        "HS503",
        "CLOSING-CONE",
        "train",
        "The states close into a cone.",
        ALARM_LIMIT,
        ALARM_GROUND,
        ALARM_ERRORS,
    ),
    Kind(
        "HS504",
        "FALLING-RANK",
        "train",
        "The effective rank of a site fell.",
        ALARM_LIMIT,
        ALARM_GROUND,
        ALARM_ERRORS,
    ),
    Kind(
        "HS505",
        "DEAD-COORDINATES",
        "train",
        "Coordinates stopped telling tokens apart.",
        ALARM_LIMIT,
        ALARM_GROUND,
        ALARM_ERRORS,
    ),
    Kind(
        "HS506",
        "GROWING-NORM",
        "train",
        "The mean norm of a site grew.",
        ALARM_LIMIT,
        ALARM_GROUND,
        ALARM_ERRORS,
    ),
    Kind(
        "HS507",
        "LOGIT-GROWTH",
        "train",
        "Attention logits grew beyond what softmax resolves.",
        ALARM_LIMIT,
        ALARM_GROUND,
        ALARM_ERRORS,
    ),
    Kind(
        "HS508",
        "ONE-PLACE-HEAD",
        "train",
        "A head looks at one place.",
        ALARM_LIMIT,
        ALARM_GROUND,
        ALARM_ERRORS,
    ),
    Kind(
        "HS509",
        "OVERFLOW",
        "train",
        "Activations come near the largest number of their precision.",
        ALARM_LIMIT,
        ALARM_GROUND,
        ALARM_ERRORS,
    ),
    Kind(
        "HS510",
        "LARGE-UPDATE",
        "train",
        "A step moves a matrix much further than before.",
        ALARM_LIMIT,
        ALARM_GROUND,
        ALARM_ERRORS,
    ),
    Kind(
        "HS511",
        "NO-WARM-UP",
        "train",
        "The first step moves weights far.",
        ALARM_LIMIT,
        ALARM_GROUND,
        ALARM_ERRORS,
    ),
    Kind(
        "HS512",
        "FROZEN-LAYER",
        "train",
        "A matrix stands still while others move.",
        ALARM_LIMIT,
        ALARM_GROUND,
        ALARM_ERRORS,
    ),
    Kind(
        "HS513",
        "ROW-SPIKE",
        "train",
        "A row of a matrix grew far beyond the others.",
        ALARM_LIMIT,
        ALARM_GROUND,
        ALARM_ERRORS,
    ),
    Kind(
        "HS514",
        "STARVED-EXPERT",
        "train",
        "An expert gets no token.",
        ALARM_LIMIT,
        ALARM_GROUND,
        ALARM_ERRORS,
    ),
    Kind(
        "HS515",
        "REPEATED-DATA",
        "train",
        "Windows come back after a short time.",
        ALARM_LIMIT,
        ALARM_GROUND,
        ALARM_ERRORS,
    ),
    Kind(
        "HS516",
        "OTHER-TOKENS",
        "train",
        "The tokens of the windows are unlike those before.",
        ALARM_LIMIT,
        ALARM_GROUND,
        ALARM_ERRORS,
    ),
    Kind(
        "HS517",
        "NOT-FINITE",
        "train",
        "A loss, gradient, weight, state or reading is NaN or infinite.",
        ALARM_LIMIT,
        ALARM_GROUND,
        ALARM_ERRORS,
    ),
)
NAMED = {kind.name: kind for kind in KINDS}
SPELT = re.compile(r"HS\d{3}")


def listed(names: str | Sequence[str] | None) -> list[str]:
    """Return the globs of codes and names in `--ignore`.

    Raises:
        BadInput: for a glob that matches no finding.
    """
    globs = names_in(names)
    known = [*NAMED, *(kind.code for kind in KINDS)]
    for glob in globs:
        if not SPELT.fullmatch(glob) and not any(fnmatchcase(word, glob) for word in known):
            raise BadInput(
                f"--ignore: no finding is called {glob!r}.{nearest(glob, known)} docs/findings.md "
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
        rows = [(row["code"], row["model"], row["site"]) for row in stored["findings"]]
    except FileNotFoundError:
        raise BadInput(f"--baseline: there is no file {path}.") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise BadInput(f"--baseline: {path} is no result.json of headscan.") from None
    if kind != verb:
        raise BadInput(f"--baseline: {path} is a result of {kind}, not of {verb}.")
    return {
        (NAMED[code].code if code in NAMED else code, model, site) for code, model, site in rows
    }


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


def new_alarms(findings: Iterable[Any]) -> list[str]:
    """Return the codes of the alarms that count, on which a run with a baseline fails."""
    return [
        finding.code
        for finding in findings
        if finding.level == "alert" and not finding.passed and not getattr(finding, "known", False)
    ]
