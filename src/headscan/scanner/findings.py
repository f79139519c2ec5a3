"""What the numbers say in words: findings with a code, a level and the number they rest on."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Literal

from headscan.measures.measure import WITHOUT_SINKS, leading
from headscan.model.sentence import SENTENCE
from headscan.model.sites import is_block, last_block
from headscan.run.rows import Finding, Row, TextRecord
from headscan.scanner.differences import SAME_LENGTH

# ---- What the anatomy of a cone says in a sentence: who builds it, who takes it away.

CONE = 0.05
AWAY = 0.1
"""Average cosines below CONE are no cone to speak of; shares taken away are named from AWAY on."""


def built(sites: Sequence[Row], rows: Sequence[Row]) -> list[Finding]:
    """One finding (code BUILT) a model, at its last block: the fewest branches that make half of
    the cone's squared length.

    Shares of anatomy are of all tokens, sinks too, as is the cosine that it is a sum of.
    """
    findings = []
    trained = [row for row in rows if not row.get("null") and row["kind"] == "branch"]
    for model in dict.fromkeys(row.text("model") for row in trained):
        mine = [row for row in trained if row["model"] == model and is_block(row.text("site"))]
        last = mine[-1] if mine else None
        at = next(
            (row for row in sites if last and (row["model"], row["site"]) == (model, last["site"])),
            None,
        )
        cosine = at.number("average_cosine") if at is not None else None
        if at is None or cosine is None or cosine < CONE:
            continue
        site = at.text("site")
        shares = [
            (row.text("part"), row.number("share") or 0.0) for row in mine if row["site"] == site
        ]
        shares.sort(key=lambda item: -item[1])
        sums = list(accumulate(share for _, share in shares))
        half = shares[: 1 + next((k for k, total in enumerate(sums) if total >= 0.5), len(sums))]
        branches = _listed([f"{name} ({share:.0%})" for name, share in half])
        text = (
            f"The cone at {site} (average cosine of all tokens {cosine:.2f}) is built by {branches}"
        )
        away = [(name, share) for name, share in shares if share < 0]
        taken = sum(share for _, share in away)
        if taken < -AWAY:
            most = _listed([f"{name} ({-share:.0%})" for name, share in away[:-4:-1]])
            text += f"; {-taken:.0%} is taken away, most by {most}"
        findings.append(_finding("BUILT", "notice", at, half[0][1], f"{text}."))
    return findings


def says(rows: Sequence[Row]) -> list[Finding]:
    """One finding (code SAYS) a model: whether the mean's logits are the tokens' frequencies, and
    what a bias takes away.
    """
    findings = []
    for row in rows:
        r = row.number("correlation")
        chance = row.number("random")
        if row.get("null") or r is None or chance is None:
            continue
        level = f"r = {r:.2f} with the log frequency (a random direction: up to {chance:.2f})"
        words = f"says how {'frequent' if r > 0 else 'rare'} each token is: its logits have {level}"
        if (row.number("random_p") or 0.0) >= 0.05:
            words = (
                "says no more of how frequent each token is than a random one: its logits have "
                f"{level}"
            )
        text = f"The common direction at {row['site']} {words}"
        before = row.number("cosine")
        after = row.number("cosine_after")
        if before is not None and after is not None and before >= CONE:
            text += (
                "; a bias of the head takes it away without changing a logit: average cosine "
                f"{before:.3f}, then {after:.3f}"
            )
        findings.append(_finding("SAYS", "notice", row, r, f"{text}."))
    return findings


def _listed(names: list[str]) -> str:
    """`a, b and c`; of more than six the first six and how many more.

    >>> _listed(["a", "b", "c"])
    'a, b and c'
    """
    if len(names) > 6:
        names = [*names[:6], f"{len(names) - 6} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


NEAR = 1.5
"""Within this factor of its limit a cone depends on the windows: gpt-vanilla's most is .18 in
windows of 64 and .12 in 128.
"""
EDGE = 1.1
"""The same of what is far from the origin, along one direction, or flat: of six causal models on
two texts these numbers moved by less between windows of 64 and 128, and between 2,048 and 20,000
tokens.
"""
FEW = 2048
"""No alarm rests on fewer tokens: all-mpnet-base-v2's average cosine is .41 on 256, .36 on 1,024,
.24 on 2,048 of one text.
"""


def _edge(share: float, limit: str) -> str:
    """The caution of a number that is barely beyond its limit, or barely short of it; `share` 1 is
    the limit itself.
    """
    where = "just beyond" if share >= 1 else "just short of"
    near = (
        f" That is {where} the limit of {limit}: windows or texts of another length may be on its "
        "other side."
    )
    return near if 1 / EDGE < share < EDGE else ""


def _doubt(
    row: Row, name: str, limits: Sequence[float], style: str, edge: str = "", scale: float = 1.0
) -> str:
    """The caution of a number whose interval, times `scale`, holds a limit of its finding (the
    second is that of an alert), or that has none; otherwise that of its `edge`.
    """
    field = leading(row, name)
    ends = row.interval(field)
    least = -1 / max((row.number("tokens") or 2) - 1, 1)
    if ends is None:
        return edge + (
            f" It has no interval: too little was read at {row['site']}."
            if f"{field}_interval" in row
            else ""
        )
    low, high = (end * scale for end in ends)
    held = [
        f"{limit:{style}}{' (an alert)' if k else ''}"
        for k, limit in enumerate(limits)
        if low < limit < high
    ]
    cut = " (the least that it can be)" if name == "average_cosine" and low <= least else ""
    spread = f"{low:z{style}}{cut} to {high:{style}}"  # no -0.00
    said = (
        f" At {row['site']} its 95% interval, {spread}, holds the "
        f"limit{'s' if len(held) > 1 else ''} of {' and '.join(held)}"
    )
    return f"{said}: another such stretch of text may be on the other side." if held else edge


def _here(row: Row, doubt: str) -> str:
    """The words of a finding that rests on one running text, and says nothing of others."""
    return " in this text" if doubt or row.get("clusters") == "windows" else ""


def is_few(read: float | None) -> bool:
    return read is not None and read < FEW


def on_few(read: float | None, site: str | None = None) -> str:
    """The caution of a text of few tokens, or of few sentences at the site of their vectors;
    nothing of others.
    """
    things = "sentences" if site == SENTENCE else "tokens"
    return (
        f" No alarm rests on fewer than {FEW:,} {things}: from there on this would be one."
        if is_few(read)
        else ""
    )


UNREAD = 0.05
UNREAD_SAID = 0.01
"""From these shares of unknown tokens on, no finding rests on a text; and they are spoken of."""


def unread(text: TextRecord | None, model: str) -> Finding | None:
    """That a text has tokens which the model's tokenizer does not know; nothing below one in a
    hundred.
    """
    share = 0.0 if text is None else text.unknown_share
    if text is None or share < UNREAD_SAID:
        return None
    said = f"{share:.0%} of the {text.tokens:,} tokens of the text are unknown to the tokenizer"
    said += (
        ": nothing else is said of what it shows."
        if share >= UNREAD
        else ": all numbers count them as one token."
    )
    return Finding(
        code="UNKNOWN-TOKENS",
        level="alert" if share >= UNREAD else "notice",
        model=model,
        value=share,
        sentence=said,
    )


NARROW = 0.5
LEANING = 0.15
"""From these average cosines on, a cloud is called a narrow cone, and a cone."""
WINDOWS = f"near the limit of {LEANING:g}: windows of another length may be on its other side"
FINDINGS_APART = 0.05
"""Differences of average cosines and of shares up to this are not spoken of."""


def findings(
    sites: Sequence[Row], nulls: Sequence[Row], tables: Mapping[str, Sequence[Row]]
) -> list[Finding]:
    """Findings about each model of a scan, most telling first.

    Levels: `alert` (a strong effect), `notice`, `good`. Codes are stable: CONE or ROUND (one of the
    two, once a model), SINK, DRIFT, SPIKE, FLAT (`good` where they are barely short of their
    limits), ROGUE; BUILT and SAYS where the scan took the anatomy. All but SINK and these two speak
    of the tokens that are no sinks; where random weights do as much, the sentence says so and the
    level is lower. The thresholds are conventions, stated in each text's number, not tests of
    significance.
    """
    found: list[Finding | None] = []
    for model in dict.fromkeys(row.text("model") for row in sites):
        rows = [row for row in sites if row["model"] == model]
        mine = [
            row for row in rows if row["site"] != SENTENCE
        ] or rows  # vectors of tokens and of sentences are not ranked
        last = (by_site := {row.text("site"): row for row in mine})[last_block(list(by_site))]
        random = {
            row.text("site"): row
            for row in nulls
            if row["model"] == model and row["null"] == "random-init"
        }
        found += [_cone(last, mine, random), _sink(mine)]
        found += [one(last, random) for one in (_drift, _flat)]
        found += [_spike(last, mine, random), _coordinates(mine, last), _climbing(last)]
    found.append(_unequal([row for row in sites if row["site"] == sites[0]["site"]]))
    found += built(sites, tables.get("anatomy", [])) + says(tables.get("common_direction", []))
    return [one for one in found if one is not None]


def _finding(
    code: str, level: Literal["alert", "notice", "good"], row: Row, value: float, text: str
) -> Finding:
    return Finding(
        code=code,
        level=level,
        model=row.text("model"),
        site=row.text("site"),
        value=value,
        sentence=text,
    )


def _value(row: Row, name: str) -> float | None:
    return row.number(leading(row, name))


def _of_random(row: Row, random: Mapping[str, Row], name: str) -> float | None:
    site = row.text("site")
    return _value(random[site], name) if site in random else None


def _cone(last: Row, sites: list[Row], random: Mapping[str, Row]) -> Finding | None:
    """One verdict a model, from its last block and its narrowest site, with random weights beside
    it.
    """
    known = [row for row in sites if _value(row, "average_cosine") is not None]
    value = _value(last, "average_cosine")
    top = max(known, key=lambda row: _value(row, "average_cosine") or 0.0, default=None)
    if top is None:
        return None
    peak = _value(top, "average_cosine") or 0.0
    # The last block is spoken of unless another site alone is a cone.
    where, number = (
        (last, value) if value is not None and (value >= LEANING or peak < LEANING) else (top, peak)
    )
    elsewhere = where is last and top is not last and peak >= max(LEANING, number + FINDINGS_APART)
    null = _of_random(where, random, "average_cosine")
    things = "sentences" if last["site"] == SENTENCE else "tokens"
    doubt = _doubt(where, "average_cosine", (LEANING, NARROW), ".2f")
    here = _here(last, doubt)
    ends = where.interval(leading(where, "average_cosine"))
    spread = f" [{ends[0]:z.2f}, {ends[1]:.2f}]" if ends and not doubt else ""
    at = f"at {where['site']}, average cosine {number:.2f}{spread}{_beside(null, '.2f')}"
    near = doubt or (
        f" The most is {peak:.2f}, at {top['site']}, {WINDOWS}."
        if LEANING / NEAR < peak < LEANING * NEAR
        else ""
    )
    if peak < LEANING:
        text = f"No cone{here}: two {things} are nearly unrelated in direction {at}.{near}"
        return _finding("ROUND", "good", where, number, text)
    strong = peak >= NARROW and not _doubt(top, "average_cosine", (LEANING, NARROW), ".2f")
    way = (
        "point much the same way on average"
        if number >= NARROW
        else "lean towards a common direction"
    )
    text = f"{here[1:]} {things} {way} {at}".strip()
    if elsewhere:
        text += f"; most at {top['site']}, {peak:.2f}"
    elif where is not last and value is not None:
        text += f"; no more at {last['site']}, {value:.2f}"
    near = near or _edge(peak / NARROW, f"an alert, {NARROW:g}")
    return _finding(
        "CONE",
        "alert" if strong else "notice",
        where,
        number,
        f"{text[0].upper()}{text[1:]}.{near}",
    )


def _sink(sites: list[Row]) -> Finding | None:
    """What the sinks do, at the site whose energy they carry most of."""
    worst = max(sites, key=lambda row: row.number("sink_energy") or 0.0)
    energy = worst.number("sink_energy") or 0.0
    rank = worst.number("effective_rank")
    if energy < 0.1:
        return None
    places = ".1%" if energy > 0.99 else ".0%"
    count = int(worst.number("sinks") or 0)
    tokens = int(worst.number("tokens") or 0)
    listed = worst.get("sink_positions")
    seen = [int(place) for place, _ in listed[:3]] if isinstance(listed, list) else []
    there = (
        f", at position {seen[0]}"
        if len(seen) == 1
        else f", mostly at position {seen[0]}"
        if seen
        else ""
    )
    text = (
        f"{count:,} of {tokens:,} tokens{there}, carry {energy:{places}} of the energy at "
        f"{worst['site']}: they are "
    )
    text += f"{worst.number('sink_length') or 0:.0f} times as long as the others."
    rest = worst.number(f"effective_rank{WITHOUT_SINKS}")
    if rank is not None and rest is not None:
        text += (
            f" With them the effective rank is {rank:.1f}, without {rest:.0f}; all other findings "
            "are without."
        )
    massive = worst.get("massive_coordinates")
    if isinstance(massive, list) and massive:
        named = ", ".join(str(k) for k in massive[:4]) + (", ..." if len(massive) > 4 else "")
        ratio = (
            f"{worst.number('massive_ratio') or 0:,.0f} times the median coordinate of the others"
        )
        text += f" Massive activations: coordinates {named}, up to {ratio}."
    return _finding("SINK", "notice", worst, energy, text)


def _drift(last: Row, random: Mapping[str, Row]) -> Finding | None:
    def drift(row: Row | None) -> float | None:
        length, mean = (
            (None, None)
            if row is None
            else (_value(row, "mean_norm"), _value(row, "mean_vector_norm"))
        )
        return mean / length if length and mean is not None else None

    value = drift(last)
    null = drift(random.get(last.text("site")))
    if value is None or value <= 0.5 / EDGE:
        return None
    # the mean norm errs less
    edge = _edge(value / 0.5, "0.5")
    scale = 1 / (_value(last, "mean_norm") or 1.0)
    doubt = _doubt(last, "mean_vector_norm", (0.5,), ".2f", edge, scale)
    off = ": the cloud sits off the origin" if value >= 0.5 and doubt == edge else ""
    text = (
        f"At {last['site']} the norm of the mean vector is {value:.2f} of the mean "
        f"norm{_beside(null, '.2f')}{off}"
    )
    return _finding("DRIFT", "notice" if value >= 0.5 else "good", last, value, f"{text}.{doubt}")


def _spike(last: Row, sites: list[Row], random: Mapping[str, Row]) -> Finding | None:
    value = _value(last, "top_direction_share")
    null = _of_random(last, random, "top_direction_share")
    if value is None or value <= 0.5 / EDGE:
        return None
    text = (
        f"One direction carries {value:.0%} of the energy at {last['site']}{_beside(null, '.0%')}"
    )
    top = max(sites, key=lambda row: _value(row, "top_direction_share") or 0.0)
    if (peak := _value(top, "top_direction_share") or 0.0) >= value + FINDINGS_APART:
        text += f"; most at {top['site']}, {peak:.0%}"
    edge = _edge(value / 0.5, "50%") or _edge(value / 0.8, "an alert, 80%")
    doubt = _doubt(last, "top_direction_share", (0.5, 0.8), ".0%", edge)
    strong = value >= 0.8 and (null is None or value > null + FINDINGS_APART) and doubt == edge
    return _finding(
        "SPIKE",
        "alert" if strong else "notice" if value >= 0.5 else "good",
        last,
        value,
        f"{text}.{doubt}",
    )


def _flat(last: Row, random: Mapping[str, Row]) -> Finding | None:
    value = _value(last, "effective_rank")
    null = _of_random(last, random, "effective_rank")
    width = last.number("width")
    share = 0.0 if value is None or width is None else 0.1 * width / value
    if value is None or share <= 1 / EDGE:
        return None
    text = (
        f"{last['site']} uses about {value:.1f} of its {width:,} dimensions (effective "
        f"rank){_beside(null, '.1f')}"
    )
    edge = _doubt(last, "effective_rank", [0.1 * (width or 0.0)], ".1f", _edge(share, "a tenth"))
    return _finding("FLAT", "notice" if share > 1 else "good", last, value, f"{text}.{edge}")


MOVING = {
    "effective_rank": ("effective rank", ".1f", 0.1),
    "average_cosine": ("average cosine", ".2f", FINDINGS_APART),
    "top_direction_share": ("top direction's share", ".2f", FINDINGS_APART),
}
"""By so much (a rank: of itself) a number must have moved since half of the text to be told at its
lengths, or by twice as much since a quarter.
"""


def _climbing(last: Row) -> Finding | None:
    """What the last doublings of the text moved, which are numbers at a length; and that few tokens
    were read (the rank always).

    How many tokens it would take until it settles is not said: extrapolated from the doublings
    before, that number was wrong by factors of up to a thousand on encyclopaedic text, whose
    articles bring new directions (docs/intervals.md).
    """
    moved = list[str]()
    first = _value(last, "effective_rank")
    tokens = last.number("tokens") or 0.0
    lengths = last.get("lengths")
    few = is_few(last.number("tokens"))
    for name, (words, style, limit) in MOVING.items():
        curve = last.get(f"{leading(last, name)}_curve")
        value = _value(last, name)
        if (
            not isinstance(lengths, list)
            or not isinstance(curve, list)
            or None in curve
            or value is None
        ):
            continue
        for part in (2, 4):  # of sinks there are few, and they are not counted
            at = [k for k, length in enumerate(lengths) if length <= 1.05 * lengths[-1] / part]
            before = curve[at[-1]] if at else value
            change = abs(value - before) / (before if name == "effective_rank" else 1.0)
            if change > limit * part / 2 or (at and few and name == "effective_rank"):
                then = [
                    f"{curve[k]:{style}} at {lengths[k]:,}" for k in range(at[-1], len(lengths) - 1)
                ]
                moved.append(
                    f"the {words} was {_listed(then)}, and is {value:{style}} at {lengths[-1]:,}"
                )
                break
    if first is None or not (moved or few):
        return None
    things = "sentences" if last["site"] == SENTENCE else "tokens"
    text = (
        f"{tokens:,.0f} {things} were "
        f"read{f'; no alarm rests on fewer than {FEW:,}' if few else ''}."
    )
    if moved:
        text += (
            f" At {last['site']} {'; '.join(moved)}. What was read decides: compare at equal "
            "length only, or read more."
        )
    if few and last.get("clusters") == "windows":
        text += (
            " The intervals speak of stretches like those read, not of what comes later in the "
            "text."
        )
    return _finding("LENGTH", "notice", last, first, text)


def _unequal(rows: Sequence[Row]) -> Finding | None:
    """Models that read texts of different lengths: their spectral numbers are not compared."""
    tokens = {row.text("model"): row.number("tokens") or 0.0 for row in rows}
    if not tokens or max(tokens.values()) <= (1 + SAME_LENGTH) * min(tokens.values()):
        return None
    least = min(tokens, key=lambda name: tokens[name])
    low = tokens[least]
    high = max(tokens.values())
    text = (
        f"The models read from {low:,.0f} to {high:,.0f} tokens, and spectral numbers change with "
        "the length of a text: their "
    )
    text += f"differences are not given. `--max-tokens {low:.0f}` reads as many of each."
    return _finding(
        "UNEQUAL", "notice", next(row for row in rows if row["model"] == least), low, text
    )


def _beside(null: float | None, style: str) -> str:
    return "" if null is None else f" (random weights: {null:{style}})"


def _coordinates(sites: list[Row], last: Row) -> Finding | None:
    """A few coordinates make most of a cone: at the last block, or where the cone is narrowest."""
    cones = [row for row in sites if (_value(row, "average_cosine") or 0.0) >= LEANING]
    for row in sorted(
        cones, key=lambda row: (row is not last, -(_value(row, "average_cosine") or 0.0))
    ):
        found = row.get("rogue_coordinates")
        share = row.number("rogue_share")
        if not isinstance(found, list) or not found or share is None or share < 0.3:
            continue
        many = (
            f"Coordinates {', '.join(map(str, found))} make"
            if len(found) > 1
            else f"Coordinate {found[0]} makes"
        )
        text = f"{many} {share:.0%} of the average cosine at {row['site']}"
        kept = [
            row.number(f"{name}_without_rogue")
            for name in ("average_cosine", "top_direction_share", "effective_rank")
        ]
        if None not in kept:
            text += f"; without {'them' if len(found) > 1 else 'it'} {kept[0]:.2f} is left, "
            text += f"a top share of {kept[1]:.2f} and an effective rank of {kept[2]:.0f}"
        barely = (_value(row, "average_cosine") or 0.0) < LEANING * NEAR
        near = f" That cone is {WINDOWS}." if barely else _edge(share / 0.3, "30%")
        return _finding("ROGUE", "notice", row, share, f"{text}.{near}")
    return None
