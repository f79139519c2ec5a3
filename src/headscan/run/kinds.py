"""A kind of finding: its code, name and meaning, and what its threshold is based on.

Each verb's package declares its kinds in a module `kinds`, and makes its findings from them. HS1..
is shape, HS2.. prediction, HS3.. leak, HS4.. remedy, HS5.. a training run, HS6.. weights, HS7..
damage. The conditions of a checkup (`headscan.diagnosis`) have their words beside their code; a
phenomenon that several verbs name has one code and one pair of limits.
"""

from dataclasses import dataclass

from headscan.run.registry import Registry
from headscan.run.rows import Finding, Level

CONVENTION = "a convention, stated in the number"
TEST = "a test or interval at 95 %"


@dataclass(frozen=True)
class Kind:
    """A kind of finding.

    `ground` is what its threshold is based on, `wrong` how often it was false; `number` is what the
    number of its findings is.
    """

    code: str
    name: str
    verb: str
    meaning: str
    threshold: str
    ground: str = CONVENTION
    wrong: str = "not counted"
    number: str = ""

    def finding(
        self,
        level: Level,
        sentence: str,
        *,
        model: str | None = None,
        site: str | None = None,
        value: float | None = None,
    ) -> Finding:
        """Return a finding of this kind.

        >>> kind = Kind("HS999", "LONG", "scan", "The text is long.", "from 1,000 tokens")
        >>> finding = kind.finding("notice", "It has 2,000 tokens.")
        >>> finding.code, finding.name, finding.level
        ('HS999', 'LONG', 'notice')
        """
        return Finding(
            code=self.code,
            name=self.name,
            level=level,
            sentence=sentence,
            model=model,
            site=site,
            value=value,
            unit=self.number,
        )


KINDS: Registry[Kind] = Registry("finding")
"""Every declared kind by code; `headscan/__init__.py` names the modules that declare them."""


def declare(
    code: str,
    name: str,
    verb: str,
    meaning: str,
    threshold: str,
    ground: str = CONVENTION,
    wrong: str = "not counted",
    number: str = "",
) -> Kind:
    """Return a new kind of finding, after it was registered under its code."""
    return KINDS.add(code, Kind(code, name, verb, meaning, threshold, ground, wrong, number))
