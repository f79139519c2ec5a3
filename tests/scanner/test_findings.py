"""What the numbers say: one verdict on the cone a model, and never without the null beside it."""

import pytest

from headscan.run import Row, TextRecord
from headscan.scanner.cautions import unread
from headscan.scanner.findings import findings


def site(name: str, cosine: float | None, **values: object) -> Row:
    defaults = {"mean_norm": 1.0, "mean_vector_norm": 0.1, "top_direction_share": 0.1}
    return Row(
        {"model": "m", "site": name, "width": 16, "effective_rank": 8.0, "average_cosine": cosine}
        | defaults
        | values
    )


def codes(*cosines: float, random: tuple[float, ...] = ()) -> dict[str, str]:
    nulls = [site(f"block.{k}", value, null="random-init") for k, value in enumerate(random)]
    found_findings = findings(
        [site(f"block.{k}", value) for k, value in enumerate(cosines)], nulls, {}
    )
    assert len(found_findings) == len({finding.name for finding in found_findings})
    return {finding.name: finding.sentence for finding in found_findings}


@pytest.mark.parametrize(
    ("cosines", "code"),
    [((0.05, 0.1), "ROUND"), ((0.36, 0.1), "CONE"), ((0.1, 0.3), "CONE"), ((0.9, 0.6), "CONE")],
)
def test_round_and_cone_are_never_said_at_once(cosines, code):
    sentences = codes(*cosines)
    assert set(sentences) & {"ROUND", "CONE"} == {code}


def test_the_narrowest_site_and_the_last_block_are_in_one_sentence():
    assert "block.0, average cosine 0.36; no more at block.1, 0.10" in codes(0.36, 0.1)["CONE"]
    assert "block.1, average cosine 0.20; most at block.0, 0.60" in codes(0.6, 0.2)["CONE"]


def test_a_cone_near_its_limit_says_that_the_windows_decide():
    for cosine, code in ((0.12, "ROUND"), (0.18, "CONE")):
        assert (
            f"Highest: {cosine}, at block.0, close to the threshold 0.15"
            in codes(cosine, 0.05)[code]
        )
    assert "close to the threshold" not in codes(0.09, 0.05)["ROUND"] + codes(0.3, 0.05)["CONE"]


def test_a_number_near_its_limit_says_that_windows_and_texts_decide_on_both_sides_of_it():
    for name, key, beyond, short, distant, none in (
        ("DRIFT", "mean_vector_norm", 0.51, 0.48, 0.75, 0.4),
        ("SPIKE", "top_direction_share", 0.53, 0.47, 0.7, 0.4),
        ("FLAT", "effective_rank", 1.5, 1.7, 0.75, 2.0),
        ("SPIKE", "top_direction_share", 0.81, 0.79, 0.95, 0.4),
    ):
        selected = [
            next(
                (
                    finding
                    for finding in findings([site("block.0", 0.05, **{key: value})], [], {})
                    if finding.name == name
                ),
                None,
            )
            for value in (beyond, short, distant, none)
        ]
        assert [
            "just beyond the threshold" in selected[0].sentence,
            "just short of the threshold" in selected[1].sentence,
        ] == [True, True]
        assert (selected[1].level, "the limit" in selected[2].sentence, selected[3]) == (
            "notice" if short == 0.79 else "fine",
            False,
            None,
        )
    assert "just short of the threshold of a notice, 0.5" in codes(0.48, 0.1)["CONE"]
    assert "just short of the threshold of an alarm, 0.7" in codes(0.68, 0.1)["CONE"]


def test_an_interval_that_holds_the_limit_raises_no_alarm_and_is_said():
    for name, limit, key, value, ends in (
        ("CONE", "s 0.15, 0.50 (a notice) and 0.70 (an alarm)", "average_cosine", 0.8, [0.0, 0.9]),
        ("ROUND", " 0.15", "average_cosine", 0.08, [0.0, 0.3]),
        ("CONE", " 0.70 (an alarm)", "average_cosine", 0.8, [0.6, 0.9]),
        ("SPIKE", " 80% (an alarm)", "top_direction_share", 0.9, [0.6, 0.99]),
        ("SPIKE", "s 50% and 80% (an alarm)", "top_direction_share", 0.9, [0.3, 0.99]),
        ("FLAT", " 1.6", "effective_rank", 1.0, [0.8, 3.0]),
    ):
        for interval, level, limit_inside in (
            (ends, "notice", True),
            ([value * 0.99, value * 1.01], "alarm", False),
        ):
            row = site(
                "block.0",
                value if key == "average_cosine" else 0.05,
                **{key: value, f"{key}_interval": interval},
            )
            found_findings = findings([row], [], {})
            [finding] = [candidate for candidate in found_findings if candidate.name == name]
            assert (f"includes the threshold{limit}." in finding.sentence) == limit_inside
            assert finding.level == {"ROUND": "fine", "FLAT": "notice"}.get(name, level)


def test_an_alarm_rests_on_the_interval_of_the_site_that_raises_it():
    loose = site("block.1", 0.3, average_cosine_interval=[0.0, 0.6])
    tight = [0.75, 0.85]
    [finding] = [
        candidate
        for candidate in findings(
            [site("block.0", 0.8, average_cosine_interval=tight), loose], [], {}
        )
        if candidate.name == "CONE"
    ]
    assert (finding.level, finding.site) == ("alarm", "block.1")
    assert (
        "most at block.0, 0.80. Uncertain: the 95 % interval at block.1, 0.00 to 0.60, includes "
        "the thresholds 0.15 and 0.50 (a notice)." in finding.sentence
    )


def test_the_site_of_the_largest_share_is_named_where_it_is_not_the_last_block():
    shares = [
        site("block.0", 0.05, top_direction_share=0.7),
        site("block.1", 0.05, top_direction_share=0.55),
    ]
    [sentence] = [
        finding.sentence for finding in findings(shares, [], {}) if finding.name == "SPIKE"
    ]
    assert "55% of the energy at block.1; most at block.0, 70%" in sentence


def test_random_weights_stand_beside_the_cone():
    assert "random weights: 0.45" in codes(0.1, 0.09, random=(0.3, 0.45))["ROUND"]
    assert "random weights: 0.10" in codes(0.5, 0.6, random=(0.1, 0.1))["CONE"]


def test_undefined_numbers_make_no_finding():
    assert (
        findings(
            [site("block.0", None, mean_norm=None, top_direction_share=None, effective_rank=None)],
            [],
            {},
        )
        == []
    )


def test_findings_speak_of_the_tokens_that_are_no_sinks():
    """A block of Qwen2.5-Coder-1.5B: with its sink a needle and one dimension, without neither."""
    numbers = {
        "top_direction_share": 0.99,
        "effective_rank": 1.2,
        "mean_vector_norm": 0.9,
        "average_cosine": 0.6,
    }
    without_sinks = {
        "top_direction_share": 0.18,
        "effective_rank": 8.0,
        "mean_vector_norm": 0.1,
        "average_cosine": 0.05,
    }
    cells = (
        numbers
        | {f"{name}_without_sinks": value for name, value in without_sinks.items()}
        | {"mean_norm_without_sinks": 1.0}
    )
    sink = {
        "sinks": 16,
        "tokens": 2048,
        "sink_energy": 0.98,
        "sink_length": 82.0,
        "sink_positions": [[0, 15], [1, 1]],
    }
    massive = {"massive_coordinates": [4, 7], "massive_ratio": 2500.0}
    row = site("block.0", None, **cells, **sink, **massive)
    sentences = {finding.name: finding.sentence for finding in findings([row], [], {})}
    assert set(sentences) == {"ROUND", "SINK"}
    assert (
        "Sink tokens (16 of 2,048, mostly at position 0) carry 98% of the energy at block.0"
        in sentences["SINK"]
    )
    assert "The effective rank is 1.2 with them and 8" in sentences["SINK"]
    assert "coordinates 4, 7, up to 2,500 times" in sentences["SINK"]
    assert {
        finding.name for finding in findings([row | {"sinks": 0, "sink_energy": 0.0}], [], {})
    } == {"ROUND"}


def test_coordinates_that_make_a_cone_are_named_with_what_is_left():
    without_rogue = {"average_cosine": 0.18, "top_direction_share": 0.2, "effective_rank": 7.0}
    left = {f"{name}_without_rogue": value for name, value in without_rogue.items()}
    row = site("block.0", 0.6, rogue_coordinates=[3, 9], rogue_share=0.7, **left)
    sentence = {finding.name: finding.sentence for finding in findings([row], [], {})}["ROGUE"]
    assert sentence.startswith(
        "Coordinates 3, 9 make 70% of the average cosine at block.0; without them 0.18 is left"
    )
    assert "close to the threshold" not in sentence
    for change, near_text in (
        ({"average_cosine": 0.18}, "That cone is close to the threshold 0.15"),
        ({"rogue_share": 0.31}, "just beyond the threshold of 30%"),
    ):
        [near_limit] = [
            finding.sentence
            for finding in findings([row | change], [], {})
            if finding.name == "ROGUE"
        ]
        assert near_text in near_limit
    assert "ROGUE" not in {
        finding.name for finding in findings([row | {"average_cosine": 0.1}], [], {})
    }


def test_random_weights_stand_beside_every_finding():
    cells = {"top_direction_share": 0.9, "effective_rank": 1.2, "mean_vector_norm": 0.9}
    row = site("block.0", 0.9, **cells)
    null = site("block.0", 0.9, **cells, null="random-init")
    by_name = {finding.name: finding for finding in findings([row], [null], {})}
    named = {code for code, finding in by_name.items() if "random weights" in finding.sentence}
    assert named == {"CONE", "SPIKE", "DRIFT", "FLAT"}
    assert by_name["SPIKE"].level == "notice"
    assert {finding.name: finding.level for finding in findings([row], [], {})}["SPIKE"] == "alarm"


@pytest.mark.parametrize(
    ("measure", "curve", "lengths"),
    [
        ("effective_rank", [20.0, 25.0, 30.0], "25.0 at 1,024, and is 30.0 at 2,048"),
        ("effective_rank", [29.0, 29.5, 30.0], None),
        ("effective_rank", [40.0, 35.0, 30.0], "35.0 at 1,024, and is"),
        ("effective_rank", [24.0, 28.0, 30.0], "24.0 at 512 and 28.0 at"),
        ("average_cosine", [0.4, 0.16, 0.05], "0.16 at 1,024"),
        ("average_cosine", [0.1, 0.1, 0.05], None),
        ("top_direction_share", [0.6, 0.5, 0.1], "0.50 at 1,024"),
        ("top_direction_share", [0.32, 0.14, 0.1], "0.32 at 512 and 0.14 at"),
    ],
)
def test_a_number_that_moves_with_the_length_of_the_text_is_told_at_its_lengths(
    measure, curve, lengths
):
    row = site(
        "block.0",
        0.05,
        effective_rank=30.0,
        lengths=[512, 1024, 2048],
        tokens=2048,
        **{f"{measure}_curve": curve},
    )
    sentences = {finding.name: finding.sentence for finding in findings([row], [], {})}
    assert ("LENGTH" in sentences) == bool(lengths)
    assert not lengths or f"was {lengths}" in sentences["LENGTH"]


def test_lengths_are_those_that_were_read():
    """Five windows of 384: half of 1,920 tokens was never measured."""
    row = site(
        "block.0",
        0.05,
        effective_rank=26.6,
        lengths=[768, 1536, 1920],
        tokens=1920,
        effective_rank_curve=[11.9, 23.0, 26.6],
    )
    [sentence] = [
        finding.sentence for finding in findings([row], [], {}) if finding.name == "LENGTH"
    ]
    assert "the effective rank was 11.9 at 768 and 23.0 at 1,536, and is 26.6 at 1,920" in sentence


def test_few_tokens_are_said_once_with_the_rank_and_what_intervals_know():
    row = site(
        "block.0",
        0.05,
        effective_rank=30.0,
        lengths=[512, 960, 1920],
        effective_rank_curve=[29.0, 30.0, 30.0],
    )
    few, enough = (
        findings([row | {"tokens": tokens, "clusters": "windows"}], [], {})
        for tokens in (1920, 2048)
    )
    [sentence] = [finding.sentence for finding in few if finding.name == "LENGTH"]
    assert sentence.startswith(
        "1,920 tokens were read; an alarm needs at least 2,048. At block.0 the effective "
        "rank was 30.0 at 960"
    )
    assert "not the rest of it" in sentence
    assert "LENGTH" not in {finding.name for finding in enough}
    assert all("in this text" in finding.sentence for finding in few if finding.name == "ROUND")


def test_an_interval_that_holds_its_limit_leaves_the_origin_open():
    row = site("block.0", 0.05, mean_vector_norm=0.58, mean_vector_norm_interval=[0.47, 0.72])
    open_, shown = (
        next(finding.sentence for finding in findings([cells], [], {}) if finding.name == "DRIFT")
        for cells in (row, row | {"mean_vector_norm_interval": [0.55, 0.62]})
    )
    assert "0.47 to 0.72, includes the threshold 0.50." in open_
    assert ("far from the origin" in open_, "far from the origin" in shown) == (False, True)


def test_a_number_without_an_interval_and_one_that_is_cut_say_so():
    row = site("block.0", 0.6, tokens=101, average_cosine_interval=None)
    assert (
        "It has no interval: too little was read at block.0" in findings([row], [], {})[0].sentence
    )
    [sentence] = [
        finding.sentence
        for finding in findings([row | {"average_cosine_interval": [-0.01, 0.9]}], [], {})
        if finding.name == "CONE"
    ]
    assert "-0.01 (the least that it can be) to 0.90" in sentence


def test_models_that_read_texts_of_unequal_length_are_told_so():
    rows = [site("block.0", 0.05, tokens=2048), site("block.0", 0.05, tokens=1000, model="n")]
    assert "--max-tokens 1000" in next(
        finding.sentence for finding in findings(rows, [], {}) if finding.name == "UNEQUAL"
    )
    assert "UNEQUAL" not in {
        finding.name for finding in findings([rows[0], rows[1] | {"tokens": 2000}], [], {})
    }


@pytest.mark.parametrize(
    ("unknown", "level"), [(0, None), (9, None), (11, "notice"), (50, "notice"), (52, "alarm")]
)
def test_unknown_tokens_are_said_from_one_in_a_hundred_on(unknown, level):
    finding = unread(TextRecord(source="x", tokens=1024, unknown=unknown), "m")
    assert (finding.level if finding else None) == level
