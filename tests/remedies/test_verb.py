"""The verb `remedy`: judged against loops that are obviously right, exported to what the real
libraries read.
"""

import csv

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headscan
from headscan import BadInput
from headscan.remedies import Remedy
from headscan.remedies.drift import drift
from headscan.remedies.retrieval import HeldOutPairs, gain, ranks


def slow_ranks(vectors, pairs):
    """One query at a time, one item at a time."""
    ranks = []
    for query, answer in zip(pairs.queries, pairs.answers, strict=True):
        other_answers = [
            a
            for q, a in zip(pairs.queries, pairs.answers, strict=True)
            if q == query and a != answer
        ]

        def cosine(item, query=query):
            return (
                vectors[query]
                @ vectors[item]
                / np.linalg.norm(vectors[query])
                / np.linalg.norm(vectors[item])
            )

        in_the_way = [item for item in pairs.items if item not in (query, answer, *other_answers)]
        ranks.append(1 + sum(cosine(item) >= cosine(answer) for item in in_the_way))
    return ranks


@pytest.fixture(scope="module")
def cone():
    """Vectors about a far mean that has one loud, meaningless direction; partners share
    the rest.
    """
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((900, 12))
    loud = 8 * rng.standard_normal((2, 900, 1)) * np.eye(12)[0]
    mean = 30 * rng.standard_normal(12)
    return [shared + 0.7 * rng.standard_normal((900, 12)) + noise + mean for noise in loud]


def test_ranks_are_those_of_a_loop():
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((40, 5))
    vectors[7] = 2 * vectors[3]  # as near as the partner: it counts as nearer
    pairs = HeldOutPairs(
        "x", np.array([0, 0, 1, 20]), np.array([3, 9, 3, 21]), np.arange(3, 40), np.arange(4)
    )
    assert ranks(vectors, pairs).tolist() == slow_ranks(vectors, pairs)
    assert ranks(np.zeros((40, 5)), pairs).min() > 30, "all on one point is no success"


def test_an_interval_of_a_gain_covers_and_is_never_clear_of_nothing():
    """True gain .05 of 200 queries, a tenth of which changes anyhow: 95 % of the intervals hold it,
    to the sampling error of 1,000 draws; of no gain, too.
    """
    rng = np.random.default_rng(0)
    for truth in (0.0, 0.05):
        inside = 0
        for _ in range(1000):
            draw = rng.random((2, 200))
            won = draw[0] < 0.1 + truth
            lost = draw[1] < 0.1
            lost_only = lost & ~won
            won_only = won & ~lost
            low, high = gain(lost_only, won_only, np.arange(200), level=0.95)[1]
            expected = (0.1 + truth) * 0.9 - 0.1 * (0.9 - truth)
            inside += low <= expected <= high
        assert inside >= 935, (truth, inside)


def test_a_column_is_cured_and_rewritten(cone, tmp_path):
    column, partners = (rows.astype(np.float32) for rows in cone)
    kind = pa.list_(pa.float32(), 12)
    table = pa.table(
        {
            "name": [f"n{k}" for k in range(900)],
            "v": pa.FixedSizeListArray.from_arrays(pa.array(column.ravel()), type=kind),
        }
    )
    pq.write_table(table, tmp_path / "column.parquet", row_group_size=100)
    np.save(tmp_path / "partners.npy", partners)
    result = headscan.remedy(
        tmp_path / "column.parquet",
        partners=tmp_path / "partners.npy",
        held_out=400,
        out=tmp_path / "out",
        formats="dense,column",
        against=tmp_path / "column.parquet",
    )
    plain = result.row("none")
    best = result.exported[0].remedy
    assert plain.number("recall_at_1") < 0.3
    row = result.row(best)
    assert row.interval("recall_at_1_gain")[0] > 0
    assert result.findings[0].name == "HELPS"
    assert row.number("recall_at_1") - plain.number("recall_at_1") == pytest.approx(
        row.number("recall_at_1_gain")
    )
    assert result.fitted + result.held_out == 900
    remedy = Remedy.load(tmp_path / "out" / "remedy")
    again = pq.read_table(tmp_path / "out" / "column.parquet")
    assert again.column("name").to_pylist() == [f"n{k}" for k in range(900)]
    rows = np.array(again.column("v").to_pylist())
    np.testing.assert_allclose(rows, remedy(column), atol=1e-3)
    same = {row.quantity: row for row in result.drift}
    assert same["same_direction"].value == same["neighbours_kept"].value == 1
    assert same["found_again"].value == pytest.approx(1, abs=0.01)
    assert same["mean_moved"].value == 0
    loaded = headscan.load(tmp_path / "out")
    assert loaded.document == result.document


def test_scikit_learn_takes_the_transformer(cone, tmp_path):
    pytest.importorskip(
        "sklearn", reason="scikit-learn is not installed: its transformer is NOT tried"
    )
    from sklearn.decomposition import PCA
    from sklearn.pipeline import make_pipeline
    from sklearn.utils.estimator_checks import check_estimator

    from headscan.remedies.transformer import RemedyTransformer

    for name in ("all-but-the-top", "whiten"):
        check_estimator(RemedyTransformer(name))
    transformer = RemedyTransformer("whiten", {"keep": 3}).fit(cone[0])
    assert transformer.transform(cone[0]).shape == (900, 3)
    assert list(transformer.get_feature_names_out()) == [
        "remedytransformer0",
        "remedytransformer1",
        "remedytransformer2",
    ]
    loaded = RemedyTransformer.load(transformer.remedy_.save(tmp_path / "kept"))
    np.testing.assert_allclose(loaded.transform(cone[0]), transformer.transform(cone[0]), atol=1e-4)
    assert make_pipeline(RemedyTransformer("centre"), PCA(2)).fit_transform(cone[0]).shape == (
        900,
        2,
    )


def test_drift_sees_what_changed():
    rng = np.random.default_rng(0)
    old = rng.standard_normal((300, 6)) + 1
    turn = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    turned = {row.quantity: row for row in drift(old, old @ turn)}
    assert turned["neighbours_kept"].value == 1, "a rotation keeps every neighbour"
    assert turned["found_again"].interval[1] < 0.5, "but the old index is of no use to it"
    moved = {row.quantity: row for row in drift(old, old + 3)}
    truth = 3 * np.sqrt(6) / np.sqrt(old.var(0).sum())
    assert moved["mean_moved"].value == pytest.approx(truth)
    noisy = {row.quantity: row for row in drift(old, old + 0.3 * rng.standard_normal(old.shape))}
    low, high = noisy["same_direction"].interval
    assert 0.9 < low < noisy["same_direction"].value < high < 1
    wider = {row.quantity: row for row in drift(old, rng.standard_normal((300, 9)))}
    assert wider["same_direction"].value is None
    assert wider["neighbours_kept"].interval[1] < 0.1


def test_documents_are_held_out_whole(cone):
    documents = np.repeat(np.arange(90), 10)
    column = {"vectors": cone[0], "documents": documents}
    result = headscan.remedy(column, partners=cone[1], remedies="centre", held_out=300)
    assert result.held_out % 10 == 0
    assert 0 < result.held_out < 900
    single = headscan.remedy(column, partners=cone[1], remedies="centre", held_out=300)
    assert [dict(row) for row in single.rows] == [dict(row) for row in result.rows]


def test_a_model_is_judged_by_pairs_that_nothing_was_fitted_on(tmp_path):
    nouns = ["hen", "fox", "cat", "dog", "tree", "ball", "house", "boat", "bird", "king"]
    with open(tmp_path / "pairs.csv", "w", newline="") as file:
        for k in range(120):
            sentence = f"The {nouns[k % 10]} saw {k} red {nouns[k // 12]}s."
            csv.writer(file).writerow(
                [sentence, sentence.replace("saw", "found"), 5.0 if k % 3 else 1.0]
            )
    result = headscan.remedy(
        "gpt-vanilla",
        pairs=[tmp_path / "pairs.csv"],
        remedies="centre,whiten-shrunk",
        site="block.1",
    )
    plain = result.row("none", "pairs")
    assert plain["queries"] <= 80 * 0.7
    assert plain["items"] > plain["queries"], (
        "the scored pairs that are no paraphrases are in the way"
    )
    assert plain.interval("spearman") is not None
    assert result.held_out + result.fitted == 240
    assert {finding.name for finding in result.findings} <= {"HELPS", "NO_HELP", "HARMS", "FEW"}
    assert "nothing was fitted on the queries" in result.page()


def test_bad_input_is_one_sentence(tmp_path, cone):
    np.save(tmp_path / "a.npy", cone[0])
    np.save(tmp_path / "short.npy", cone[0][:50])
    nan = cone[0].copy()
    nan[5, 5] = np.nan
    np.save(tmp_path / "nan.npy", nan)
    a = str(tmp_path / "a.npy")
    headscan.states.run(
        "gpt-vanilla-early", "stories", sites="block.3", max_tokens=512, out=tmp_path / "one"
    )
    for options, message in [
        ({"source": str(tmp_path / "one")}, "vectors of too few documents .*: 512 vectors in all"),
        ({"source": cone[0][:1]}, "too few vectors"),
        ({"source": "gpt-vanilla"}, "--pairs FILE"),
        ({"source": a, "partners": str(tmp_path / "short.npy")}, "900, not 50 vectors"),
        ({"source": str(tmp_path / "nan.npy")}, "NaN or infinite"),
        ({"source": a, "remedies": "nonsense"}, "There is no remedy 'nonsense'"),
        ({"source": a, "export": "whiten", "remedies": "centre"}, "--export must be"),
        ({"source": a, "formats": "pickle"}, "--formats must be among"),
        ({"source": a, "formats": "model"}, r"modules\.json"),
        ({"source": {"x": cone[0], "y": cone[0]}}, "--site"),
        ({"source": a, "partners": cone[1][:, :3]}, "width 3"),
    ]:
        with pytest.raises(BadInput, match=message) as refused:
            headscan.remedy(options.pop("source"), **options)
        assert "\n" not in str(refused.value)
