"""The claims on next-token prediction: a number of each of five random instances, by the name of what it checks."""

from collections.abc import Callable
from functools import partial

from headscan.run import BadInput
from headscan_lab.ledger.experiment import EXPERIMENTS, Experiment, ExperimentOutcome, ExperimentWords, Power, StandIn
from headscan_lab.ledger.measurement import Measurement, exactly, mean_of
from headscan_lab.theory import checks
from headscan_lab.theory.checks import Found

SEEDS = 5
CHECKS: dict[str, Callable[[int], Found]] = {
    name: check for name, check in vars(checks).items() if getattr(check, "__annotations__", {}) == {"seed": int, "return": Found}
}
"""The functions of headscan_lab.theory.checks that take a seed and give what one instance gave."""


@EXPERIMENTS.register("next-token-theory")
class NextTokenTheory(Experiment):
    """`check`: one of the functions of `claims.ntp_theory` and `claims.ntp_training`. `worst`: the largest of the five
    instances counts, exactly (theorems and formulas); else their mean with its interval (what training does). `control` is the
    name of the check's number that the effect is held against, `cause` what it would show."""

    words = ExperimentWords(
        quantity="the first number of the check, an instance a seed",
        test="the worst of five instances where a formula is checked; Student's interval over five where something is trained",
        scope="random instances of some ten tokens, and stories of a small grammar", range=(-1e6, 1e6),
    )  # fmt: skip
    power = Power(SEEDS, 0)

    check: str
    worst: bool = True
    control: str = ""
    cause: str = ""

    controlled = True

    def __post_init__(self) -> None:
        if self.check not in CHECKS:
            raise BadInput(f"There is no check {self.check!r}; there are: {', '.join(CHECKS)}.")

    def stand_ins(self) -> tuple[StandIn, ...]:
        return (StandIn("five random instances of some ten tokens", "The statement is about any supports and soft labels."),)

    def observe(self, seed: int) -> ExperimentOutcome:
        try:
            found = [CHECKS[self.check](SEEDS * seed + k) for k in range(SEEDS)]
        except BadInput as error:
            return ExperimentOutcome(effect=None, note=str(error))
        join = _worst if self.worst else partial(mean_of, unit="")
        made = {name: join(name, [one[name] for one in found]) for name in found[0]}
        effect, *beside = [one for name, one in made.items() if name != self.control]
        return ExperimentOutcome(effect=effect, control=made.get(self.control), cause=self.cause, beside=tuple(beside), models=())


def _worst(name: str, values: list[float]) -> Measurement:
    return exactly(f"{name}, the largest of {len(values)}", max(values), unit="", seeds=len(values))
