"""A trained head without a bias, given one: what becomes of its cone at once, and in a short
fine-tuning.

    python scripts/cone_conversion.py TEXT [--model gpt-vanilla-early] [--steps 60] [--rates 1e-4
    1e-3] [--seeds 3]

Three starts: the model as it is; with a bias of zero; *deconed*, with the bias that takes the mean
of what the head reads (`headscan.decone`: the same logits). Told: held-out nats, and the average
cosine of what the head reads and of the last block, before and after as many steps on the same
windows. Mean over seeds, the lowest and the highest in brackets.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from functools import partial

import torch
from transformers import PreTrainedModel

from headscan import Lens, decone
from headscan.measures import average_cosine
from headscan.model.recording import before_call
from headscan.text import Windows
from headscan.training import PackedText, fit_head, perplexity
from headscan.training.heads import body_of, final_norm_of

CONTEXT = 64
BATCH = 8
HELD = 64


def with_bias(model: PreTrainedModel) -> PreTrainedModel:
    """A bias of zero."""
    head = model.get_output_embeddings()
    head.bias = torch.nn.Parameter(torch.zeros(len(head.weight)))
    return model


def deconed(model: PreTrainedModel, token_ids: torch.Tensor) -> PreTrainedModel:
    """A copy of the model without the cone at its head's input."""
    copied = decone(copy.deepcopy(model), token_ids)
    assert isinstance(copied, PreTrainedModel)
    return copied


@torch.no_grad()
def measurements(model: PreTrainedModel, held_out: torch.Tensor) -> list[float]:
    """Held-out nats, cosine of what the head reads, cosine of the last block."""
    body = body_of(model)
    last_block: list[torch.Tensor] = []

    def keep(_module: torch.nn.Module, args: tuple, _kwargs: dict) -> None:
        last_block.append(args[0])

    final_norm = final_norm_of(body)
    assert final_norm is not None
    with before_call(final_norm, keep):
        head_input = body(held_out).last_hidden_state
    nats = perplexity(model, held_out.numpy()).nats_per_token
    return [nats, _cosine(head_input), _cosine(last_block[0])]


def _cosine(states: torch.Tensor) -> float:
    cosine = average_cosine(states.flatten(0, 1).double().numpy())
    assert cosine is not None
    return cosine


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("text")
    parser.add_argument("--model", default="gpt-vanilla-early")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-4, 1e-3])
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    lens = Lens.load(options.model, dtype="float32")
    data, held_out_text = PackedText.of(Windows(options.text, lens.tokenizer, CONTEXT)).split(0.05)
    held_out = torch.from_numpy(held_out_text.rows[:HELD]).long()
    lens.model.train(False)
    starts: dict[str, Callable[[], PreTrainedModel]] = {
        "as it is": lambda: copy.deepcopy(lens.model),
        "a bias of zero": lambda: with_bias(copy.deepcopy(lens.model)),
        "deconed": partial(deconed, lens.model, torch.from_numpy(data.rows[:HELD]).long()),
    }
    print(
        "| start | rate | steps | held-out nats | cosine, head's input | cosine, last block |\n"
        + "|---" * 6
        + "|",
        flush=True,
    )
    for name, make in starts.items():
        _row(name, "—", 0, [measurements(make(), held_out)])
        for rate in options.rates:
            rows = []
            for seed in range(options.seeds):
                model = make()
                for parameter in model.parameters():
                    parameter.requires_grad_(True)
                fit_head(model, data.rows, steps=options.steps, batch=BATCH, rate=rate, seed=seed)
                rows.append(measurements(model, held_out))
            _row(name, f"{rate:g}", options.steps, rows)


def _row(name: str, rate: str, steps: int, rows: list[list[float]]) -> None:
    cells = []
    for values in zip(*rows, strict=True):
        mean = sum(values) / len(values)
        cells.append(
            f"{mean:.3f} [{min(values):.3f}, {max(values):.3f}]"
            if len(values) > 1
            else f"{mean:.3f}"
        )
    print(f"| {name} | {rate} | {steps} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
