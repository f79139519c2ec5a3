"""A sentence encoder that people use: every figure of a scan against brute force, and its sentences against people."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import headscan
from headscan.text import Windows
from tests.reference import geometry as reference


@pytest.mark.parametrize("tokens", [2048])
def test_every_figure_of_a_scan_of_mpnet_is_brute_force(real, assets, tokens):
    lens = headscan.Lens.load(str(real / "all-mpnet-base-v2"), device="cpu")
    text = str(assets / "text" / "wikitext-2" / "test.txt")
    result = headscan.scan(lens, text, max_tokens=tokens, measures=",".join(reference.SCALARS))
    windows = Windows(text, lens.require_tokenizer(), 128, max_tokens=tokens)
    rows = torch.from_numpy(np.stack([window.ids for window in windows]))
    with torch.no_grad():
        parts = [lens.model(input_ids=part, output_hidden_states=True).hidden_states for part in rows.split(4)]
    states = [torch.cat(layer) for layer in zip(*parts, strict=True)]
    assert [row.text("site") for row in result.sites] == ["embedding", *(f"block.{k}" for k in range(12))]
    worst: dict[str, float] = {}
    for row, layer in zip(result.sites, states, strict=True):
        for suffix, kept in (("", layer), ("_without_first", layer[:, 1:])):
            x = kept.reshape(-1, kept.shape[-1]).double().numpy()
            for name, slow in reference.SCALARS.items():
                if (found := row.number(name + suffix)) is not None:
                    # Ranges differ: numbers of a share or a cosine may be near zero, lengths are not.
                    apart = abs(found - slow(x)) / max(1.0, abs(slow(x)))
                    worst[name + suffix] = max(worst.get(name + suffix, 0.0), apart)
    assert set(reference.SCALARS) <= set(worst)
    assert max(worst.values()) <= 1e-6, worst


def test_sentences_of_mpnet_are_as_alike_as_people_say(real, assets):
    found = headscan.training.evaluate(str(real / "all-mpnet-base-v2"), str(assets / "text"), tasks="stsb", limit=300)
    scores = {row.number: row.value for row in found.scores}
    assert scores["spearman en"] > 0.8
    assert found.models[0].model_class == "MPNetModel"
