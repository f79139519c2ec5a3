"""Policies: what must fail fails, what must pass passes, thin evidence decides nothing; the
receipt; what is refused.
"""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from headscan.leaks import privacy
from headscan.leaks.membership import Membership, advantage, area_under, true_positives
from headscan.leaks.policy import read_policy
from headscan.leaks.verdict import judge
from headscan.run import BadInput, Run
from tests.command_line import headscan as cli
from tests.leaks.conftest import settings
from tests.leaks.test_privacy import lens

__all__ = ["lens"]

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "docs" / "policies"
WORDS = tuple("cat sat mat dog ran old red barn near some tall green trees one quiet lake".split())  # noqa: SIM905
TEXT = [" ".join(WORDS[(3 * i + i * i) % len(WORDS)] for i in range(40))]

# Letters by how often they stand in the text: some 4 bits. Noise of a thousandth tells all of them,
# noise of 500 next to nothing, whatever the release: 30 limits whose verdict is known before
# anything is measured.
RELEASES = [
    'what = "states"\nsites = "block.0"',
    'what = "states"\nsites = "block.1"',
    'what = "cache"\nsites = "block.1"',
    'what = "cache"\nstored = "keys"\nsites = "block.0"',
    'what = "logits"',
]
LIMITS = {"mean_bits": 2.0, "worst_position": 3.0, "tokens_read": 0.5}


def written(folder, release, limits, *, noise, windows=30, knows="weights", more=""):
    file = folder / "policy.toml"
    lines = "\n".join(f"{name} = {value}" for name, value in limits.items())
    evidence = f"windows = {windows}\nlength = 3\ndraws = 4\n{more}"
    file.write_text(
        f"[release]\n{release}\nnoise = {noise}\n[attacker]\nknows = '{knows}'\nprior = 'text'\n"
        f"[limits]\n{lines}\n[evidence]\n{evidence}"
    )
    return file


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(("noise", "verdict"), [(0.001, "fail"), (500.0, "pass")])
def test_what_must_fail_fails_and_what_must_pass_passes(lens, tmp_path, release, noise, verdict):
    file = written(tmp_path, release, LIMITS, noise=noise, windows=6, more="share = 0.6")
    result = privacy(lens, TEXT, policy=file)
    assert [(row.limit, row.verdict) for row in result.limits] == [
        (name, verdict) for name in LIMITS
    ]
    assert result.verdict == verdict


def test_thin_evidence_and_weak_attackers_decide_nothing(lens, tmp_path):
    few = privacy(lens, TEXT, policy=written(tmp_path, RELEASES[1], LIMITS, noise=500, windows=5))
    assert {row.limit: row.verdict for row in few.limits} == {
        "mean_bits": "pass",
        "worst_position": "cannot be shown",
        "tokens_read": "pass",
    }
    assert "29" in few.limits[1].evidence
    # The same release to one who has no weights: what it tells those who have them speaks not
    # against it.
    blind = privacy(
        lens,
        TEXT,
        policy=written(tmp_path, RELEASES[1], LIMITS, noise=0.001, windows=5, knows="nothing"),
    )
    assert blind.verdict == "cannot be shown"
    assert any("none was run" in one for one in blind.not_examined)
    # A limit between the proved bounds, and one within the interval of the mean.
    policy = read_policy(written(tmp_path, RELEASES[1], {"mean_bits": 4.0}, noise=1.0))
    row = few.rows[0]
    for ends in ((3.0, 5.0), (0.0, 4.1), None):
        found = judge(policy, [replace(row, bits_upper=4.2, bits_interval=ends)], [])[0]
        assert found.verdict == "cannot be shown", ends
        assert "mean alone" in found.evidence
    assert judge(policy, [], [])[0].verdict == "cannot be shown"
    assert [
        judge(policy, [replace(row, bits_interval=ends)], [])[0].verdict
        for ends in ((4.1, 5), (1, 3.9))
    ] == ["fail", "pass"]


def test_a_clean_release_fails_by_exact_search(lens, tmp_path):
    result = privacy(
        lens,
        TEXT,
        policy=written(tmp_path, RELEASES[1], dict.fromkeys(LIMITS, 0.5), noise=0, windows=8),
    )
    assert {row.verdict for row in result.limits} == {"fail"}
    assert result.limits[0].value > 1.5  # of 3.4 bits, by Fano


@pytest.mark.parametrize("sample", sorted(SAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_the_sample_policies_run_and_leave_a_receipt(lens, tmp_path, sample):
    result = privacy(lens, [TEXT[0][:100]], policy=sample, out=tmp_path / "out")
    receipt = json.loads((tmp_path / "out" / "receipt.json").read_text())
    assert receipt["verdict"] == result.verdict in ("pass", "fail", "cannot be shown")
    assert receipt["policy"]["sha256"]
    assert receipt["protocol"]["text"]["sha256"]
    assert receipt["not_examined"]
    assert {row["limit"] for row in receipt["limits"]} == set(read_policy(sample).wanted)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Not examined" in page
    assert "Receipt" in page


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("[limits]\nmean_bit = 1", r"no key 'mean_bit'.*Did you mean 'mean_bits'"),
        ("[limit]\nmean_bits = 1", r"no table \[limit\].*'limits'"),
        ("[limits]\nmean_bits = 'low'", "mean_bits in .limits. takes a number"),
        ("[limits]\nmean_bits = true", "takes a number"),
        ("[limits]\nmean_bits = -1", "mean_bits must be at least 0"),
        ("[limits]\ntokens_read = 2", "tokens_read must be at most 1"),
        ("[limits]\nmean_bits = nan", "must be a finite number"),
        (
            "[evidence]\nwindows = 2.5\n[limits]\nmean_bits = 1",
            "windows in .evidence. takes a whole number",
        ),
        (
            "[attacker]\nknows = 'all'\n[limits]\nmean_bits = 1",
            "knows must be weights, family or nothing",
        ),
        ("[release]\nwhat = 'sttes'\n[limits]\nmean_bits = 1", "no release 'sttes'.*'states'"),
        (
            "[release]\ndefence = 'rotaton'\n[limits]\nmean_bits = 1",
            "no defence 'rotaton'.*'rotation'",
        ),
        ("[evidence]\ntests = 'indx'\n[limits]\nmean_bits = 1", "no test 'indx'.*'index'"),
        (
            "[evidence]\ntests = 'index'\n[limits]\nmean_bits = 1",
            "test index is of the release embedding",
        ),
        ("", "sets no limit"),
        ("limits = 3", "limits is a table"),
        ("[limits", "no TOML"),
    ],
)
def test_a_policy_that_says_nonsense_is_refused(lens, tmp_path, line, said):
    (tmp_path / "p.toml").write_text(line)
    with pytest.raises(BadInput, match=said):
        privacy(lens, TEXT, policy=tmp_path / "p.toml", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_command_ends_with_status_3_where_a_policy_fails(tmp_path, capsys):
    file = written(
        tmp_path, 'what = "states"\nsites = "block.0"', {"tokens_read": 0.5}, noise=0.0, windows=2
    )
    line = [
        "privacy",
        "gpt-vanilla",
        "--text",
        "stories",
        "--policy",
        str(file),
        "--out",
        str(tmp_path / "o"),
    ]
    assert cli(*line, "--windows", "3").status == 2
    done = cli(*line)
    assert done.status == 3
    assert "Fail: tokens read" in done.stdout


# ---- Membership.


def test_the_numbers_of_a_membership_test_are_those_of_their_definitions():
    generator = np.random.default_rng(0)
    members = generator.normal(1, 1, 90)
    others = generator.normal(0, 1, 110)
    pairs = [(a > b) + 0.5 * (a == b) for a in members for b in others]
    assert area_under(members, others)[0] == pytest.approx(np.mean(pairs))
    share, (low, high) = true_positives(members, others)
    assert share == np.mean([score > sorted(others)[-2] for score in members])
    assert low == 0.0 <= share <= high  # 110 others say nothing of one in a hundred from below
    assert advantage(np.ones(50), np.zeros(50))[0] == 1
    assert advantage(members, members)[0] < 0.2


def test_intervals_of_membership_cover():
    """Normal scores one apart: AUC Φ(1/√2) = .760, advantage 2Φ(1/2) − 1 = .383, true positives at
    1 % Φ(1 − 2.326) = .092.
    """
    truths = {area_under: 0.7602, true_positives: 0.0924}
    generator = np.random.default_rng(1)
    inside = dict.fromkeys([*truths, advantage], 0)
    for _ in range(100):
        members = generator.normal(1, 1, 100)
        others = generator.normal(0, 1, 400)
        for number, truth in truths.items():
            low, high = number(members, others)[1]
            inside[number] += low <= truth <= high
        # What the threshold found on a half gains is at most what the best one does.
        inside[advantage] += advantage(members, others)[1][0] <= 0.3829
    assert inside[area_under] >= 88  # of 100; 95 expected
    assert inside[true_positives] >= 94
    assert inside[advantage] >= 93


def test_a_model_that_learned_its_texts_by_heart_gives_them_away(lens, tmp_path):
    generator = np.random.default_rng(3)
    texts = [" ".join(generator.choice(WORDS, 80)) for _ in range(2)]
    (tmp_path / "members.txt").write_text(texts[0])
    test = Membership(members=str(tmp_path / "members.txt"), tokens=16, pieces=24, neighbours=2)

    def areas():
        rows = test.measure(lens, [list(texts[1].encode())], settings(), Run.quiet())
        return {row.setting: row for row in rows if row.quantity == "AUC"}

    before = areas()
    assert all(row.interval[0] < 0.5 < row.interval[1] for row in before.values())
    saved = {name: value.clone() for name, value in lens.model.state_dict().items()}
    ids = torch.tensor(list(texts[0].encode())).unfold(0, 16, 1)
    optimiser = torch.optim.Adam(lens.model.parameters(), 3e-3)
    for step in range(170):
        logits = lens.model(input_ids=(some := ids[step % 9 :: 9])).logits
        loss = torch.nn.functional.cross_entropy(
            logits[:, :-1].flatten(0, 1), some[:, 1:].flatten()
        )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    after = areas()
    lens.model.load_state_dict(saved)
    assert after["loss"].interval[0] > 0.6
    assert after["neighbours"].value > before["neighbours"].value


def test_the_index_of_clean_embeddings_tells_its_texts_and_much_noise_hides_them(lens):
    text = [" ".join(np.random.default_rng(0).choice(WORDS, 100))]
    rows = privacy(
        lens,
        text,
        release="embedding",
        prior="uniform",
        windows=2,
        length=9,
        candidates=4,
        noise=(0, 500),
        test="index",
    ).trials
    told = {(row.setting, row.quantity): row for row in rows}
    assert told["nearest, noise 0", "AUC"].value == 1
    assert told["nearest, noise 0", "AUC"].interval[0] > 0.8
    assert told["nearest, noise 500", "advantage"].interval[0] < 0.3


def test_the_receipts_of_the_documents_are_true():
    how_to = (SAMPLES.parent / "how-to" / "leaks.md").read_text()
    methods = (ROOT / "lab" / "docs" / "methods" / "leaks.md").read_text()
    for sample in SAMPLES.glob("*.toml"):
        assert f"../policies/{sample.name}" in how_to
        assert f"docs/policies/{sample.name}" in methods
    assert re.search(r"8\.4", methods)
    assert "(29 for\n  90 %)" in methods
    assert math.ceil(math.log(0.05) / math.log(0.9)) == 29


def test_what_cannot_be_is_refused_before_any_work(tmp_path):
    with pytest.raises(BadInput, match="Say which text was trained on"):
        privacy("no-such-model", "stories", test="membership")
    path = tmp_path / "policy.toml"
    path.write_text('[release]\nwhat = "states"\nnoise = 1e308\n[limits]\nmean_bits = 1.0\n')
    with pytest.raises(BadInput, match="noise"):
        read_policy(path)
