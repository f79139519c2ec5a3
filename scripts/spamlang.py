"""SpamLang with its coverage controlled: does a narrow head keep a model from repeating a symbol,
or that it never saw it?

    python scripts/spamlang.py --out FOLDER [--cells 512/32 2048/32 8192/32 2048/8] [--arms ce
    headless] [--seeds 2]

A text of SpamLang is one symbol, drawn uniformly, over and over; two numbers are enough to tell any
number of symbols apart, and yet a larger vocabulary at the same width is learnt later (Godey and
Artzi 2026, arXiv:2603.10145). At equal steps it has also seen fewer of its symbols. Here each is
told: the accuracy on symbols that the training had seen and on those it had not, at equal
*sightings* a symbol; "in turn" shows every symbol once before any comes again, so that none is
unseen. Beside it what the head keeps of the logits' gradient over what its leverages would. Every
cell at every rate with every seed; the best rate is told.
"""

import argparse
import json
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import torch
from headscan_lab.tournament.variants import ARMS
from transformers import GPT2Config, GPT2LMHeadModel, GPT2Model

from headscan.measures.kept_gradient import GradientThroughHead
from headscan.training import Learner

LENGTH = 4
BATCH = 64
SIGHTINGS = (0.5, 1, 2, 4, 8, 16)
RATES = (3e-3, 1e-2)


def model_of(arm: str, vocabulary: int, width: int) -> Learner:
    """One block, no dropout."""
    config = GPT2Config(
        vocab_size=vocabulary,
        n_embd=width,
        n_layer=1,
        n_head=2,
        n_positions=LENGTH,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
        tie_word_embeddings=False,
    )
    body = (GPT2Model if ARMS[arm].objective.headless else GPT2LMHeadModel)(config)
    return ARMS[arm].learner(body, torch.ones(vocabulary, dtype=torch.int64))


def symbols(vocabulary: int, draw: torch.Generator, *, in_turn: bool) -> Iterator[torch.Tensor]:
    """Batches of symbols."""
    while True:
        if in_turn:
            yield from torch.randperm(vocabulary, generator=draw).split(BATCH)
        else:
            yield torch.randint(vocabulary, (BATCH,), generator=draw)


@torch.no_grad()
def tried(learner: Learner, seen_tokens: torch.Tensor) -> dict[str, float | None]:
    """Accuracy on seen and unseen symbols, the seen share, and the kept norm over its null at the
    last position.
    """
    vocabulary = len(seen_tokens)
    head = learner.readout(torch.ones(vocabulary, dtype=torch.int64))
    assert head is not None
    right = torch.zeros(vocabulary, dtype=torch.bool)
    through = GradientThroughHead(head.rows, bias=head.bias, best=False)
    for token_ids in torch.arange(vocabulary).split(1024):
        states = learner.model.base_model(token_ids[:, None].repeat(1, LENGTH)).last_hidden_state[
            :, -1
        ]
        right[token_ids] = head.logits(states).argmax(1) == token_ids
        if not through.energies:
            through.update(states[:256], token_ids[:256])
    gradient = through.result()
    kept = None
    if gradient.kept_norm and gradient.kept_norm_leverage:
        kept = gradient.kept_norm / gradient.kept_norm_leverage
    return {
        "coverage": float(seen_tokens.float().mean()),
        "accuracy": float(right.float().mean()),
        "seen": float(right[seen_tokens].float().mean()) if seen_tokens.any() else None,
        "unseen": float(right[~seen_tokens].float().mean()) if not seen_tokens.all() else None,
        "kept": kept,
        "random": gradient.kept_norm_random,
    }


def run(arm: str, vocabulary: int, width: int, rate: float, seed: int, *, in_turn: bool) -> dict:
    """One training: what was tried at each number of sightings a symbol."""
    torch.manual_seed(seed)
    learner = model_of(arm, vocabulary, width)
    steps = [max(1, round(vocabulary * sighting / BATCH)) for sighting in SIGHTINGS]
    moved = torch.optim.AdamW(learner.parameters(), lr=rate, betas=(0.9, 0.95), weight_decay=0.0)
    seen_tokens = torch.zeros(vocabulary, dtype=torch.bool)
    results = {}
    batches = symbols(vocabulary, torch.Generator().manual_seed(seed), in_turn=in_turn)
    begun = time.process_time()
    for step in range(1, steps[-1] + 1):
        batch = next(batches)
        seen_tokens[batch] = True
        ids = batch[:, None].repeat(1, LENGTH)
        moved.param_groups[0]["lr"] = rate * min(1.0, step / (0.05 * steps[-1] + 1))
        moved.zero_grad()
        learner(ids, ids)["loss"].backward()
        torch.nn.utils.clip_grad_norm_(learner.parameters(), 1.0)
        moved.step()
        if step in steps:
            results[SIGHTINGS[steps.index(step)]] = tried(learner, seen_tokens) | {"step": step}
    return {"tried": results, "seconds": time.process_time() - begun}


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--cells", nargs="+", default=["512/32", "2048/32", "8192/32", "2048/8"], metavar="V/d"
    )
    parser.add_argument("--arms", nargs="+", default=["ce", "headless"])
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "spamlang.json"
    done = json.loads(path.read_text()) if path.exists() else {}
    print(
        "| arm | V | d | drawn | sightings | steps | coverage | accuracy | on seen | on unseen | "
        "kept / null |\n|" + "---|" * 11
    )
    for arm in options.arms:
        for cell in options.cells:
            vocabulary, width = map(int, cell.split("/"))
            for in_turn in (False, True):
                runs: dict[float, list[dict]] = {}
                for rate in RATES:
                    for seed in range(options.seeds):
                        name = f"{arm}/{cell}/{rate}/{seed}/{in_turn}"
                        if name not in done:
                            done[name] = run(arm, vocabulary, width, rate, seed, in_turn=in_turn)
                            path.write_text(json.dumps(done))
                        runs.setdefault(rate, []).append(
                            {float(k): v for k, v in done[name]["tried"].items()}
                        )
                _tell(arm, vocabulary, width, "in turn" if in_turn else "uniform", runs)


def _tell(arm: str, vocabulary: int, width: int, drawn: str, runs: dict[float, list[dict]]) -> None:
    """The rows of a cell, at the rate with the best accuracy over all rows; lowest to highest over
    seeds.
    """

    def total_accuracy(rate: float) -> float:
        rows = chain.from_iterable(points.values() for points in runs[rate])
        return sum(row["accuracy"] for row in rows)

    best = max(runs, key=total_accuracy)
    for sightings in SIGHTINGS:
        rows = [points[sightings] for points in runs[best]]
        cells = [
            _range([row[key] for row in rows])
            for key in ("coverage", "accuracy", "seen", "unseen", "kept")
        ]
        label = (
            f"{arm} ({best:g}) | {vocabulary:,} | {width} | {drawn} | {sightings:g} | "
            f"{rows[0]['step']:,}"
        )
        print(f"| {label} | {' | '.join(cells)} |", flush=True)


def _range(values: list[float | None]) -> str:
    known = sorted(value for value in values if value is not None)
    if not known:
        return "—"
    return (
        f"{known[0]:.2f}"
        if f"{known[0]:.2f}" == f"{known[-1]:.2f}"
        else f"{known[0]:.2f} to {known[-1]:.2f}"
    )


if __name__ == "__main__":
    main()
