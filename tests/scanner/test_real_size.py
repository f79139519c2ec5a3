"""Models that people use: every figure of a scan against brute force, and a sentence encoder's
sentences against people.
"""

import headscan_lab.evaluation.run
import numpy as np
import pytest
import torch

import headscan
from headscan.text import Windows
from tests.reference import geometry as reference


@pytest.mark.parametrize(
    ("model", "tokens", "sites"),
    [
        # More tokens than dimensions: of as many, sums of squares know the least directions to 1e-6
        # of RankMe only.
        ("all-mpnet-base-v2", 1536, ["embedding", *(f"block.{k}" for k in range(12))]),
        ("qwen", 512, ["embedding", "block.2", "block.13", "block.26", "final_norm"]),
    ],
)
def test_every_figure_of_a_scan_is_brute_force(real, assets, monkeypatch, model, tokens, sites):
    """What differs most is printed (pytest -s)."""
    monkeypatch.setattr(reference, "singular_values", once(reference.singular_values))
    lens = headscan.Lens.load(str(real / model), device="cpu")
    text = str(assets / "text" / "wikitext-2" / "test.txt")
    result = headscan.scan(
        lens, text, max_tokens=tokens, sites=",".join(sites), measures=",".join(reference.SCALARS)
    )
    # A sentence encoder reads each text by itself, between special tokens and as far as it was made
    # for.
    alone = model == "all-mpnet-base-v2"
    windows = Windows(
        text, lens.require_tokenizer(), 384 if alone else 128, max_tokens=tokens, alone=alone
    )
    rows = torch.from_numpy(np.stack([window.ids for window in windows]))
    with torch.no_grad():
        parts = [
            lens.model(input_ids=part, output_hidden_states=True).hidden_states
            for part in rows.split(4)
        ]
    layers = [torch.cat(layer).double().numpy() for layer in zip(*parts, strict=True)]
    assert [row.text("site") for row in result.sites] == sites
    worst: dict[str, tuple[float, str]] = {}
    for row, site in zip(result.sites, sites, strict=True):
        layer = {"embedding": 0, "final_norm": -1}.get(site)
        slow = figures(layers[int(site.partition(".")[2]) + 1 if layer is None else layer])
        for name, value in slow.items():
            # Ranges differ: a share or a cosine may be near zero, lengths are not.
            apart = np.abs(np.array(row[name], dtype=np.float64) - value).max() / max(
                1.0, np.abs(value).max()
            )
            worst[name] = max(worst.get(name, (0.0, "")), (float(apart), site))
    print(model, sorted(worst.items(), key=lambda item: item[1], reverse=True)[:8])
    assert max(worst.values())[0] <= 1e-6, worst


def once(slow):
    """`slow` of the array that it was asked for last, without asking again."""
    last = [None, None]

    def kept(x):
        if last[0] is None or last[0].shape != x.shape or not np.array_equal(last[0], x):
            last[:] = x, slow(x)
        return last[1]

    return kept


def figures(states):
    """Return, from the states [B, T, d] of a site, all that a scan says of all tokens, without the
    first of a window, without sinks.
    """
    norms = np.linalg.norm(states, axis=2)
    sinks = norms > 3 * np.sort(norms, axis=1)[:, (norms.shape[1] - 1) // 2, None]
    values = {
        "sinks": sinks.sum(),
        "sink_share": sinks.mean(),
        "sink_energy": (norms**2)[sinks].sum() / (norms**2).sum(),
    }
    if sinks.any():
        values["sink_length"] = norms[sinks].mean() / norms[~sinks].mean()
    measures = reference.SCALARS | {"singular_values": reference.singular_values}
    width = states.shape[2]
    rows = {"": states.reshape(-1, width), "_without_first": states[:, 1:].reshape(-1, width)}
    rows["_without_sinks"] = states[~sinks] if sinks.any() else rows[""]
    for suffix, part in rows.items():
        values |= {name + suffix: measure(part) for name, measure in measures.items()}
    x = states[~sinks]
    units = x / np.linalg.norm(x, axis=1, keepdims=True)
    # of all ordered pairs of distinct rows
    parts = (units.sum(0) ** 2 - (units**2).sum(0)) / (len(x) * (len(x) - 1))
    rogue = parts >= 0.1 * parts.sum()
    values |= {
        "rogue_share": parts[rogue].sum() / parts.sum(),
        "average_cosine_without_rogue": parts[~rogue].sum(),
    }
    left = np.where(rogue, 0.0, x)
    values["top_direction_share_without_rogue"] = reference.top_direction_share(left)
    return values | {"effective_rank_without_rogue": reference.effective_rank(left)}


def test_sentences_of_mpnet_are_as_alike_as_people_say(real, assets):
    result = headscan_lab.evaluation.run.evaluate(
        str(real / "all-mpnet-base-v2"), str(assets / "text"), tasks="stsb", limit=300
    )
    scores = {row.number: row.value for row in result.scores}
    assert scores["spearman en"] > 0.8
    assert result.models[0].model_class == "MPNetModel"
