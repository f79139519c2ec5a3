"""The twins' experiment: same data, fair clocks, readings that make sense."""

from __future__ import annotations

import pytest
from scipy import stats

from headscan import BadInput, load
from headscan.text import Windows
from headscan.training import PackedText, fit_tokenizer, recipe_of
from headscan.training.experiment import BIASED, HEADLESS_ARM, VANILLA, run_arm, summary
from headscan.training.twins import TwinsResult


def test_arms_are_measured_on_the_way_and_headless_goes_on_to_equal_time(story_file, tmp_path):
    words = fit_tokenizer([story_file.read_text()], 300)
    plan = recipe_of("gpt").but(steps=6, batch=4, context=16, warmup=2, rate=1e-3)
    data, kept = PackedText.of(Windows(str(story_file), words, 16)).split(0.05)
    common = {"seed": 0, "folder": str(tmp_path), "every": 3}
    vanilla = run_arm(VANILLA, plan, data, kept.rows[:16], words, **common)
    assert [point["step"] for point in vanilla] == [3, 6]
    assert vanilla[0]["nats"]["head"] > vanilla[1]["nats"]["head"]
    assert vanilla[0]["seconds"] < vanilla[1]["seconds"]
    headless = run_arm(HEADLESS_ARM, plan, data, kept.rows[:16], words, seconds=0.5, finetune=2, **common)
    assert headless[-1]["step"] >= 6
    assert headless[-1]["seconds"] >= 0.5
    assert set(headless[-1]["nats"]) == {"tied", "bias", "finetuned"}
    runs = [{"arm": "vanilla", "seed": 0, "points": vanilla}, {"arm": "headless", "seed": 0, "points": headless}]
    protocol = {"text": "a </script> story", "steps": 6, "batch": 4, "context": 16, "vocabulary": 300}
    result = TwinsResult.of(runs, protocol)
    result.save(tmp_path / "twins")
    assert load(tmp_path / "twins").document == result.document
    assert "a &lt;/script&gt; story" in (tmp_path / "twins" / "report.html").read_text()
    assert len(result.frame()) == 4
    assert result.document["summary"][0]["nats"]["mean"] == vanilla[1]["nats"]["head"]
    assert result.document["summary"][3]["nats"]["mean"] == headless[-1]["nats"]["bias"]
    assert len(result.plot().data) == 2
    with pytest.raises(BadInput, match="no runs"):
        TwinsResult.of([], protocol)
    biased = run_arm(BIASED, plan, data, kept.rows[:16], words, **common)
    assert biased[0]["nats"]["head"] < vanilla[0]["nats"]["head"]  # it begins at the unigram distribution


def test_summary_is_students_interval():
    values = [1.0, 2.0, 4.0, 3.5]
    low, high = stats.t.interval(0.95, 3, loc=sum(values) / 4, scale=stats.sem(values))
    assert summary(values)["interval"] == pytest.approx([low, high], abs=1e-4)
    assert summary([1.0])["interval"] is None
