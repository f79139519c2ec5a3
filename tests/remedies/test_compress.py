"""Compressed vectors: codes as plain numpy makes them, applied by the libraries that search."""

from pathlib import Path

import numpy as np
import pytest

import headscan
from headscan import BadInput
from headscan.remedies import Remedy
from headscan.remedies.compress import CHOICES, Compression, compressions
from headscan.remedies.relevance import Relevance, retrieval_scores
from headscan.remedies.retrieval import HeldOutPairs, neighbours_kept, ranks
from headscan.statistics import Cloud

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "compress.md"


@pytest.fixture(scope="module")
def rows():
    draw = np.random.default_rng(0)
    return draw.standard_normal((400, 16)) * np.geomspace(3, 0.3, 16) + 2


@pytest.fixture(scope="module")
def fitted(rows):
    cloud = Cloud.of_rows(rows)
    return {choice.name: choice for choice in compressions(cloud, rows, 8, 0)}


def units(compression, rows):
    mapped = (rows - compression.remedy.shift) @ compression.remedy.matrix
    return mapped / np.linalg.norm(mapped, axis=1, keepdims=True)


def assert_same_codes(codes, expected, name):
    """Equal but for values on the border of two codes, as the largest of the fitted rows is."""
    assert (codes == expected).mean() > 0.99
    if name.endswith("int8"):
        assert np.abs(codes.astype(int) - expected).max() <= 1


def test_codes_are_those_of_loops_over_all_values(rows, fitted):
    assert tuple(fitted) == CHOICES
    for compression in fitted.values():
        codes = compression.encode(rows[:40])
        assert codes[0].nbytes == compression.bytes <= 8
        expected = units(compression, rows[:40])
        np.testing.assert_allclose(compression.queries(rows[:40]), expected, atol=1e-12)
        decoded = compression.decode(codes)
        query = compression.queries(rows[:1])[0]
        np.testing.assert_allclose(compression.scores(query, codes), decoded @ query, atol=1e-6)
        if compression.codebooks is None:
            np.testing.assert_allclose(decoded, expected, atol=1e-6)
            continue
        size = compression.codebooks.shape[2]
        for row in range(40):
            for part, codebook in enumerate(compression.codebooks):
                piece = expected[row, part * size : (part + 1) * size]
                distances = ((codebook - piece) ** 2).sum(1)
                stored = codebook[codes[row, part]]
                assert distances[codes[row, part]] <= distances.min() + 1e-12
                assert decoded[row, part * size : (part + 1) * size].tolist() == stored.tolist()


def test_maps_centre_turn_and_whiten(rows, fitted):
    centred = rows - rows.mean(0)
    values, vectors = np.linalg.eigh(np.cov(rows, rowvar=False, bias=True))
    assert fitted["plain+int8"].remedy(rows).tolist() == rows[:, :8].tolist()
    np.testing.assert_allclose(fitted["centre+int8"].remedy(rows), centred[:, :8], atol=1e-12)
    whitened = fitted["whiten+pq"].remedy(rows)
    np.testing.assert_allclose(np.cov(whitened, rowvar=False, bias=True), np.eye(16), atol=1e-8)
    top = vectors[:, ::-1][:, :8]
    turned = fitted["rotate+int8"].remedy(rows)
    np.testing.assert_allclose(turned @ turned.T, centred @ top @ top.T @ centred.T, atol=1e-8)
    kept = np.cov(turned, rowvar=False, bias=True)
    assert np.trace(kept) == pytest.approx(values[::-1][:8].sum())
    assert np.abs(kept - np.diag(np.diag(kept))).max() > 0.1, "turned away from the components"


def test_centroids_lower_the_error_of_drawn_rows(rows):
    draw = np.random.default_rng(1)
    clustered = draw.standard_normal((50, 16))[draw.integers(0, 50, 2000)]
    clustered = clustered + 0.01 * draw.standard_normal(clustered.shape)
    for choice in compressions(Cloud.of_rows(clustered), clustered, 1, 0):
        if choice.name == "centre+pq":
            decoded = choice.decode(choice.encode(clustered))
            error = ((decoded - choice.queries(clustered)) ** 2).sum(1).mean()
    assert error < 1e-3, "one byte names the 50 clusters"


def test_a_rank_without_divisors_is_cut_into_equal_parts():
    draw = np.random.default_rng(2)
    flat = draw.standard_normal((300, 31)) @ draw.standard_normal((31, 40))
    fitted = {choice.name: choice for choice in compressions(Cloud.of_rows(flat), flat, 8, 0)}
    assert fitted["rotate+pq"].codebooks.shape == (6, 256, 5)
    assert fitted["rotate+pq"].dimensions == 30
    assert fitted["plain+pq"].codebooks.shape == (8, 256, 5)


def test_sentence_transformers_makes_the_same_codes(rows, fitted, tmp_path):
    library = pytest.importorskip("sentence_transformers")
    for name in ("rotate+int8", "centre+binary"):
        compression = fitted[name]
        with np.load(compression.save(tmp_path / f"{name}.npz")) as arrays:
            mapped = (rows - arrays["shift"]) @ arrays["matrix"]
            vectors = mapped / np.linalg.norm(mapped, axis=1, keepdims=True)
            ranges = arrays.get("ranges")
        precision = "ubinary" if ranges is None else "uint8"
        codes = library.quantize_embeddings(vectors, precision, ranges=ranges)
        assert_same_codes(codes, compression.encode(rows), name)


def test_faiss_finds_the_same_neighbours(rows, fitted):
    faiss = pytest.importorskip("faiss", reason="faiss is not installed: its index is NOT tried")
    for name in ("rotate+int8", "centre+binary", "whiten+pq"):
        compression = fitted[name]
        parts, _, size = compression.codebooks.shape
        index = faiss.IndexPQ(parts * size, parts, 8, faiss.METRIC_INNER_PRODUCT)
        faiss.copy_array_to_vector(
            compression.codebooks.astype(np.float32).ravel(), index.pq.centroids
        )
        index.is_trained = True
        index.add(compression.queries(rows).astype(np.float32))
        codes = compression.encode(rows)
        stored = faiss.vector_to_array(index.codes).reshape(codes.shape)
        assert_same_codes(stored, codes, name)
        queries = compression.queries(rows[:5])
        scores, _ = index.search(queries.astype(np.float32), 10)
        for query, found in zip(queries, scores, strict=True):
            expected = np.sort(compression.scores(query, codes))[::-1][:10]
            np.testing.assert_allclose(found, expected, atol=1e-3)


def test_compressed_search_counts_as_a_loop_does(rows, fitted):
    compression = fitted["centre+binary"]
    searched = compression.decode(compression.encode(rows))
    searching = compression.queries(rows)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    shares = []
    for query in range(30):
        order = [item for item in np.argsort(-unit @ unit[query]) if item != query][:10]
        scores = searched @ searching[query]
        others = np.delete(np.arange(400), query)
        kept = [item for item in order if (scores[others] >= scores[item]).sum() <= 10]
        shares.append(len(kept) / 10)
    kept = neighbours_kept(rows, searched, searching, np.arange(30))
    assert kept.tolist() == pytest.approx(shares)

    pairs = HeldOutPairs("x", np.arange(20), np.arange(20, 40), np.arange(20, 400), np.arange(20))
    expected = []
    for query in range(20):
        scores = searched[20:] @ searching[query]
        expected.append((scores >= scores[query]).sum())
    assert ranks(searched, pairs, searching).tolist() == expected
    grades = [{query: 1.0} for query in range(20)]
    relevance = Relevance("x", 380, range(380, 400), grades)
    reciprocal = retrieval_scores(searched, relevance, searching)["mrr"]
    for query in range(20):
        scores = searched[:380] @ searching[380 + query]
        assert round(1 / reciprocal[query]) == (scores >= scores[query]).sum()


def test_the_choice_is_exported_and_a_loss_is_named(tmp_path, monkeypatch):
    draw = np.random.default_rng(3)
    topics = draw.standard_normal((500, 16))
    mean = 30 * draw.standard_normal(16)
    documents = topics + 0.3 * draw.standard_normal(topics.shape) + mean
    result = headscan.remedy(
        documents,
        partners=topics + mean,
        held_out=250,
        remedies="centre",
        compress=8,
        formats="dense,column",
        out=tmp_path / "compressed",
    )
    monkeypatch.chdir(tmp_path)
    sentences = {finding.name: finding.sentence for finding in result.findings}
    assert "plain+binary" in sentences["LOSES"]
    assert "plain" not in result.recommended
    assert sentences["COMPRESSED"].startswith(result.recommended)
    assert [row["compression"] for row in result.compressed] == ["none", *CHOICES]
    assert "compressions tried" in result.page()
    compression = Compression.load("compressed/compression.npz")
    codes = np.load("compressed/column.npy")
    assert (codes == compression.encode(documents)).all()
    mapped = Remedy.load("compressed/remedy")(documents)
    np.testing.assert_allclose(mapped, compression.remedy(documents), atol=1e-3)
    assert headscan.load("compressed").document == result.document

    documented = {}
    exec(HOW_TO.read_text().split("```python\n")[1].split("```")[0], documented)
    np.testing.assert_allclose(documented["units"](documents), compression.queries(documents))
    assert documented["decode"](codes).tolist() == compression.decode(codes).tolist()


def test_without_queries_the_neighbours_decide(rows):
    result = headscan.remedy(rows, held_out=200, remedies="centre", compress=16)
    best = max(result.compressed[1:], key=lambda row: row["neighbours_kept"])
    assert result.recommended == best["compression"]
    assert result.compressed[0]["neighbours_kept"] == 1
    assert not [finding for finding in result.findings if finding.name == "LOSES"]


def test_faulty_input_is_refused(rows, tmp_path):
    with pytest.raises(BadInput, match="compresses nothing: a vector of width 16"):
        headscan.remedy(rows, held_out=200, compress=64, out=tmp_path / "out")
    with pytest.raises(BadInput, match="no saved compression"):
        Compression.load(tmp_path / "nothing.npz")
    with pytest.raises(BadInput, match="--export must be best, none or one of"):
        headscan.remedy(rows, export="plain+pq")
