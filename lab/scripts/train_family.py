"""Train the family of small GPT-2s that decide claims on width, depth and vocabulary.

They are written into the user's cache.

    python lab/scripts/train_family.py [--half 0] [--first stories] [--second pydoc] [--tokens
    196608] [--only NAME ...] [--list]

The design is `headscan_lab.ledger.family`: 40 members a half, widths 32 to 256, depths 1 to 8, V
256 to 8,192, with a head (tied or not) and without, on two texts, some under three seeds. Each is a
folder with weights, tokenizer, model card and checkpoints evenly spaced in the logarithm of the
steps (`checkpoint-N`, weights alone). A member whose card is written is done and is passed over, so
an interrupted run goes on with the same command. One thread; run two at once with --part 0/2 and
--part 1/2.
"""

import argparse
import math
import time
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from headscan_lab.ledger.family import Member, design, family_folder
from transformers import GPT2Config, GPT2LMHeadModel

from headscan.model.tokenizer import ByteTokenizer
from headscan.text import documents
from headscan.training import cwt_loss, fit_tokenizer

ROWS = 8
CONTEXT = 64
CHECKPOINTS = 7
PEAK_RATE = 3e-3  # of width 32; it falls with the root of the width
CARD = """# {name}

A member of headscan's trained family: a GPT-2 of width {width}, {depth} blocks,
V = {vocabulary:,}, {how}, {parameters:,} parameters, seed {seed}.

- Text: `{text}`, {text_tokens:,} tokens of it, the last 5 % held out; tokenizer: {tokenizer}.
- {steps:,} steps of {rows} windows of {context} tokens ({tokens:,} tokens, as every member),
  AdamW, peak rate {rate:.1e}, a tenth of warm-up, a cosine to a twentieth.
- Held out: {held_out:.3f} nats a token{floor}.
- {seconds:.0f} processor seconds.
- Checkpoints: {checkpoints}.
"""
HEADS = {
    "tied": "head tied to the embedding",
    "untied": "head of its own",
    "headless": "without a head (CWT)",
}


@dataclass(frozen=True)
class Material:
    """The ids of a text in one vocabulary, and the tokenizer (None: bytes)."""

    ids: torch.Tensor
    tokenizer: Any | None

    @property
    def train(self) -> torch.Tensor:
        """Return the first 95 % of the ids."""
        return self.ids[: len(self.ids) * 19 // 20]

    @property
    def held_out(self) -> torch.Tensor:
        """Return the last 5 % of the ids."""
        return self.ids[len(self.ids) * 19 // 20 :]


@cache
def material(text: str, vocabulary: int, characters: int) -> Material:
    """Return the first `characters` characters of a text as ids."""
    parts = chain.from_iterable(documents(text))
    beginning = "".join(islice(chain.from_iterable(parts), characters))
    if vocabulary == 256:
        return Material(torch.tensor(ByteTokenizer().encode(beginning)), None)
    tokenizer = fit_tokenizer([beginning], vocabulary)
    return Material(torch.tensor(tokenizer.encode(beginning)), tokenizer)


def loss_of(model: GPT2LMHeadModel, member: Member, ids: torch.Tensor) -> torch.Tensor:
    """Return the mean loss in nats of windows [rows, context + 1]."""
    hidden_states = model.transformer(ids[:, :-1]).last_hidden_state.flatten(0, 1)
    targets = ids[:, 1:].flatten()
    if member.head == "headless":
        return cwt_loss(hidden_states, model.transformer.wte.weight, targets)
    return F.cross_entropy(model.lm_head(hidden_states), targets)


@dataclass(frozen=True)
class Schedule:
    """The steps of a training, its peak rate, and the steps after which a checkpoint is saved."""

    steps: int
    peak_rate: float
    checkpoints: list[int]

    @classmethod
    def of(cls, member: Member, tokens: int) -> "Schedule":
        """Return the schedule of a member that reads so many tokens."""
        steps = tokens // (ROWS * CONTEXT)
        spaced = {round(steps ** (k / (CHECKPOINTS - 1))) for k in range(CHECKPOINTS)}
        rate = PEAK_RATE * math.sqrt(32 / member.width)
        return cls(steps, rate, sorted(spaced - {steps}))

    def rate(self, step: int) -> float:
        """Return the learning rate of a step."""
        warm_up = (step + 1) / max(1, self.steps // 10)
        cosine = 0.05 + 0.475 * (1 + math.cos(math.pi * step / self.steps))
        return self.peak_rate * min(warm_up, cosine)


def train(member: Member, text: str, tokens: int, characters: int, folder: Path) -> float:
    """Train one member and save it; return the processor seconds that it took."""
    start = time.process_time()
    data = material(text, member.vocabulary, characters)
    schedule = Schedule.of(member, tokens)
    torch.manual_seed(member.seed)
    model = GPT2LMHeadModel(_config(member))
    _fit(model, member, data, schedule, folder)
    model.eval()
    held_out_nats = _held_out_nats(model, member, data.held_out)
    model.save_pretrained(folder)
    if data.tokenizer is not None:
        data.tokenizer.save_pretrained(folder)
    seconds = time.process_time() - start
    card = CARD.format(
        name=member.name,
        width=member.width,
        depth=member.depth,
        vocabulary=member.vocabulary,
        how=HEADS[member.head],
        seed=member.seed,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        text=text,
        text_tokens=len(data.ids),
        steps=schedule.steps,
        rows=ROWS,
        context=CONTEXT,
        tokens=schedule.steps * ROWS * CONTEXT,
        rate=schedule.peak_rate,
        held_out=held_out_nats,
        seconds=seconds,
        tokenizer="bytes" if data.tokenizer is None else "byte-level BPE fitted on it",
        floor=_floor(member),
        checkpoints=", ".join(f"checkpoint-{step}" for step in schedule.checkpoints)
        + ", and the end",
    )
    partial = folder / "README.partial"
    partial.write_text(card, encoding="utf-8")
    partial.replace(folder / "README.md")  # last: a member with a card is complete
    return seconds


def _config(member: Member) -> GPT2Config:
    return GPT2Config(
        vocab_size=member.vocabulary,
        n_embd=member.width,
        n_layer=member.depth,
        n_head=max(1, member.width // 32),
        n_positions=CONTEXT,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
        tie_word_embeddings=member.head != "untied",
    )


def _floor(member: Member) -> str:
    if member.head != "headless":
        return ""
    return " among the targets of a batch (CWT's loss is not comparable)"


def _fit(
    model: GPT2LMHeadModel, member: Member, data: Material, schedule: Schedule, folder: Path
) -> None:
    """Train a model on random windows, and save its checkpoints."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=schedule.peak_rate, weight_decay=0.01)
    generator = torch.Generator().manual_seed(member.seed)
    window = torch.arange(CONTEXT + 1)
    last_start = len(data.train) - CONTEXT - 1
    for step in range(schedule.steps):
        for group in optimiser.param_groups:
            group["lr"] = schedule.rate(step)
        starts = torch.randint(last_start, (ROWS, 1), generator=generator)
        loss = loss_of(model, member, data.train[starts + window])
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if not math.isfinite(loss.item()):
            raise SystemExit(f"The loss of {member.name} is not finite at step {step}.")
        if step + 1 in schedule.checkpoints:
            model.save_pretrained(folder / f"checkpoint-{step + 1}")


@torch.no_grad()
def _held_out_nats(model: GPT2LMHeadModel, member: Member, ids: torch.Tensor) -> float:
    """Return the loss on the first 64 windows of held-out ids."""
    length = CONTEXT + 1
    windows = ids[: len(ids) // length * length].view(-1, length)
    return float(loss_of(model, member, windows[:64]))


def main() -> None:
    """Train the members that are not in the cache yet."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--half", type=int, choices=(0, 1), default=0)
    parser.add_argument("--first", default="stories", help="a text as any verb takes it")
    parser.add_argument("--second", default="pydoc")
    parser.add_argument("--tokens", type=int, default=196_608, help="a member")
    parser.add_argument("--characters", type=int, default=2_000_000, help="read of each text")
    parser.add_argument("--only", nargs="*", help="names of members")
    parser.add_argument("--part", default="0/1", help="K/N: every Nth member, from the Kth")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    part, parts = map(int, options.part.split("/"))
    for member in sorted(design(options.half))[part::parts]:
        if options.only and member.name not in options.only:
            continue
        folder = family_folder() / member.name
        done = (folder / "README.md").is_file()
        if options.list or done:
            print(f"{member.name}{' (done)' if done else ''}", flush=True)
            continue
        folder.mkdir(parents=True, exist_ok=True)
        text = options.first if member.text == "first" else options.second
        seconds = train(member, text, options.tokens, options.characters, folder)
        print(f"{member.name}: {seconds:.0f} processor seconds", flush=True)


if __name__ == "__main__":
    main()
