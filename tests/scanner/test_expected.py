"""`scan --dry-run`: what it says before, nothing written, and the memory bound it gives is the one
that a scan announces.
"""

import itertools
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

import headscan
from headscan import BadInput
from headscan.comparison import expected
from headscan.comparison import run as comparison
from headscan.comparison.run import chosen_similarities, estimate_compare
from headscan.scanner.run import estimate_scan
from headscan.states import estimate
from headscan.states.writing import estimate_states
from tests.cli.test_scan_command import run


def test_the_command_says_it_and_writes_nothing(tmp_path):
    done = run(
        "gpt-vanilla",
        "--text",
        "stories",
        "--max-tokens",
        "4096",
        "--dry-run",
        "--out",
        str(tmp_path / "out"),
    )
    assert done.stdout.startswith("gpt-vanilla: ")
    assert "GB of weights" in done.stdout
    assert "4,096 tokens" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_tokens_are_counted_by_the_beginning_and_sites_by_their_globs(tmp_path):
    text = "Once upon a time there was a little girl who had a red ball. " * 3000
    (tmp_path / "t.txt").write_text(text)
    tokens = len(headscan.Lens.load("gpt-vanilla").tokenizer.encode(text, add_special_tokens=False))
    (estimate,) = estimate_scan("gpt-vanilla", tmp_path / "t.txt")
    assert estimate.tokens == pytest.approx(tokens, rel=0.01)
    (few,) = estimate_scan("gpt-vanilla", tmp_path / "t.txt", sites="block.0")
    assert few.memory < estimate.memory
    assert min(few.seconds, estimate.seconds) > 0


@pytest.mark.parametrize(
    "estimated",
    [
        lambda: estimate_scan("gpt-vanilla", "stories", max_tokens=1280),
        lambda: estimate_states("gpt-vanilla", "stories", out="states", max_tokens=1280),
        lambda: estimate_compare(["gpt-vanilla", "gpt-headless"], "stories", max_tokens=1280),
    ],
    ids=["scan", "states", "compare"],
)
def test_times_follow_a_product_that_is_timed(monkeypatch, estimated):
    """A machine of half the speed takes twice as long; the first product, which is slow, does not
    count.
    """
    monkeypatch.setattr(comparison, "sample_seconds", lambda *_: 0.0)
    seconds = []
    for product in (0.01, 0.02):
        ticks = iter([0.0, 5.0, 6.0, 6.0 + product, 7.0, 7.0 + product])
        clock = SimpleNamespace(perf_counter=partial(next, ticks))
        monkeypatch.setattr(estimate, "time", clock)
        (one,) = estimated()
        seconds.append(one.seconds)
    assert seconds[1] == pytest.approx(2 * seconds[0])


def test_intervals_and_draws_of_a_comparison_are_timed(monkeypatch):
    """Each draw and interval takes a second. One model has three sites, the other two; two measures
    are of relations. The first draw and the first interval, which are slow, do not count.
    """
    ticks = itertools.cycle([0.0, 50.0, 60.0, 61.0])
    monkeypatch.setattr(expected, "time", SimpleNamespace(perf_counter=partial(next, ticks)))
    measures = chosen_similarities("cka,rsa,mutual_knn")
    assert expected.sample_seconds([3, 2], 64, measures, 19) == 19 + 2 * (3 + 2 + 6)
    assert expected.sample_seconds([3, 2], 2048, measures, 0) == 4 * 2 * (3 + 2 + 6)
    assert expected.sample_seconds([1], 64, measures, 19) == 0


def test_of_stored_vectors():
    (estimate,) = estimate_scan(np.zeros((3000, 16), dtype=np.float32))
    assert estimate.tokens == 3000
    assert estimate.weights == 0
    assert "for 3,000 tokens" in str(estimate)


def test_what_cannot_be_scanned_is_refused_here_too(tmp_path):
    for call, message in [
        (lambda: estimate_scan("gpt-vanilla"), "--text"),
        (lambda: estimate_scan("gpt-vanilla", "stories", sites="nowhere"), "nowhere"),
        (lambda: estimate_scan(str(tmp_path / "absent.npy")), "no file"),
    ]:
        with pytest.raises(BadInput, match=message):
            call()


def test_states_compare_and_remedy_say_it_too(tmp_path):
    text = "Once upon a time there was a little girl who had a red ball. " * 300
    (tmp_path / "t.txt").write_text(text)
    out = tmp_path / "out"
    (written,) = estimate_states("gpt-vanilla", tmp_path / "t.txt", context=64, out=out)
    stored = headscan.states.run("gpt-vanilla", tmp_path / "t.txt", context=64, out=out)
    assert written.written == pytest.approx(stored.bytes, rel=0.02)
    (both,) = estimate_compare([out, out], context=64)
    assert both.tokens == stored.tokens
    assert both.memory > 8 * sum(site.width for site in stored.sites) ** 2


@pytest.mark.parametrize(
    "command",
    [
        ("compare", "gpt-vanilla", "gpt-headless", "--text", "stories", "--max-tokens", "512"),
        ("states", "gpt-vanilla", "--text", "stories", "--max-tokens", "512"),
    ],
)
def test_every_command_with_an_estimate_writes_nothing(command, tmp_path):
    verb, *arguments = command
    done = run(*arguments, "--dry-run", "--out", str(tmp_path / "out"), program=(verb,))
    assert " GB" in done.stdout
    assert not (tmp_path / "out").exists()
