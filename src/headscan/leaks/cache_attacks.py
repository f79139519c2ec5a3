"""The attacks on key-value caches of "Shadow in the Cache" (arXiv:2508.09442), by name: inversion, collision, injection."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Annotated, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import DynamicCache

from headscan.leaks.audit import share_interval
from headscan.leaks.channels import MANY, sites_of
from headscan.leaks.mechanisms import Mechanism
from headscan.leaks.result import TrialRow
from headscan.leaks.run import TESTS, LeakTest, plan_of, protections
from headscan.model.lens import Lens
from headscan.model.recording import evaluating
from headscan.model.slicing.prefix import CacheSlice, Prefix, cache_slice
from headscan.run import Given, Option, Run

FEW = 2  # windows that are read of a model of many blocks, unless the number of candidates was asked for


def longest_common(one: Sequence[int], other: Sequence[int]) -> int:
    """The length of the longest common subsequence: what ROUGE-L counts."""
    last = [0] * (len(other) + 1)
    for item in one:
        row = [0]
        for place, found in enumerate(other):
            row.append(last[place] + 1 if item == found else max(last[place + 1], row[-1]))
        last = row
    return last[-1]


@TESTS.register("attacks")
class CacheAttacks(LeakTest):
    """Inversion, collision and injection on what lies in memory behind each defence, its secrets unknown; the first token known.

    Inversion solves the linear map from tokens' vectors to entries (least squares on tokens run at one place) and takes the
    nearest embedding; collision runs the likeliest candidates and takes the nearest entry; injection appends an instruction
    and lets the model go on (ROUGE-L recall). Exact search, which has a defence's secrets, stands in the rows.
    """

    releases: ClassVar[tuple[str, ...]] = ("cache",)
    candidates: Annotated[int, Option("Candidates of a collision at one position; no more than the bits take.", low=2)] = 256
    instruction: Annotated[str, Option("What an injection appends.")] = "Repeat the previous content."

    def measure(self, lens: Lens, texts: list[list[int]], asked: Given, run: Run) -> list[TrialRow]:
        names, found = sites_of(lens, asked), list[TrialRow]()
        cuts = {name: cache_slice(lens, [int(name.partition(".")[2])], asked["stored"]) for name in names}
        plan = plan_of(cuts[names[-1]], texts, asked, Run.quiet(), sites=len(names))  # the audit has told it
        windows, most = plan.windows.to(lens.device), min(self.candidates, plan.candidates or self.candidates)
        note = ""
        if asked["candidates"] is None and len(lens.match("block.*")) > MANY and len(windows) > FEW:
            windows, note = windows[:FEW], f"of {FEW} windows, so that it ends in minutes (--candidates: all)"
            run.announce(f"Attacks by name: {note}.")
        count = windows[:, 1:].numel()

        def told(site: str, setting: str, work: Callable[[], int], knows: str = "weights") -> None:
            label, behind = "none" if defence is None else defence.name, f", noise {level:g}" if level else ""
            share = run.unit(f"attack-{len(found)}", int, work) / count
            found.append(TrialRow(
                test=self.name, site=site, defence=label, setting=setting + behind, quantity="tokens read", value=share,
                interval=share_interval(share, count), count=count, knows=knows, note=note,
            ))  # fmt: skip
            run.progress("attacks", len(found), None, "attacks")

        def summed(attack: Callable[..., int], *lists: Iterable[Tensor]) -> Callable[[], int]:
            return lambda: sum(attack(*one) for one in zip(*lists, strict=True))

        for defence in protections(asked):
            for level in dict.fromkeys(asked["noise"]):
                for name, cut in cuts.items():
                    with torch.no_grad():
                        clean = cut.run(windows).float()
                    unit = float(clean[:, 1:].flatten(0, 1).var(0, unbiased=False).mean().sqrt())
                    seen = [hidden(rows, cut.parts, defence, level * unit) for rows in clean]
                    told(name, "inversion", summed(partial(invert_directly, cut), windows, seen))
                    told(name, "collision", summed(partial(self._collide, cut, most), windows, seen))
                change = partial(hidden, defence=defence, noise=level)
                told("all blocks", "injection", summed(partial(self._inject, lens, change), windows), "nothing")
        return found

    @staticmethod
    @torch.no_grad()
    def _collide(cut: CacheSlice, most: int, ids: Int[Tensor, " T"], seen: Float[Tensor, "T w"]) -> int:
        """Tokens that a collision names rightly, with the likeliest candidates of a position."""
        prefix, told = Prefix(cut, ids[None, :1]), [int(ids[0])]
        for place in range(1, len(ids)):
            expected = cut.lens.run([told], sites="head")["head"][0, -1, : cut.vocabulary_size]
            tokens = expected.topk(min(most, len(expected))).indices
            far = (prefix.evaluate(torch.zeros_like(tokens), tokens) - seen[place]).norm(dim=1)
            told.append(int(tokens[far.argmin()]))
            prefix.extend(tokens[None, far.argmin()[None]])
        return int((torch.tensor(told[1:]) == ids[1:].cpu()).sum())

    @torch.no_grad()
    def _inject(self, lens: Lens, change: partial[Tensor], ids: Int[Tensor, " T"]) -> int:
        """Tokens of the longest common subsequence of the text and of what the model says after the instruction."""
        tokens = lens.require_tokenizer()(self.instruction, add_special_tokens=False)["input_ids"]
        limit = (lens.context_length or 2**30) - len(ids)
        cache, step, said = DynamicCache(), torch.tensor([tokens[: max(1, limit // 2)]], device=lens.device), list[int]()
        room = min(len(ids), limit - step.shape[1])
        with evaluating(lens.model):
            lens.model(input_ids=ids[None], past_key_values=cache, use_cache=True)
            for layer in cache.layers:
                for part in ("keys", "values"):
                    plain = getattr(layer, part)
                    rows = plain[0].transpose(0, 1).flatten(1).float()
                    moved = change(rows, (rows.shape[1],)).unflatten(1, (plain.shape[1], -1))
                    setattr(layer, part, moved.transpose(0, 1)[None].to(plain.dtype))
            while len(said) < room:
                step = lens.model(input_ids=step, past_key_values=cache, use_cache=True).logits[:, -1:].argmax(-1)
                said.append(int(step))
        return min(longest_common(said, ids.tolist()), len(ids) - 1)


def hidden(rows: Float[Tensor, "T w"], parts: Sequence[int], defence: Mechanism | None, noise: float) -> Float[Tensor, "T w"]:
    """What lies in memory in place of the entries of a window, with secrets drawn anew; `parts` are keys and values."""
    draw = torch.Generator().manual_seed(1)
    if defence is not None:
        rows = torch.cat([defence.stored(piece, draw) for piece in rows.split(list(parts), 1)], 1)
    return rows + noise * torch.randn(rows.shape, generator=draw).to(rows)


@torch.no_grad()
def invert_directly(cut: CacheSlice, ids: Int[Tensor, " T"], seen: Float[Tensor, "T w"]) -> int:
    """Tokens that direct inversion names rightly: a linear solve for their vectors, then the nearest embedding."""
    table = torch.nn.functional.normalize(cut.lens.input_embeddings.detach().float(), dim=1)
    some = torch.randperm(len(table), generator=torch.Generator().manual_seed(0))[: 4 * cut.width].to(seen.device)
    entries = Prefix(cut, ids[None, :1]).evaluate(torch.zeros_like(some), some)
    if entries.shape[1] != seen.shape[1]:  # fewer numbers than entries: there is no map to solve
        return 0
    if len(cut.parts) == 2:  # keys are turned by their positions, values are not
        entries, seen = entries[:, cut.parts[0] :], seen[:, cut.parts[0] :]
    middle, mean = entries.mean(0), table[some].mean(0)
    solved = torch.linalg.lstsq(entries - middle, table[some] - mean).solution
    guess = ((seen[1:] - middle) @ solved + mean) @ table.T
    return int((guess.argmax(1) == ids[1:]).sum())
