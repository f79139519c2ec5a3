"""A document as `scan` makes it, from seeded random numbers with a plausible cone: what the pages
are tested on.

The clouds are drawn in a modest width, and every number in the document is computed from them by
the formulas of the contract, so that the numbers, the spectra and the pictures agree with one
another as they do in a real scan.
"""

import zlib
from dataclasses import fields
from types import SimpleNamespace

import numpy as np
import torch

from headscan.measures.measure import MeasureWords
from headscan.run import Finding, ModelRecord, Protocol, Row, TextRecord
from headscan.scanner.picture import nearest
from headscan.scanner.result import Picture, ScanResult

WORDS = """
the a and of to in was it he she they once upon time little girl boy dog cat tree said saw went
home play ball happy sad big red cone pizza story park day one very wanted her his with then asked
mum friend found box inside sky bird
""".split()  # noqa: SIM905 (a list of strings would be fifty lines)

MEASURES = {
    "average_cosine": {
        "title": "Average cosine",
        "group": "cones",
        "range": (-1, 1),
        "column": "average cosine",
        "sentence": "The mean cosine between two different tokens: 0 for a round cloud, 1 when "
        "all point the same way.",
        "formula": "(‖Σû‖² − n) / (n(n − 1))",
        "source": "Ethayarajh 2019, doi:10.18653/v1/D19-1006",
    },
    "mean_norm": {
        "title": "Mean norm",
        "group": "norms",
        "range": (0, None),
        "column": "mean\nnorm",
        "sentence": "How long a token's vector is, on average.",
        "formula": "Σ‖x‖ / n",
        "source": "",
    },
    "mean_vector_norm": {
        "title": "Norm of the mean vector",
        "group": "norms",
        "range": (0, None),
        "sentence": "How long the vector is that all tokens share.",
        "formula": "‖Σx‖ / n",
        "source": "",
    },
    "top_direction_share": {
        "title": "Top-direction share",
        "group": "spectra",
        "range": (0, 1),
        "column": "top\nshare",
        "multiple": True,
        "sentence": "The part of all squared length that lies on one single direction.",
        "formula": "σ₁² / Σσ²",
        "source": "uncentred second moment",
    },
    "effective_rank": {
        "title": "Effective rank",
        "group": "spectra",
        "range": (1, None),
        "column": "eff.\nrank",
        "multiple": True,
        "sentence": "How many directions the cloud really uses, by the entropy of its spectrum.",
        "formula": "exp(−Σ pᵢ log pᵢ), pᵢ = σᵢ² / Σσ²",
        "source": "Roy & Vetterli 2007",
    },
    "participation_ratio": {
        "title": "Participation ratio",
        "group": "spectra",
        "range": (1, None),
        "column": "part.\nratio",
        "multiple": True,
        "sentence": "How many directions the cloud uses once its mean is taken away.",
        "formula": "tr(C)² / ‖C‖²_F",
        "source": "centred covariance",
    },
    "isoscore": {
        "title": "IsoScore",
        "group": "spectra",
        "range": (0, 1),
        "column": "iso-\nscore",
        "multiple": True,
        "sentence": "The participation ratio brought to the range from 0 (a line) to 1 (a ball).",
        "formula": "(PR − 1) / (d − 1)",
        "source": "Rudman et al. 2022, doi:10.18653/v1/2022.findings-acl.262",
    },
}


def scan(
    models: tuple[str, ...] = ("tiny-gpt",),
    *,
    blocks: int = 6,
    width: int = 64,
    tokens: int = 600,
    cone: float = 0.97,
    seed: int = 0,
    nulls: bool = True,
) -> tuple[dict, dict[str, np.ndarray]]:
    """A document and its arrays; the cone of each further model is wider."""
    document: dict = {
        "kind": "scan",
        "headscan": "0.1.0",
        "protocol": protocol(models, seed),
        "models": [],
        "sites": [],
        "nulls": [],
        "measures": MEASURES,
        "findings": [],
        "pictures": {},
    }
    arrays: dict[str, np.ndarray] = {}
    for index, name in enumerate(models):
        rng = np.random.default_rng([seed, index])
        last = max(0.08, cone - 0.55 * index)
        document["models"].append(
            {
                "name": name,
                "architecture": "gpt2" if index == 0 else "bert",
                "model_class": "GPT2LMHeadModel",
                "parameters": 1_912_320 * (index + 1),
                "revision": "c0ffee5",
                "dtype": "float32",
                "depth": blocks,
                "width": width,
                "vocabulary": 4096,
                "sha256": {"model.safetensors": f"{zlib.crc32(name.encode()):08x}" * 8},
            }
        )
        picture, log_frequency = draw_tokens(rng, tokens)
        document["pictures"][name] = picture
        sites = ["embedding", *[f"block.{k}" for k in range(blocks)], "final_norm"]
        for depth, site in enumerate(sites):
            grow = min(depth, blocks) / blocks
            target = (
                0.06 + (last - 0.06) * (0.25 * grow + 0.75 * grow**4)
                if index == 0
                else 0.1 + (last - 0.1) * grow
            )
            cloud = draw_cloud(
                rng, width, target, log_frequency, 3 + 60 * grow**3, np.array(picture["position"])
            )
            document["sites"].append(entry(name, site, depth, cloud, rng))
            arrays[f"picture/{name}/{site}"], arrays[f"picture_share/{name}/{site}"] = top_three(
                cloud
            )
            neighbours = nearest(torch.tensor(cloud), torch.tensor(picture["id"]))
            arrays[f"picture_near/{name}/{site}"], arrays[f"picture_near_cosine/{name}/{site}"] = (
                neighbours
            )
            if nulls:
                twin = draw_cloud(
                    rng,
                    width,
                    0.05 + 0.03 * grow,
                    log_frequency,
                    2 + grow,
                    np.array(picture["position"]),
                )
                document["nulls"].append(
                    entry(name, site, depth, twin, rng) | {"null": "random-init"}
                )
                gaussian = (
                    rng.standard_normal(cloud.shape) * np.linalg.norm(cloud) / np.sqrt(cloud.size)
                )
                document["nulls"].append(
                    entry(name, site, depth, gaussian, rng) | {"null": "gaussian"}
                )
        document["findings"] += findings(name, document["sites"])
    return document, arrays


def protocol(models: tuple[str, ...], seed: int) -> dict:
    return {
        "command": f"headscan scan {' '.join(models)} --text stories.txt --context 128 --null",
        "text": {
            "source": "stories.txt",
            "sha256": "5e" * 32,
            "documents": 1,
            "characters": 2_097_152,
            "tokens": 497_280,
            "dropped_tokens": 97,
        },
        "context": 128,
        "skip_first": 0,
        "max_tokens": None,
        "seed": seed,
        "device": "cpu",
        "dtype": "float32",
        "batch": 32,
        "processes": 1,
        "versions": {
            "headscan": "0.1.0",
            "torch": "2.13.0",
            "transformers": "5.23.0",
            "numpy": "2.4.6",
        },
        "started": "2026-11-21T03:56:17+00:00",
        "seconds": 41.8,
    }


def draw_tokens(rng: np.random.Generator, count: int) -> tuple[dict, np.ndarray]:
    """Words drawn by Zipf's law, each with a little context around it."""
    rank = np.minimum(rng.zipf(1.3, count), len(WORDS)) - 1
    position = rng.integers(0, 128, count)
    position[:5] = 0
    frequency = (60_000 / (rank + 1) ** 1.1).astype(int)
    sentence = [[WORDS[k] for k in rng.integers(0, len(WORDS), 12)] for _ in range(count)]
    picture = {
        "tokens": [" " + WORDS[k] for k in rank],
        "before": [" " + " ".join(sentence_words[:6]) for sentence_words in sentence],
        "after": [" " + " ".join(sentence_words[6:]) for sentence_words in sentence],
        "frequency": frequency.tolist(),
        "id": rank.tolist(),
        "position": position.tolist(),
    }
    return picture, np.log(frequency)


def draw_cloud(rng, width, cosine, log_frequency, length, position) -> np.ndarray:
    """Tokens around a common direction such that two of them have about the given cosine; frequent
    ones lie lower.
    """
    spread = 1 / np.arange(1, width + 1) ** 0.6
    noise = rng.standard_normal((len(log_frequency), width)) * spread
    z = (log_frequency - log_frequency.mean()) / log_frequency.std()
    noise[:, 1] += 1.2 * z
    noise[:, 2] += 0.5 * z**2
    noise -= noise.mean(0)
    axis = np.zeros(width)
    axis[0] = np.sqrt(cosine / (1 - cosine) * (noise**2).sum(1).mean())
    cloud = noise + axis * np.exp(0.12 * rng.standard_normal((len(z), 1)))
    cloud[position == 0] *= 2.5
    return cloud * length / np.linalg.norm(cloud, axis=1).mean()


def top_three(cloud: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    _, sigma, directions = np.linalg.svd(cloud, full_matrices=False)
    signs = np.sign((cloud @ directions[:3].T).mean(0))
    return (cloud @ directions[:3].T * signs).astype(np.float32), (
        sigma[:3] ** 2 / (sigma**2).sum()
    ).astype(np.float32)


def measure(cloud: np.ndarray) -> dict:
    """Every number of the contract, by brute force."""
    n, d = cloud.shape
    unit = cloud / np.linalg.norm(cloud, axis=1, keepdims=True)
    sigma = np.sqrt(np.maximum(np.linalg.eigvalsh(cloud.T @ cloud / n)[::-1], 1e-15))
    share = sigma**2 / (sigma**2).sum()
    covariance = np.cov(cloud.T, bias=True)
    ratio = np.trace(covariance) ** 2 / (covariance**2).sum()
    return {
        "average_cosine": (np.sum(unit.sum(0) ** 2) - n) / (n * (n - 1)),
        "mean_norm": np.linalg.norm(cloud, axis=1).mean(),
        "mean_vector_norm": np.linalg.norm(cloud.mean(0)),
        "top_direction_share": share[0],
        "effective_rank": np.exp(-(share * np.log(share)).sum()),
        "participation_ratio": ratio,
        "isoscore": (ratio - 1) / (d - 1),
        "singular_values": sigma,
    }


def entry(model: str, site: str, depth: int, cloud: np.ndarray, rng: np.random.Generator) -> dict:
    cells: dict = {
        "model": model,
        "site": site,
        "depth": depth,
        "tokens": 497_280,
        "width": cloud.shape[1],
        "notes": [],
        "sinks": 3_885,
        "sink_share": 0.0078,
        "sink_energy": 0.42,
        "sink_length": 9.7,
    }
    without_sinks = measure(cloud[5:])
    for key, value in measure(cloud).items():
        without = without_sinks[key]
        if key == "singular_values":
            cells[key] = value.tolist()
            cells[f"{key}_without_sinks"] = without.tolist()
            continue
        spread = abs(value) * 0.012 * (1 + rng.random())
        if key == "average_cosine":
            spread *= 1 - 0.9 * abs(value)
        spread += 1e-4
        cells |= {
            key: float(value),
            f"{key}_interval": [float(value - spread), float(value + spread)],
            f"{key}_without_sinks": float(without),
            f"{key}_without_sinks_interval": [float(without - spread), float(without + spread)],
        }
    return cells


def findings(model: str, sites: list[dict]) -> list[dict]:
    mine = {s["site"]: s for s in sites if s["model"] == model}
    blocks = [site for site in mine if site.startswith("block.")]
    last = mine[max(blocks, key=lambda site: int(site.split(".")[1]))]
    cosine = last["average_cosine"]
    share = last["top_direction_share"]
    cone = {"code": "CONE", "model": model, "site": last["site"], "value": cosine}
    if cosine > 0.8:
        cone |= {
            "level": "alarm",
            "sentence": "any two tokens of the last block point the same way, mean cosine "
            f"{cosine:.2f}",
        }
    else:
        cone |= {
            "level": "fine",
            "sentence": f"the last block is no narrow cone, mean cosine {cosine:.2f}",
        }
    top = {
        "code": "TOPDIRECTION",
        "level": "notice" if share > 0.3 else "fine",
        "model": model,
        "site": last["site"],
        "value": share,
        "sentence": f"one single direction of the last block carries {share:.0%} of all squared "
        "length",
    }
    return [cone, top]


def shown(document: dict, arrays: dict | None = None, kind: str = "scan"):
    """A result of a document: a scan, or what the kit needs of any other kind. Nothing is checked,
    texts may be hostile.
    """
    models = [made(ModelRecord, record) for record in document.get("models", [])]
    protocol = document.get("protocol", {})
    text = made(TextRecord, protocol["text"]) if "text" in protocol else None
    settings = {
        key: protocol[key]
        for key in ("context", "skip_first", "max_tokens", "batch")
        if key in protocol
    }
    shared = {
        "protocol": made(
            Protocol, {"verb": kind, "settings": settings} | protocol | {"text": text}
        ),
        "models": models,
        "findings": [made(Finding, finding) for finding in document.get("findings", [])],
    }
    if kind != "scan":
        return SimpleNamespace(kind=kind, document=document, arrays={}, **shared)
    default_words = {
        "group": "",
        "sentence": "",
        "formula": "",
        "source": "",
        "undefined": "",
        "range": (None, None),
    }
    return ScanResult(
        **shared,
        sites=list(map(Row, document.get("sites", []))),
        nulls=list(map(Row, document.get("nulls", []))),
        measures={
            name: made(MeasureWords, default_words | record)
            for name, record in document.get("measures", {}).items()
        },
        pictures={
            name: made(Picture, record) for name, record in document.get("pictures", {}).items()
        },
        arrays=arrays or {},
    )


def made(kind: type, record: dict):
    """An instance of a dataclass, from those of the entries that are its fields."""
    return kind(
        **{field.name: record[field.name] for field in fields(kind) if field.name in record}
    )
