"""Relevance judgements: nDCG@10 as scikit-learn has it, and a remedy chosen by it."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headscan
from headscan import BadInput
from headscan.remedies.relevance import Relevance, read_qrels, retrieval_scores


def test_numbers_are_those_of_scikit_learn():
    from sklearn.metrics import label_ranking_average_precision_score, ndcg_score

    draw = np.random.default_rng(0)
    vectors = draw.standard_normal((60, 6))
    grades = [
        {int(document): float(draw.integers(1, 4)) for document in draw.choice(40, 5, False)}
        for _ in range(20)
    ]
    scores = retrieval_scores(vectors, Relevance("x", 40, range(40, 60), grades))
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = unit[40:] @ unit[:40].T
    truth = np.zeros((20, 40))
    for row, relevant in enumerate(grades):
        truth[row, list(relevant)] = list(relevant.values())
    expected = [ndcg_score(truth[[row]], cosines[[row]], k=10) for row in range(20)]
    assert scores["ndcg_at_10"] == pytest.approx(expected)
    order = np.argsort(-cosines, axis=1)
    firsts = [1 + np.flatnonzero(truth[row, order[row]] > 0)[0] for row in range(20)]
    assert scores["mrr"] == pytest.approx(1 / np.array(firsts))
    top = np.take_along_axis(truth > 0, order[:, :10], 1).sum(1) / 5
    assert scores["recall_at_10"] == pytest.approx(top)
    single = [{document: 1.0} for document in range(20)]
    one = retrieval_scores(vectors, Relevance("x", 40, range(40, 60), single))
    precision = label_ranking_average_precision_score(np.eye(20, 40), cosines)
    assert one["mrr"].mean() == pytest.approx(precision)


def test_a_remedy_is_chosen_by_judgements_and_applied(tmp_path):
    draw = np.random.default_rng(1)
    topics = draw.standard_normal((30, 8))
    loud = 20 * np.eye(8)[0]
    documents = (
        np.repeat(topics, 4, 0)
        + 0.1 * draw.standard_normal((120, 8))
        + draw.standard_normal((120, 1)) * loud
    )
    queries = topics + draw.standard_normal((30, 1)) * loud
    names = [f"d{row}" for row in range(120)]
    vectors = pa.array(documents.tolist(), pa.list_(pa.float64()))
    pq.write_table(pa.table({"_id": names, "v": vectors}), tmp_path / "documents.parquet")
    np.save(tmp_path / "queries.npy", queries)
    lines = ["query-id\tcorpus-id\tscore"]
    lines += [f"{row // 4}\td{row}\t{1 + row % 2}" for row in range(120)]
    (tmp_path / "qrels.tsv").write_text("\n".join(lines))

    result = headscan.remedy(
        tmp_path / "documents.parquet",
        partners=tmp_path / "queries.npy",
        qrels=tmp_path / "qrels.tsv",
        remedies="whiten,centre",
        out=tmp_path / "out",
    )
    before, after = result.row("none"), result.row("whiten")
    assert after.number("ndcg_at_10") > before.number("ndcg_at_10") + 0.3
    assert after.interval("ndcg_at_10_gain")[0] > 0
    [helps] = [finding for finding in result.findings if finding.name == "HELPS"]
    assert "improves nDCG@10 of" in helps.sentence
    from headscan.remedies.transformer import RemedyTransformer

    applied = RemedyTransformer.load(result.exported[0].path).transform(documents)
    assert np.abs(np.cov(applied, rowvar=False, bias=True) - np.eye(8)).max() < 1e-3
    assert "nDCG@10" in result.page()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no judgement"),
        ("0 0 1 1\nx y", "line 2 of .* is not"),
        ("0 0 7 1\n1 0 99 1", "has no '99'"),
        ("0 0 1 1", "fewer than two queries"),
    ],
)
def test_faulty_judgements_are_refused(tmp_path, text, message):
    (tmp_path / "qrels.txt").write_text(text)
    draw = np.random.default_rng(0)
    with pytest.raises(BadInput, match=message):
        headscan.remedy(
            draw.standard_normal((20, 4)),
            partners=draw.standard_normal((5, 4)),
            qrels=tmp_path / "qrels.txt",
        )


def test_trec_lines_are_read(tmp_path):
    (tmp_path / "qrels.txt").write_text("q1 0 d1 2\n\nq1 0 d2 0\n")
    assert read_qrels(tmp_path / "qrels.txt") == [("q1", "d1", 2.0), ("q1", "d2", 0.0)]
