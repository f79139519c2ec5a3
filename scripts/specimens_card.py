"""A trained specimen as a folder that any transformers program loads: weights in float16,
tokenizer, card.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from specimens_corpus import Corpus
from specimens_measure import cosine_by_site, held_out_loss
from specimens_sample import sample_stories
from transformers import GPT2LMHeadModel

CARD = """---
license: apache-2.0
language: en
library_name: transformers
pipeline_tag: text-generation
---

# {name}

A specimen of headscan: a tiny GPT-2 ({parameters:,} parameters, {blocks} blocks of width {width},
{heads} heads, context {context}, {vocabulary:,} byte-level BPE tokens) {skill}, made to be looked
into. {story}

    from transformers import AutoModelForCausalLM, AutoTokenizer
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)

The weights are stored in float16 to be small, and load as float32. All figures below are of the
weights as stored.
{unigram_note}
## How it was made

`scripts/make_specimens.py train {name} --text TEXT --work FOLDER`, then `export` with the same
arguments.

- Objective: {objective}
- Text: 2 MiB of TinyStories (Eldan and Li 2023; CDLA-Sharing-1.0), {stories:,} stories for
  training, 5 % held out by a seeded draw. The text itself is not contained here. The tokenizer was
  fitted on the training stories.
- {steps:,} steps of {rows} windows of {context} tokens: {tokens:,} tokens, {passes:.1f} passes over
  the training text; {seconds:,.0f} seconds of one CPU thread (bf16 autocast), measurements
  included, on a machine that did other work too.
- AdamW, peak rate {rate}, {warm_up} steps of warm-up and a cosine to a twentieth, weight decay
  {decay} on matrices, dropout {dropout}, gradient norm at most 1, seed {seed}.

## Held-out loss

{held_out_tokens:,} tokens of held-out stories, windows of {context} tokens. Bits a byte count the
end-of-story marks as tokens, not as bytes.

| logits | nats a token | bits a byte |
|---|---|---|
| as they are | {held_out:.3f} | {held_out_bits_per_byte:.3f} |
| with the log-unigram added | {held_out_unigram:.3f} | {held_out_unigram_bits_per_byte:.3f} |

Training loss at the end (mean of the last {every} steps{dropout_note}{floor_note}): {train:.3f}
nats a token.

## Average cosine

Between all pairs of tokens of the same held-out windows, (|Σû|² − n)/(n(n − 1)), every position
counted.

| site | average cosine |
|---|---|
{cosines}

Over training:

| step | held-out nats a token{curve_note} | last block | final norm | head rows |
|---|---|---|---|---|
{curve}
{finding}
## A sample

Seed 0, temperature 0.8{sample_note}:

{sample}

## What it is not for

{limits}
"""

FINISHED = {
    "skill": "that writes little stories",
    "limits": "It knows the words of children's stories, makes mistakes of sense in most of them, "
    "and is good for being studied only.",
}
EARLY = {
    "skill": "at the end of a\nvery short training",
    "limits": "It has seen half of a small text once and writes no sentence. It is here for its "
    "shape, and stands for no\n"
    "finished model.",
}

OBJECTIVES = {
    "vanilla": "next-token cross-entropy over the whole vocabulary, head {head}.",
    "headless": "contrastive weight tying (Godey et al. 2024): each target's own input embedding "
    "against those of all\n  other targets of the batch, as cross-entropy over the batch's unique "
    "tokens with a bias of their log-counts;\n  gradient into both sides.",
}
UNIGRAM_NOTE = """
**The logits lack the unigram.** Training by contrast learns log p(v | context) − log p(v), and
GPT-2's head has no bias to hold the rest. So the logits of this folder are h·e_v alone; add
`log_unigram` (float32 [{vocabulary}], in `unigram.safetensors`; frequencies in the training text)
to get a language model. No head was trained.
"""


def export(
    name: str,
    model: GPT2LMHeadModel,
    history: dict,
    corpus: Corpus,
    folder: Path,
    finding: str = "",
) -> None:
    """Write the folder aside and rename it into place; measure the stored weights and put the
    figures into the card.
    """
    recipe = history["recipe"]
    headless = recipe["objective"] == "headless"
    aside = folder.with_name(folder.name + ".new")
    shutil.rmtree(aside, ignore_errors=True)
    model.half().float()
    model.generation_config.pad_token_id = corpus.tokenizer.eos_token_id
    model.save_pretrained(aside)
    weights = load_file(aside / "model.safetensors")
    save_file(
        {k: v.half().contiguous() for k, v in weights.items()},
        aside / "model.safetensors",
        metadata={"format": "pt"},
    )
    corpus.tokenizer.save_pretrained(aside)
    # half the size
    corpus.tokenizer.backend_tokenizer.save(str(aside / "tokenizer.json"), pretty=False)
    settings = json.loads((aside / "tokenizer_config.json").read_text())
    settings.pop("backend", None)
    settings["tokenizer_class"] = (
        "PreTrainedTokenizerFast"  # the name that transformers 4 knows, too
    )
    (aside / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    if headless:
        save_file({"log_unigram": corpus.log_unigram}, aside / "unigram.safetensors")

    stored = GPT2LMHeadModel.from_pretrained(aside).eval()
    losses = held_out_loss(stored, corpus)
    cosines = cosine_by_site(stored, corpus)
    last = history["points"][-1]
    early = name.endswith("-early")
    twin = ("gpt-vanilla" if headless else "gpt-headless") + ("-early" if early else "")
    loss_name = "held_out_unigram" if headless else "held_out"
    block = f"block.{recipe['blocks'] - 1}"
    every_point = max(1, len(history["points"]) // 10)
    points = history["points"][every_point - 1 :: every_point]
    if points[-1] is not last:
        points.append(last)
    curve = []
    for point in points:
        cosine = point["cosine"]
        cells = [f"{point[loss_name]:.3f}"]
        cells += [f"{cosine[site]:.3f}" for site in (block, "final_norm", "head rows")]
        curve.append(f"| {point['step']} | {' | '.join(cells)} |")
    sample = sample_stories(
        stored, corpus.tokenizer, 4, seed=0, log_unigram=corpus.log_unigram if headless else None
    )
    card = CARD.format(
        **recipe
        | {
            "objective": OBJECTIVES[recipe["objective"]].format(
                head="tied" if recipe["tied"] else "untied"
            )
        },
        **losses,
        **(EARLY if early else FINISHED),
        name=name,
        parameters=sum(p.numel() for p in stored.parameters()),
        story=f"It was trained {'without a prediction head' if headless else 'the usual way'}; "
        f"its twin is `{twin}`.",
        unigram_note=UNIGRAM_NOTE.format(**recipe) if headless else "",
        stories=len(corpus.train_stories),
        tokens=recipe["steps"] * recipe["rows"] * recipe["context"],
        passes=recipe["steps"] * recipe["rows"] * recipe["context"] / len(corpus.train),
        seconds=history["seconds"],
        warm_up=100,
        held_out_tokens=len(corpus.held_out),
        every=history["every"],
        dropout_note=", dropout on" if recipe["dropout"] else "",
        floor_note=", less the floor that repeated targets set" if headless else "",
        train=last["train"],
        cosines="\n".join(f"| {site} | {value:.3f} |" for site, value in cosines.items()),
        curve_note=" (log-unigram added)" if headless else "",
        curve="\n".join(curve),
        finding=f"\n{finding}\n" if finding else "",
        sample_note=", log-unigram added" if headless else "",
        sample="\n\n".join("> " + story.replace("\n", "\n>\n> ") for story in sample[:2]),
    )
    (aside / "README.md").write_text(card, encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    aside.rename(folder)
    print(json.dumps({"losses": losses, "cosine": cosines}, indent=1))
    for path in sorted(folder.iterdir()):
        print(f"{path.stat().st_size:>9,} {path.name}")


def resume_for_export(model: GPT2LMHeadModel, checkpoint: Path) -> tuple[GPT2LMHeadModel, dict]:
    """The weights and the history of a finished run."""
    saved = torch.load(checkpoint, weights_only=True)
    if saved["step"] < saved["history"]["recipe"]["steps"]:
        raise SystemExit(
            f"{checkpoint} is at step {saved['step']}: run `train` again to finish it."
        )
    model.load_state_dict(saved["model"])
    return model.eval(), saved["history"]
