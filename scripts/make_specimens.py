"""Make the embedded specimens and the embedded text.

    python scripts/make_specimens.py train  gpt-vanilla  --text tinystories_2MiB.txt --work
    /tmp/vanilla python scripts/make_specimens.py export gpt-vanilla  --text tinystories_2MiB.txt
    --work /tmp/vanilla python scripts/make_specimens.py sample --text tinystories_2MiB.txt (and the
    first two for gpt-headless, gpt-vanilla-early and gpt-headless-early)

The text is a file of stories, each followed by `<|endoftext|>` on a line of its own. A killed
training goes on where its last checkpoint in --work stands. One thread: the figures of the cards
are per thread.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path

import torch
from specimens_card import export, resume_for_export
from specimens_corpus import load_corpus
from specimens_sample import Source, write_text
from specimens_train import Recipe, build, train

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "headscan"
SPECIMENS = PACKAGE / "model" / "specimens"
STORIES = PACKAGE / "text" / "embedded" / "stories.txt"

VANILLA = Recipe(
    objective="vanilla",
    tied=False,
    vocabulary=4096,
    width=128,
    blocks=5,
    heads=4,
    context=256,
    dropout=0.2,
    steps=4000,
    rows=8,
    rate=4e-3,
    decay=0.1,
    seed=0,
)
# Stopped where the cone is plain to see: it fades as the loss falls (see the cards). Narrow, with
# many tokens, so slow.
EARLY = replace(VANILLA, vocabulary=8192, width=64, blocks=4, steps=120, rate=1e-3, dropout=0.0)
# Twins: the same body, data, tokens and seed; only the objective, and with it the head, differs.
RECIPES = {
    "gpt-vanilla": VANILLA,
    "gpt-headless": replace(VANILLA, objective="headless"),
    "gpt-vanilla-early": EARLY,
    "gpt-headless-early": replace(EARLY, objective="headless"),
}


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("train", "export"):
        part = verbs.add_parser(verb)
        part.add_argument("name", choices=RECIPES)
        part.add_argument(
            "--text", type=Path, required=True, help="stories, each followed by <|endoftext|>"
        )
        part.add_argument(
            "--work",
            type=Path,
            required=True,
            help="folder for checkpoints, outside the repository",
        )
        part.add_argument("--steps", type=int, help="other than the recipe's, for a trial")
        part.add_argument("--seed", type=int, help="other than the recipe's, for a trial")
        part.add_argument("--float32", action="store_true", help="no bf16 autocast in training")
        part.add_argument(
            "--out", type=Path, help="export: the folder to write (default: in the package)"
        )
        part.add_argument("--finding", default="", help="export: a paragraph for the card")
    part = verbs.add_parser("sample")
    part.add_argument(
        "--text", type=Path, required=True, help="the training text, to leave out what repeats it"
    )
    part.add_argument("--specimen", type=Path, default=SPECIMENS / "gpt-vanilla")
    part.add_argument("--out", type=Path, default=STORIES)
    part.add_argument("--size", type=int, default=125_000, help="bytes to write")
    part.add_argument("--seed", type=int, default=1)
    part.add_argument("--temperature", type=float, default=0.65)
    part.add_argument(
        "--limit",
        type=int,
        default=90,
        help="longest verbatim overlap with the training text, in characters",
    )
    return parser.parse_args()


def main() -> None:
    """Run the verb."""
    options = arguments()
    torch.set_num_threads(1)
    if options.verb == "sample":
        source = Source(options.text.read_text(encoding="utf-8"))
        report = write_text(
            options.specimen,
            source,
            options.out,
            size=options.size,
            seed=options.seed,
            temperature=options.temperature,
            limit=options.limit,
        )
        print(json.dumps(asdict(report), indent=1))
        return
    recipe = RECIPES[options.name]
    changes = {
        key: getattr(options, key) for key in ("steps", "seed") if getattr(options, key) is not None
    }
    recipe = replace(recipe, **changes)
    corpus = load_corpus(options.text, recipe.vocabulary, recipe.context, recipe.seed)
    if options.verb == "train":
        train(
            recipe,
            corpus,
            options.work,
            interval=max(1, min(250, recipe.steps // 12)),
            bf16=not options.float32,
        )
        return
    model, history = resume_for_export(build(recipe), options.work / "checkpoint.pt")
    export(
        options.name,
        model,
        history,
        corpus,
        options.out or SPECIMENS / options.name,
        options.finding,
    )


if __name__ == "__main__":
    main()
