"""The findings of a scan: sentences with a code, a level and the number that they are based on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headscan.measures.measure import WITHOUT_SINKS, leading
from headscan.model.sentence import SENTENCE
from headscan.model.sites import last_block
from headscan.run.kinds import Kind
from headscan.run.rows import Finding, Level, Row
from headscan.scanner.anatomy_findings import built, listed, says
from headscan.scanner.cautions import EDGE, FEW, doubt, edge_caution, is_few, things_at
from headscan.scanner.differences import SAME_LENGTH
from headscan.scanner.kinds import (
    CONE,
    DRIFT,
    FLAT,
    LENGTH,
    ROGUE,
    ROUND,
    SINK,
    SPIKE,
    UNEQUAL,
)

LEANING = 0.15
"""From this average cosine on a cloud is called a cone."""

NARROW = 0.5
"""From this average cosine on a cone is narrow: a notice (HS101). Many healthy models have it."""

CONE_ALARM = 0.7
"""From this average cosine on a cone is an alarm (HS101)."""

CONE_LIMITS = (LEANING, NARROW, CONE_ALARM)

CONE_EDGE = 1.5
"""Within this factor of its limit a cone depends on the length of the windows.

The largest average cosine of gpt-vanilla is 0.18 in windows of 64 and 0.12 in windows of 128.
"""

NEAR_CONE = f"close to the threshold {LEANING:g}; a different window length could cross it"

APART = 0.05
"""Differences of average cosines and of shares up to this are not mentioned."""

FAR_FROM_ORIGIN = 0.5
"""From this ratio of the mean vector's norm to the mean norm on a cloud is off the origin."""

SPIKE_SHARE = 0.5
STRONG_SPIKE = 0.8
"""From these shares of the energy on one direction is mentioned, and is an alarm."""

FLAT_SHARE = 0.1
"""Below this share of the dimensions the effective rank is mentioned."""

SINK_ENERGY = 0.1
"""From this share of the energy on sinks are mentioned."""

SINKS_NOTICED = 0.5
"""From this share of the energy on sinks are a notice (HS104)."""

ROGUE_SHARE = 0.3
"""From this share of the average cosine on a few coordinates are mentioned."""

ROGUE_COSINE = 0.5
"""From this average cosine on that a few coordinates make, they are a notice (HS102)."""


def findings(
    sites: Sequence[Row],
    nulls: Sequence[Row],
    tables: Mapping[str, Sequence[Row]],
    units: Mapping[str, str] | None = None,
) -> list[Finding]:
    """Return the findings about each model of a scan, the most important first.

    `units`: what the vectors of each model are of, where these are no tokens.

    Levels: `alarm` (a strong effect), `notice`, `fine`. Codes are stable: CONE or ROUND (one of the
    two for each model), SINK, DRIFT, SPIKE, FLAT (`fine` where they are barely short of their
    limits), ROGUE, LENGTH; BUILT and SAYS where the scan measured the anatomy. All but SINK, BUILT
    and SAYS are about the tokens that are not sinks; where random weights have the same effect, the
    sentence says so and the level is lower. The thresholds are conventions, stated in each
    sentence, not tests of significance.
    """
    listed_findings: list[Finding | None] = []
    for model in dict.fromkeys(row.text("model") for row in sites):
        rows = _ModelRows.of(model, sites, nulls, (units or {}).get(model, "tokens"))
        listed_findings += [
            _cone(rows),
            _sink(rows),
            _drift(rows),
            _flat(rows),
            _spike(rows),
            _coordinates(rows),
            _climbing(rows.last, rows.things),
        ]
    first_site = sites[0]["site"]
    listed_findings.append(_unequal([row for row in sites if row["site"] == first_site]))
    listed_findings += built(sites, tables.get("anatomy", []))
    listed_findings += says(tables.get("common_direction", []))
    return [finding for finding in listed_findings if finding is not None]


@dataclass(frozen=True)
class _ModelRows:
    """The rows of one model.

    Attributes:
        sites: of tokens; of sentences where there are no others, because the two are not ranked
            together.
        last: the last block.
        random: of the random-weight control, by site.
        things: what the vectors of the last block are of: tokens, sentences or vectors.
    """

    sites: list[Row]
    last: Row
    random: Mapping[str, Row]
    things: str

    @classmethod
    def of(cls, model: str, sites: Sequence[Row], nulls: Sequence[Row], unit: str) -> "_ModelRows":
        rows = [row for row in sites if row["model"] == model]
        of_tokens = [row for row in rows if row["site"] != SENTENCE]
        by_site = {row.text("site"): row for row in of_tokens or rows}
        random = {}
        for row in nulls:
            if row["model"] == model and row["null"] == "random-init":
                random[row.text("site")] = row
        last = by_site[last_block(list(by_site))]
        return cls(list(by_site.values()), last, random, things_at(last["site"], unit))

    def random_value(self, row: Row, name: str) -> float | None:
        """Return a number of the random-weight control at the site of a row."""
        random = self.random.get(row.text("site"))
        return None if random is None else _value(random, name)

    def highest(self, name: str) -> Row | None:
        """Return the site with the largest number; None where no site has it."""
        known = [row for row in self.sites if _value(row, name) is not None]
        return max(known, key=lambda row: _value(row, name) or 0.0, default=None)


def _finding(kind: Kind, level: Level, row: Row, value: float, sentence: str) -> Finding:
    return kind.finding(
        level, sentence, model=row.text("model"), site=row.text("site"), value=value
    )


def _value(row: Row, name: str) -> float | None:
    """Return a number of a site without sinks, where that is known."""
    return row.number(leading(row, name))


def _cosine(row: Row) -> float:
    return _value(row, "average_cosine") or 0.0


def _beside(null: float | None, style: str) -> str:
    """Return the number of random weights in parentheses, where there is one."""
    return "" if null is None else f" (random weights: {null:{style}})"


def _cone(rows: _ModelRows) -> Finding | None:
    """Return one verdict for the model, from its last block and its narrowest site."""
    last = rows.last
    narrowest = rows.highest("average_cosine")
    if narrowest is None:
        return None
    peak = _cosine(narrowest)
    last_cosine = _value(last, "average_cosine")
    # The sentence is about the last block, unless another site alone is a cone.
    at_last = last_cosine is not None and (last_cosine >= LEANING or peak < LEANING)
    row = last if at_last else narrowest
    cosine = _cosine(row)

    caution = doubt(row, "average_cosine", CONE_LIMITS, ".2f")
    null = rows.random_value(row, "average_cosine")
    interval = row.interval(leading(row, "average_cosine"))
    spread = ""
    if interval and not caution:
        spread = f" [{interval[0]:z.2f}, {interval[1]:.2f}]"
    measured = f"at {row['site']}, average cosine {cosine:.2f}{spread}{_beside(null, '.2f')}"
    near = caution
    if not caution and LEANING / CONE_EDGE < peak < LEANING * CONE_EDGE:
        near = f" Highest: {peak:.2f}, at {narrowest['site']}, {NEAR_CONE}."
    # One running text says nothing of other texts.
    things = rows.things
    one_text = things != "vectors" and (bool(caution) or last.get("clusters") == "windows")
    if peak < LEANING:
        here = " in this text" if one_text else ""
        sentence = f"No cone{here}: {things} are nearly unrelated in direction {measured}.{near}"
        return _finding(ROUND, "fine", row, cosine, sentence)

    direction = "lean towards a common direction"
    if cosine >= NARROW:
        direction = "point in similar directions on average"
    subject = f"In this text {things}" if one_text else things.capitalize()
    sentence = f"{subject} {direction} {measured}"
    if at_last and narrowest is not last and peak >= max(LEANING, cosine + APART):
        sentence += f"; most at {narrowest['site']}, {peak:.2f}"
    elif not at_last and row is not last and last_cosine is not None:
        sentence += f"; no more at {last['site']}, {last_cosine:.2f}"
    near = near or edge_caution(peak / NARROW, f"a notice, {NARROW:g}")
    near = near or edge_caution(peak / CONE_ALARM, f"an alarm, {CONE_ALARM:g}")
    level: Level = "notice" if peak >= NARROW else "fine"
    if peak >= CONE_ALARM and not doubt(narrowest, "average_cosine", CONE_LIMITS, ".2f"):
        level = "alarm"
    return _finding(CONE, level, row, cosine, f"{sentence}.{near}")


def _sink(rows: _ModelRows) -> Finding | None:
    """Return the finding about the sinks, at the site whose energy they carry most of."""
    worst = max(rows.sites, key=lambda row: row.number("sink_energy") or 0.0)
    energy = worst.number("sink_energy") or 0.0
    if energy < SINK_ENERGY:
        return None
    style = ".1%" if energy > 0.99 else ".0%"
    count = int(worst.number("sinks") or 0)
    tokens = int(worst.number("tokens") or 0)
    times = worst.number("sink_length") or 0
    sentence = (
        f"Sink {rows.things} ({count:,} of {tokens:,}{_sink_position(worst)}) carry "
        f"{energy:{style}} of the energy at {worst['site']}: their norms are {times:.0f} times "
        f"those of other {rows.things}."
    )
    rank = worst.number("effective_rank")
    rank_without = worst.number(f"effective_rank{WITHOUT_SINKS}")
    if rank is not None and rank_without is not None:
        sentence += (
            f" The effective rank is {rank:.1f} with them and {rank_without:.0f} without; all "
            "other findings leave them out."
        )
    level: Level = "notice" if energy >= SINKS_NOTICED else "fine"
    return _finding(SINK, level, worst, energy, sentence + _massive(worst))


def _sink_position(row: Row) -> str:
    """Return the position at which most sinks are."""
    counted = row.get("sink_positions")
    positions = [int(position) for position, _ in counted[:2]] if isinstance(counted, list) else []
    if not positions:
        return ""
    mostly = "mostly " if len(positions) > 1 else ""
    return f", {mostly}at position {positions[0]}"


def _massive(row: Row) -> str:
    """Return the sentence about massive activations, where there are some."""
    massive = row.get("massive_coordinates")
    if not isinstance(massive, list) or not massive:
        return ""
    coordinates = ", ".join(str(coordinate) for coordinate in massive[:4])
    if len(massive) > 4:
        coordinates += ", ..."
    ratio = row.number("massive_ratio") or 0
    return (
        f" Massive activations: coordinates {coordinates}, up to {ratio:,.0f} times the median "
        "coordinate of the others."
    )


def _drift(rows: _ModelRows) -> Finding | None:
    """Return the finding about a mean vector that is long beside the vectors' norms."""
    last = rows.last
    value = _relative_mean(last)
    if value is None or value <= FAR_FROM_ORIGIN / EDGE:
        return None
    random = rows.random.get(last.text("site"))
    null = None if random is None else _relative_mean(random)
    edge = edge_caution(value / FAR_FROM_ORIGIN, "0.5")
    # The mean norm has the smaller error, and is taken as known.
    scale = 1 / (_value(last, "mean_norm") or 1.0)
    caution = doubt(last, "mean_vector_norm", (FAR_FROM_ORIGIN,), ".2f", edge, scale)
    consequence = ""
    if value >= FAR_FROM_ORIGIN and caution == edge:
        consequence = ": the vectors are far from the origin"
    sentence = (
        f"At {last['site']} the norm of the mean vector is {value:.2f} of the mean "
        f"norm{_beside(null, '.2f')}{consequence}.{caution}"
    )
    return _finding(DRIFT, "notice" if value >= FAR_FROM_ORIGIN else "fine", last, value, sentence)


def _relative_mean(row: Row) -> float | None:
    """Return the norm of the mean vector over the mean norm."""
    mean_norm = _value(row, "mean_norm")
    norm_of_mean = _value(row, "mean_vector_norm")
    if not mean_norm or norm_of_mean is None:
        return None
    return norm_of_mean / mean_norm


def _spike(rows: _ModelRows) -> Finding | None:
    """Return the finding about a direction that carries most of the energy."""
    last = rows.last
    share = _value(last, "top_direction_share")
    if share is None or share <= SPIKE_SHARE / EDGE:
        return None
    null = rows.random_value(last, "top_direction_share")
    sentence = (
        f"One direction carries {share:.0%} of the energy at {last['site']}{_beside(null, '.0%')}"
    )
    highest = rows.highest("top_direction_share") or last
    peak = _value(highest, "top_direction_share") or 0.0
    if peak >= share + APART:
        sentence += f"; most at {highest['site']}, {peak:.0%}"
    edge = edge_caution(share / SPIKE_SHARE, "50%") or edge_caution(
        share / STRONG_SPIKE, "an alarm, 80%"
    )
    caution = doubt(last, "top_direction_share", (SPIKE_SHARE, STRONG_SPIKE), ".0%", edge)
    beyond_null = null is None or share > null + APART
    level: Level = "fine"
    if share >= STRONG_SPIKE and beyond_null and caution == edge:
        level = "alarm"
    elif share >= SPIKE_SHARE:
        level = "notice"
    return _finding(SPIKE, level, last, share, f"{sentence}.{caution}")


def _flat(rows: _ModelRows) -> Finding | None:
    """Return the finding about a cloud that uses few of its dimensions."""
    last = rows.last
    rank = _value(last, "effective_rank")
    width = last.number("width")
    if rank is None or width is None:
        return None
    limit = FLAT_SHARE * width
    flatness = limit / rank
    if flatness <= 1 / EDGE:
        return None
    null = rows.random_value(last, "effective_rank")
    edge = edge_caution(flatness, "a tenth")
    caution = doubt(last, "effective_rank", [limit], ".1f", edge)
    sentence = (
        f"{last['site']} uses about {rank:.1f} of its {width:,} dimensions (effective "
        f"rank){_beside(null, '.1f')}.{caution}"
    )
    return _finding(FLAT, "notice" if flatness > 1 else "fine", last, rank, sentence)


@dataclass(frozen=True)
class _Moving:
    """A number that is told at several lengths of the text where it has moved.

    `limit`: by so much it must have moved since half of the text, or by twice as much since a
    quarter; relative to itself where `relative`.
    """

    words: str
    style: str
    limit: float
    relative: bool = False


MOVING = {
    "effective_rank": _Moving("effective rank", ".1f", 0.1, relative=True),
    "average_cosine": _Moving("average cosine", ".2f", APART),
    "top_direction_share": _Moving("top direction's share", ".2f", APART),
}


def _climbing(last: Row, things: str) -> Finding | None:
    """Return the finding about numbers that the last doublings of the text moved.

    It also says that few tokens were read. The number of tokens until a rank settles is not given:
    extrapolated from the doublings before, it was wrong by factors of up to a thousand on
    encyclopaedic text, whose articles bring new directions (docs/intervals.md).
    """
    few = is_few(last.number("tokens"))
    changes = [_change_of(last, name, few=few) for name in MOVING]
    told = [change.phrase for change in changes if change is not None]
    moved = any(change.moved for change in changes if change is not None)
    rank = _value(last, "effective_rank")
    if rank is None or not (told or few):
        return None
    tokens = last.number("tokens") or 0.0
    sentence = f"{tokens:,.0f} {things} were read"
    if few:
        sentence += f"; an alarm needs at least {FEW:,}"
    sentence += "."
    if told:
        sentence += f" At {last['site']} {'; '.join(told)}."
    if moved:
        sentence += (
            f" These numbers still depend on how many {things} were read: compare equal numbers, "
            "or read more."
        )
    if few and last.get("clusters") == "windows" and things != "vectors":
        sentence += " The intervals describe text like the part that was read, not the rest of it."
    return _finding(LENGTH, "notice", last, rank, sentence)


@dataclass(frozen=True)
class _Change:
    """A number at several lengths of the text, in words; `moved`: by more than its limit."""

    phrase: str
    moved: bool


def _change_of(row: Row, name: str, *, few: bool) -> _Change | None:
    """Return how a number that has moved did so; None for one that has not.

    `few`: whether few tokens were read; then the rank is always told.
    """
    lengths = row.get("lengths")
    curve = row.get(f"{leading(row, name)}_curve")
    value = _value(row, name)
    if not isinstance(lengths, list) or not isinstance(curve, list):
        return None
    if None in curve or value is None:
        return None
    moving = MOVING[name]
    for part in (2, 4):
        # The few sinks are not in these lengths, so that half may be a little more than half.
        longest = 1.05 * lengths[-1] / part
        shorter = [number for number, length in enumerate(lengths) if length <= longest]
        earlier = curve[shorter[-1]] if shorter else value
        change = abs(value - earlier) / (earlier if moving.relative else 1.0)
        moved = change > moving.limit * part / 2
        if moved or (shorter and few and moving.relative):
            steps = []
            for number in range(shorter[-1], len(lengths) - 1):
                steps.append(f"{curve[number]:{moving.style}} at {lengths[number]:,}")
            phrase = (
                f"the {moving.words} was {listed(steps)}, and is {value:{moving.style}} at "
                f"{lengths[-1]:,}"
            )
            return _Change(phrase, moved)
    return None


def _unequal(rows: Sequence[Row]) -> Finding | None:
    """Return the finding about models that read texts of different lengths.

    Their spectral numbers are not compared. `rows`: one for each model.
    """
    tokens = {row.text("model"): row.number("tokens") or 0.0 for row in rows}
    if not tokens or max(tokens.values()) <= (1 + SAME_LENGTH) * min(tokens.values()):
        return None
    row = min(rows, key=lambda row: tokens[row.text("model")])
    fewest = tokens[row.text("model")]
    most = max(tokens.values())
    sentence = (
        f"The models read from {fewest:,.0f} to {most:,.0f} tokens, and spectral numbers change "
        "with the length of a text: their differences are not given. "
        f"`--max-tokens {fewest:.0f}` reads as many of each."
    )
    return _finding(UNEQUAL, "notice", row, fewest, sentence)


def _coordinates(rows: _ModelRows) -> Finding | None:
    """Return the finding about a few coordinates that make most of a cone.

    It is about the last block, or the narrowest site at which there are such coordinates.
    """
    last = rows.last
    cones = [row for row in rows.sites if _cosine(row) >= LEANING]
    for row in sorted(cones, key=lambda row: (row is not last, -_cosine(row))):
        coordinates = row.get("rogue_coordinates")
        share = row.number("rogue_share")
        if not isinstance(coordinates, list) or not coordinates:
            continue
        if share is None or share < ROGUE_SHARE:
            continue
        near = edge_caution(share / ROGUE_SHARE, "30%")
        if _cosine(row) < LEANING * CONE_EDGE:
            near = f" That cone is {NEAR_CONE}."
        sentence = _rogue_sentence(row, coordinates, share)
        level: Level = "notice" if share * _cosine(row) >= ROGUE_COSINE else "fine"
        return _finding(ROGUE, level, row, share, f"{sentence}.{near}")
    return None


def _rogue_sentence(row: Row, coordinates: Sequence[object], share: float) -> str:
    """Return the sentence about a site's rogue coordinates, without its full stop."""
    several = len(coordinates) > 1
    subject = f"Coordinate {coordinates[0]} makes"
    if several:
        subject = f"Coordinates {', '.join(map(str, coordinates))} make"
    sentence = f"{subject} {share:.0%} of the average cosine at {row['site']}"
    cosine = row.number("average_cosine_without_rogue")
    top_share = row.number("top_direction_share_without_rogue")
    rank = row.number("effective_rank_without_rogue")
    if cosine is None or top_share is None or rank is None:
        return sentence
    return (
        f"{sentence}; without {'them' if several else 'it'} {cosine:.2f} is left, a top share of "
        f"{top_share:.2f} and an effective rank of {rank:.0f}"
    )
