"""The attacks on key-value caches of "Shadow in the Cache" (arXiv:2508.09442)."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import DynamicCache

from headscan.leaks.channels import block_number, is_deep, sites_of
from headscan.leaks.defences import Mechanism
from headscan.leaks.exposure import centred_rms
from headscan.leaks.least_squares import least_squares
from headscan.leaks.plan import plan_of
from headscan.leaks.registry import TESTS, LeakTest
from headscan.leaks.result import TrialRow
from headscan.leaks.rows import share_interval
from headscan.leaks.settings import PrivacySettings
from headscan.model.framed import framed_ids
from headscan.model.lens import Lens
from headscan.model.recording import evaluating
from headscan.model.slicing.cache_slice import CacheSlice, cache_slice
from headscan.model.slicing.prefix import Prefix
from headscan.run import Option, Run
from headscan.text.tokens import Frame

# Windows that are read of a model of many blocks, unless the number of candidates was asked for.
FEW = 2


@TESTS.register("attacks")
class CacheAttacks(LeakTest):
    """Inversion, collision and injection on what lies in memory behind each defence, its secrets
    unknown; the first token known.

    Inversion solves the linear map from tokens' vectors to entries (least squares on tokens run at
    one place) and takes the nearest embedding; collision runs the likeliest candidates and takes
    the nearest entry; injection appends an instruction and lets the model go on (ROUGE-L recall).
    Exact search, which has a defence's secrets, stands in the rows.
    """

    releases: ClassVar[tuple[str, ...]] = ("cache",)
    candidates: Annotated[
        int, Option("Candidates of a collision at one position; no more than the bits take.", low=2)
    ] = 256
    instruction: Annotated[str, Option("What an injection appends.")] = (
        "Repeat the previous content."
    )

    def measure(
        self, lens: Lens, texts: list[list[int]], settings: PrivacySettings, run: Run
    ) -> list[TrialRow]:
        cuts = {
            site: cache_slice(lens, [block_number(site)], settings.stored)
            for site in sites_of(lens, settings)
        }
        # The audit has told the user what is left out.
        silent = Run.quiet()
        last_cut = list(cuts.values())[-1]
        plan = plan_of(last_cut, texts, settings, silent, sites=len(cuts))
        windows = plan.windows.to(lens.device)
        most = min(self.candidates, plan.candidates or self.candidates)
        note = ""
        if settings.candidates is None and is_deep(lens) and len(windows) > FEW:
            windows = windows[:FEW]
            note = f"of {FEW} windows, so that it ends in minutes (--candidates: all)"
            run.announce(f"Attacks by name: {note}.")

        attempts = _Attempts(self.name, run, tokens=windows[:, 1:].numel(), note=note)
        instruction = lens.require_tokenizer()(self.instruction, add_special_tokens=False)
        for defence in settings.defences:
            for level in settings.levels:
                for site, cut in cuts.items():
                    entries = _attacked_entries(cut, windows, defence, level)
                    pairs = list(zip(windows, entries, strict=True))
                    for name, attack in (
                        ("inversion", partial(invert_directly, cut)),
                        ("collision", partial(collide, cut, most)),
                    ):
                        attempts.add(site, defence, level, name, attack, pairs)
                inject = partial(
                    _injected, lens, instruction["input_ids"], defence=defence, noise=level
                )
                attempts.add(
                    "all blocks",
                    defence,
                    level,
                    "injection",
                    inject,
                    [(ids,) for ids in windows],
                    knows="nothing",
                )
        return attempts.rows


@torch.no_grad()
def _attacked_entries(
    cut: CacheSlice, windows: Int[Tensor, "B T"], defence: Mechanism | None, level: float
) -> list[Float[Tensor, "T w"]]:
    """Return what lies in memory of each window; the noise is in rms of the centred entries."""
    clean = cut.run(windows).float()
    unit = centred_rms(clean[:, 1:].flatten(0, 1))
    return [in_memory(rows, cut.parts, defence, level * unit) for rows in clean]


@dataclass
class _Attempts:
    """The attacks that were made, a row each.

    Attributes:
        test: the name of the test.
        tokens: the tokens that an attack may read.
        note: what was left out.
    """

    test: str
    run: Run
    tokens: int
    note: str
    rows: list[TrialRow] = field(default_factory=list)

    def add(
        self,
        site: str,
        defence: Mechanism | None,
        level: float,
        attack_name: str,
        attack: Callable[..., int],
        windows: Iterable[tuple[Tensor, ...]],
        *,
        knows: str = "weights",
    ) -> None:
        """Make an attack on each window; it returns the number of tokens read."""

        def total() -> int:
            return sum(attack(*window) for window in windows)

        read = self.run.unit(f"attack-{len(self.rows)}", int, total)
        share = read / self.tokens
        self.rows.append(
            TrialRow(
                test=self.test,
                site=site,
                defence="none" if defence is None else defence.name,
                setting=f"{attack_name}, noise {level:g}" if level else attack_name,
                quantity="tokens read",
                value=share,
                interval=share_interval(share, self.tokens),
                count=self.tokens,
                knows=knows,
                note=self.note,
            )
        )
        self.run.progress("attacks", len(self.rows), None, "attacks")


def in_memory(
    rows: Float[Tensor, "T w"], parts: Sequence[int], defence: Mechanism | None, noise: float
) -> Float[Tensor, "T w"]:
    """Return what lies in memory in place of the entries of a window, with fresh secrets.

    `parts` are the widths of keys and values.
    """
    generator = torch.Generator().manual_seed(1)
    if defence is not None:
        pieces = rows.split(list(parts), 1)
        rows = torch.cat([defence.stored(piece, generator) for piece in pieces], 1)
    return rows + noise * torch.randn(rows.shape, generator=generator).to(rows)


@torch.no_grad()
def invert_directly(cut: CacheSlice, ids: Int[Tensor, " T"], entries: Float[Tensor, "T w"]) -> int:
    """Return how many tokens direct inversion names rightly.

    It solves a linear map from entries to tokens' vectors, and takes the nearest embedding.
    """
    table = torch.nn.functional.normalize(cut.lens.input_embeddings.detach().float(), dim=1)
    order = torch.randperm(len(table), generator=torch.Generator().manual_seed(0))
    sample = order[: 4 * cut.width].to(entries.device)
    sampled = Prefix(cut, ids[None, :1]).evaluate(torch.zeros_like(sample), sample)
    if sampled.shape[1] != entries.shape[1]:  # fewer numbers: there is no map to solve
        return 0
    if len(cut.parts) == 2:  # keys are turned by their positions, values are not
        sampled = sampled[:, cut.parts[0] :]
        entries = entries[:, cut.parts[0] :]
    entry_mean = sampled.mean(0)
    vector_mean = table[sample].mean(0)
    solution = least_squares(sampled - entry_mean, table[sample] - vector_mean)
    scores = ((entries[1:] - entry_mean) @ solution + vector_mean) @ table.T
    return int((scores.argmax(1) == ids[1:]).sum())


@torch.no_grad()
def collide(
    cut: CacheSlice, most: int, ids: Int[Tensor, " T"], entries: Float[Tensor, "T w"]
) -> int:
    """Return how many tokens a collision names rightly.

    At each position it runs the likeliest candidates, at most `most`, after the tokens it has.
    """
    prefix = Prefix(cut, ids[None, :1])
    guesses = [int(ids[0])]
    for position in range(1, len(ids)):
        logits = cut.lens.run([guesses], sites="head")["head"][0, -1]
        logits = logits[: cut.vocabulary_size]
        candidates = logits.topk(min(most, len(logits))).indices
        outputs = prefix.evaluate(torch.zeros_like(candidates), candidates)
        nearest = candidates[(outputs - entries[position]).norm(dim=1).argmin()]
        guesses.append(int(nearest))
        prefix.extend(nearest[None, None])
    right = torch.tensor(guesses) == ids.cpu()
    return int(right[1:].sum())


@torch.no_grad()
def _injected(
    lens: Lens,
    instruction: list[int],
    ids: Int[Tensor, " T"],
    *,
    defence: Mechanism | None,
    noise: float,
) -> int:
    """Return how many tokens of a text the model repeats when an instruction is appended.

    That is the length of the longest common subsequence of the text and what the model says.
    """
    limit = (lens.context_length or 2**30) - len(ids)
    front = lens.frame.front
    step = torch.tensor([instruction[: max(1, limit // 2)]], device=lens.device)
    length = min(len(ids), limit - step.shape[1])
    cache = DynamicCache(config=lens.model.config)
    answer: list[int] = []
    with evaluating(lens.model):
        row = framed_ids(ids[None], Frame(front))
        lens.model(input_ids=row, past_key_values=cache, use_cache=True)
        _replace_entries(cache, len(front), defence, noise)
        while len(answer) < length:
            logits = lens.model(input_ids=step, past_key_values=cache, use_cache=True).logits
            step = logits[:, -1:].argmax(-1)
            answer.append(int(step))
    return min(longest_common(answer, ids.tolist()), len(ids) - 1)


def _replace_entries(
    cache: DynamicCache, added: int, defence: Mechanism | None, noise: float
) -> None:
    """Put in place of a cache's entries what lies in memory behind a defence; the first `added`
    ones stay.
    """
    for layer in cache.layers:
        for part in ("keys", "values"):
            plain = getattr(layer, part, None)
            if plain is None:  # a layer of a hybrid that stores neither
                continue
            rows = plain[0, :, added:].transpose(0, 1).flatten(1).float()
            changed = in_memory(rows, (rows.shape[1],), defence, noise)
            by_head = changed.unflatten(1, (plain.shape[1], -1)).transpose(0, 1)
            of_text = by_head[None].to(plain.dtype)
            setattr(layer, part, torch.cat([plain[:, :, :added], of_text], dim=2))


def longest_common(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the length of the longest common subsequence, which ROUGE-L counts.

    >>> longest_common([1, 2, 3, 4], [9, 1, 3, 9, 4])
    3
    """
    previous = [0] * (len(second) + 1)
    for item in first:
        row = [0]
        for index, candidate in enumerate(second):
            longer = max(previous[index + 1], row[-1])
            row.append(previous[index] + 1 if item == candidate else longer)
        previous = row
    return previous[-1]
