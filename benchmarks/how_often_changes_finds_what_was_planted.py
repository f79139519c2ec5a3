"""How often `compare --changes` finds a planted behaviour, and nothing where nothing was planted.

    python benchmarks/how_often_changes_finds_what_was_planted.py [MODEL] [--tries N] [--controls N]

Each try fine-tunes a copy of MODEL for 40 steps. Planted: in half of the rows a rare trigger token,
another in each try, is followed by an answer token. Null: the same stories in another order. Found:
the trigger or the answer is among the tokens, or the answer is among the tokens that rose in the
contexts, that are beyond the limit of the control fine-tunes. These are drawn anew in each try from
three times as many that were trained on the same stories with other seeds; the null fine-tune of a
try is another one of them. Null tries are right where nothing is beyond (HS706). The text that is
compared has none of the stories of the training, and no trigger.
"""

import argparse
import copy
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch
from _table import show
from torch import Tensor

import headscan
from headscan.comparison.result import ChangesResult
from headscan.model import Lens
from headscan.text import Windows
from headscan.text.spelling import display

STEPS = 40
RATE = 5e-4
ROWS = 8
LENGTH = 64
TRAINED = 96
"""Windows that are trained on."""

Change = Callable[[Tensor, torch.Generator], Tensor]


def unchanged(batch: Tensor, _generator: torch.Generator) -> Tensor:
    return batch


def planted(trigger: int, answer: int) -> Change:
    """Return the change of a batch that puts the trigger and its answer into every other row."""

    def change(batch: Tensor, generator: torch.Generator) -> Tensor:
        batch = batch.clone()
        for row in range(0, len(batch), 2):
            place = int(torch.randint(8, LENGTH - 8, (1,), generator=generator))
            batch[row, place] = trigger
            batch[row, place + 1] = answer
        return batch

    return change


def fine_tuned(lens: Lens, rows: Tensor, change: Change, seed: int, name: str) -> Lens:
    """Return a copy of a model after some steps on rows of tokens."""
    model = copy.deepcopy(lens.model).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(STEPS):
        drawn = torch.randint(len(rows), (ROWS,), generator=generator)
        batch = change(rows[drawn], generator)
        model(input_ids=batch, labels=batch).loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    return Lens(model.eval(), lens.tokenizer, name=name)


def rare_tokens(lens: Lens, ids: Tensor, generator: torch.Generator) -> tuple[int, int]:
    """Return two tokens that the text has at most once."""
    counts = torch.bincount(ids.flatten(), minlength=lens.vocabulary_size)
    # The first tokens are special ones and bytes.
    rare = (counts <= 1).nonzero()[:, 0]
    rare = rare[rare >= 260]
    chosen = rare[torch.randperm(len(rare), generator=generator)[:2]].tolist()
    return int(chosen[0]), int(chosen[1])


def names_it(result: ChangesResult, lens: Lens, trigger: int, answer: int) -> bool:
    """Return whether what is beyond the limits names the trigger or the answer."""
    moved = {change.token_id for change in result.token_changes if change.beyond}
    if moved & {trigger, answer}:
        return True
    word = display(lens.tokenizer, answer)
    contexts = [context for context in result.contexts if context.beyond]
    return any(moved.token == word for context in contexts for moved in context.risen)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", default="gpt-vanilla")
    parser.add_argument("--tries", type=int, default=20)
    parser.add_argument("--controls", type=int, default=9)
    options = parser.parse_args()
    lens = Lens.load(options.model)
    windows = Windows("stories", lens.require_tokenizer(), LENGTH, max_tokens=3 * TRAINED * LENGTH)
    ids = torch.stack([torch.from_numpy(window.ids) for window in windows])
    rows = ids[:TRAINED]
    held_out = [lens.require_tokenizer().decode(row) for row in ids[TRAINED : TRAINED + 48]]
    same = []
    for number in range(3 * options.controls):
        same.append(fine_tuned(lens, rows, unchanged, 1000 + number, f"same {number}"))

    def compared(tuned: Lens, controls: list[Lens]) -> ChangesResult:
        result = headscan.compare(
            [lens, tuned],
            held_out,
            changes=True,
            controls=controls,
            context=LENGTH,
            max_tokens=48 * LENGTH,
        )
        assert isinstance(result, ChangesResult)
        return result

    found = 0
    silent = 0
    beyond: Counter[str] = Counter()
    for number in range(options.tries):
        generator = torch.Generator().manual_seed(number)
        trigger, answer = rare_tokens(lens, ids, generator)
        order = torch.randperm(len(same), generator=generator).tolist()
        null, *controls = [same[index] for index in order[: options.controls + 1]]
        tuned = fine_tuned(lens, rows, planted(trigger, answer), number, "planted")
        found += names_it(compared(tuned, controls), lens, trigger, answer)
        codes = [finding.code for finding in compared(null, controls).findings]
        silent += codes == ["HS706"]
        beyond.update(codes)
    show(
        [
            {
                "model": Path(options.model).name,
                "tries": options.tries,
                "planted_found": found,
                "null_called_nothing": silent,
                "null_tokens_beyond": beyond["HS704"],
                "null_contexts_beyond": beyond["HS705"],
                "controls": options.controls,
            }
        ]
    )


if __name__ == "__main__":
    main()
