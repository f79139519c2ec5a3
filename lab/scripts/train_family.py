"""Train the family of small GPT-2s that claims on width, depth and vocabulary are decided by, into
the user's cache.

    python lab/scripts/train_family.py [--half 0] [--first stories] [--second pydoc] [--tokens
    196608] [--only NAME ...] [--list]

The design is `headscan_lab.ledger.stand_ins`: 40 members a half, widths 32 to 256, depths 1 to 8, V
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

import torch
import torch.nn.functional as F
from headscan_lab.ledger.stand_ins import Member, design, family_folder
from transformers import GPT2Config, GPT2LMHeadModel

from headscan.model.tokenizer import ByteTokenizer
from headscan.text import documents
from headscan.training import cwt_loss, fit_tokenizer

ROWS = 8
CONTEXT = 64
CARD = """# {name}

A member of headscan's trained family: a GPT-2 of width {width}, {depth} blocks, V = {vocabulary:,}, {how},
{parameters:,} parameters, seed {seed}.

- Text: `{text}`, {text_tokens:,} tokens of it, the last 5 % held out; tokenizer: {tokenizer}.
- {steps:,} steps of {rows} windows of {context} tokens ({tokens:,} tokens, as every member), AdamW, peak rate {rate:.1e},
  a tenth of warm-up, a cosine to a twentieth.
- Held out: {held_out:.3f} nats a token{floor}.
- {seconds:.0f} processor seconds.
- Checkpoints: {checkpoints}.
"""


@dataclass(frozen=True)
class Material:
    """Ids of a text under one vocabulary, and the tokenizer (None: bytes)."""

    ids: torch.Tensor
    tokenizer: object | None

    @property
    def train(self) -> torch.Tensor:
        """The first 95 %."""
        return self.ids[: len(self.ids) * 19 // 20]

    @property
    def held_out(self) -> torch.Tensor:
        """The rest."""
        return self.ids[len(self.ids) * 19 // 20 :]


@cache
def material(text: str, vocabulary: int, characters: int) -> Material:
    """The first so many characters of a text as ids."""
    whole = "".join(
        islice(
            chain.from_iterable(part for document in documents(text) for part in document),
            characters,
        )
    )
    if vocabulary == 256:
        return Material(torch.tensor(ByteTokenizer().encode(whole)), None)
    tokenizer = fit_tokenizer([whole], vocabulary)
    return Material(torch.tensor(tokenizer.encode(whole)), tokenizer)


def loss_of(model: GPT2LMHeadModel, member: Member, ids: torch.Tensor) -> torch.Tensor:
    """Mean loss in nats of windows [rows, context + 1]."""
    hidden = model.transformer(ids[:, :-1]).last_hidden_state.flatten(0, 1)
    targets = ids[:, 1:].flatten()
    if member.head == "headless":
        return cwt_loss(hidden, model.transformer.wte.weight, targets)
    return F.cross_entropy(model.lm_head(hidden), targets)


def train(member: Member, text: str, tokens: int, characters: int, folder: Path) -> float:
    """Train one member; the processor seconds it took."""
    start = time.process_time()
    data = material(text, member.vocabulary, characters)
    torch.manual_seed(member.seed)
    config = GPT2Config(
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
    model = GPT2LMHeadModel(config)
    steps = tokens // (ROWS * CONTEXT)
    marks = sorted({round(steps ** (k / 6)) for k in range(7)} - {steps})
    rate = 3e-3 * math.sqrt(32 / member.width)
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    drawing = torch.Generator().manual_seed(member.seed)
    for step in range(steps):
        warm = max(1, steps // 10)
        done = step / steps
        for group in optimiser.param_groups:
            group["lr"] = rate * min(
                (step + 1) / warm, 0.05 + 0.475 * (1 + math.cos(math.pi * done))
            )
        begin = torch.randint(len(data.train) - CONTEXT - 1, (ROWS, 1), generator=drawing)
        loss = loss_of(model, member, data.train[begin + torch.arange(CONTEXT + 1)])
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if not math.isfinite(loss.item()):
            raise SystemExit(f"The loss of {member.name} is not finite at step {step}.")
        if step + 1 in marks:
            model.save_pretrained(folder / f"checkpoint-{step + 1}")
    model.eval()
    with torch.no_grad():
        held = data.held_out[: (len(data.held_out) // (CONTEXT + 1)) * (CONTEXT + 1)].view(
            -1, CONTEXT + 1
        )[:64]
        left = float(loss_of(model, member, held))
    model.save_pretrained(folder)
    if data.tokenizer is not None:
        data.tokenizer.save_pretrained(folder)  # type: ignore[attr-defined]
    seconds = time.process_time() - start
    how = {
        "tied": "head tied to the embedding",
        "untied": "head of its own",
        "headless": "without a head (CWT)",
    }[member.head]
    card = CARD.format(
        name=member.name,
        width=member.width,
        depth=member.depth,
        vocabulary=member.vocabulary,
        how=how,
        seed=member.seed,
        parameters=sum(p.numel() for p in model.parameters()),
        text=text,
        text_tokens=len(data.ids),
        steps=steps,
        rows=ROWS,
        context=CONTEXT,
        tokens=steps * ROWS * CONTEXT,
        rate=rate,
        held_out=left,
        seconds=seconds,
        tokenizer="bytes" if data.tokenizer is None else "byte-level BPE fitted on it",
        floor=" among the targets of a batch (CWT's loss is not comparable)"
        if member.head == "headless"
        else "",
        checkpoints=", ".join(f"checkpoint-{mark}" for mark in marks) + ", and the end",
    )
    partial = folder / "README.partial"
    partial.write_text(card, encoding="utf-8")
    partial.replace(folder / "README.md")  # last: a member with a card is whole
    return seconds


def main() -> None:
    """Train what is not there yet."""
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
    chosen = [
        one
        for one in sorted(design(options.half))[part::parts]
        if not options.only or one.name in options.only
    ]
    for member in chosen:
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
