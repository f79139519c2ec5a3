"""An examination in five sentences: one on each question, and what to do."""

from collections.abc import Sequence

from headscan.diagnosis.evidence import ModelEvidence
from headscan.diagnosis.population import TOO_FEW, healthy_without
from headscan.diagnosis.registry import CONDITIONS, QUESTIONS, Question, Seen, alarming
from headscan.diagnosis.result import Observation
from headscan.diagnosis.unexamined import Unexamined
from headscan.scanner.cautions import FEW


def summary(
    evidence: ModelEvidence, observations: Sequence[Observation], missing: Sequence[Unexamined]
) -> list[str]:
    """Return one sentence on each question, then the verdict.

    A sentence gives the most telling observation: whether it is an alarm, a notice or neither, its
    interval, what chance gives and how reference models compare. A question without any
    observation says why.
    """
    by_urgency = ordered(observations)
    sentences = []
    for question, title in QUESTIONS.items():
        first = next((item for item in by_urgency if item.question == question), None)
        if first is None:
            sentences.append(f"{title}: {_reason_without_observation(missing, question)}")
            continue
        heading = CONDITIONS[first.code].heading or title
        sentence = first.sentence.rstrip(".")
        sentences.append(f"{heading}, {_level(first)}: {sentence}{_numbers(first)}.")
    return [*sentences, _verdict(evidence, by_urgency)]


def ordered(observations: Sequence[Observation]) -> list[Observation]:
    """Return alarms first, those before others that they may bring about; then possible alarms and
    notices, by code; then the observations nearest to their thresholds.
    """
    consequences = set[str]()
    for observation in observations:
        if observation.level == "alarm" and observation.code in CONDITIONS:
            consequences.update(CONDITIONS[observation.code].brings)

    def urgency(observation: Observation) -> tuple[bool, bool, bool, bool, float, str]:
        value = float("inf") if observation.value is None else observation.value
        distance = abs(value - observation.threshold) / max(abs(observation.threshold), 1e-9)
        alarm = observation.level == "alarm"
        notice = observation.level == "notice"
        return (
            not alarm,
            not observation.possible,
            not observation.present,
            alarm and observation.code in consequences,
            0.0 if notice else distance,
            observation.code,
        )

    return sorted(observations, key=urgency)


def beyond_limit(possible: Sequence[Observation]) -> str:
    """Return how many numbers lie beyond the limit of an alarm that could not be raised.

    >>> beyond_limit([])
    'no number lies beyond its limit'
    """
    count = len(possible)
    if count > 1:
        return f"{count} numbers lie beyond their limit"
    return f"{count or 'no'} number lies beyond its limit"


def _reason_without_observation(missing: Sequence[Unexamined], question: Question) -> str:
    """Return why a question has no number, and what would examine it."""
    of_question = [row for row in missing if row.question == question]
    of_question.sort(key=lambda row: not row.option)
    if not of_question:
        return "nothing could be examined."
    first = of_question[0]
    option = f" ({first.option} examines it)" if first.option else ""
    return f"not examined: {first.reason}{option}."


def _level(observation: Observation) -> str:
    """Return whether an observation is an alarm, a notice or neither, with its code and title."""
    if not observation.present:
        return "no finding"
    level = "possible alarm" if observation.possible else observation.level
    return f"{level} {observation.code} ({observation.title.lower()})"


def _numbers(observation: Observation) -> str:
    """Return the number with its interval, what chance gives, and how reference models compare."""
    parts = []
    if observation.value is not None:
        ends = ""
        if observation.interval is not None:
            low, high = observation.interval
            ends = f", 95% interval {low:.3g} to {high:.3g}"
        unit = observation.unit.split(" (")[0]
        parts.append(f"{unit} {observation.value:.3g}{ends}")
    if observation.null is not None:
        parts.append(f"{observation.null_of} {observation.null:.2g}")
    if observation.beside and observation.beside != TOO_FEW:
        parts.append(observation.beside)
    return f" ({'; '.join(parts)})" if parts else ""


def _verdict(evidence: ModelEvidence, observations: Sequence[Observation]) -> str:
    """Return what to do first and which alarms are raised, or that none is."""
    may_alarm = [
        observation
        for observation in observations
        if not CONDITIONS[observation.code].known or CONDITIONS[observation.code].brings
    ]
    alarms = [item for item in may_alarm if item.level == "alarm"]
    if not alarms and evidence.few:
        return _verdict_on_few(evidence, observations)

    comparisons = _comparisons(may_alarm, evidence)
    possible = [observation for observation in observations if observation.possible]
    if not alarms:
        verdict = f"No alarm: none of the {len(may_alarm)} alarms checked is raised"
        if possible:
            verdict = (
                f"No certain alarm: {beyond_limit(possible)} ({_named(possible)}), and the 95% "
                "interval includes that limit"
            )
        return "; ".join([verdict, *comparisons]) + "."

    verb = "is" if len(alarms) == 1 else "are"
    verdict = (
        f"What to do first: {alarms[0].advice.rstrip('.')}. {len(alarms)} of {len(may_alarm)} "
        f"alarms {verb} raised: {_named_by_cause(alarms)}."
    )
    if comparisons:
        comparison = "; ".join(comparisons)
        verdict += f" {comparison[:1].upper()}{comparison[1:]}."
    return verdict


def _verdict_on_few(evidence: ModelEvidence, observations: Sequence[Observation]) -> str:
    """Return that too few tokens were read for an alarm, and which numbers might have raised it."""
    possible = [observation for observation in observations if observation.possible]
    names = f" ({_named(possible)})" if possible else ""
    return (
        f"Too few {evidence.unit} to raise an alarm: {evidence.count or 0:,} were read, {FEW:,} "
        f"are needed; {beyond_limit(possible)}{names}."
    )


def _named_by_cause(alarms: Sequence[Observation]) -> str:
    """Return the first alarm's name, then those that may follow from it and those that do not."""
    first = alarms[0]
    consequences = []
    independent = []
    for alarm in alarms[1:]:
        if alarm.code in CONDITIONS[first.code].brings:
            consequences.append(alarm)
        else:
            independent.append(alarm)

    parts = [_named([first])]
    if consequences:
        parts.append(f"{_named(consequences)} may follow from it")
    if independent:
        parts.append(f"{_named(independent)} as well")
    return "; ".join(parts)


def _comparisons(observations: Sequence[Observation], evidence: ModelEvidence) -> list[str]:
    """Return how many healthy reference models raise none of these alarms, and which of them the
    architecture raises without its training.
    """
    sentences = []
    counts = healthy_without({observation.code for observation in observations}, evidence)
    if counts is not None:
        without_alarm, healthy = counts
        share = f"{without_alarm} of {healthy}"
        if without_alarm == healthy:
            share = f"all {healthy}"
        sentences.append(f"{share} healthy reference models raise none")

    nulls = {}
    for observation in observations:
        if observation.null is not None and observation.null_of == Seen.null_of:
            nulls[observation.code] = observation.null
    if nulls:
        codes = alarming(nulls)
        raised = [observation for observation in observations if observation.code in codes]
        names = f"{len(raised)}: {_named(raised)}" if raised else "none"
        sentences.append(f"the same architecture with random weights raises {names}")
    return sentences


def _named(observations: Sequence[Observation]) -> str:
    """Return conditions by title and code, joined by commas and "and"."""
    names = [f"{observation.title.lower()} ({observation.code})" for observation in observations]
    if len(names) < 2:
        return " and ".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"
