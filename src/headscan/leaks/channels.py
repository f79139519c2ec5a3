"""What may leak: hidden states, a key-value cache, logits, an embedding."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import DynamicCache

from headscan.inversion.observation import EmbeddingSlice
from headscan.leaks.audit import audit, bits_row, share_interval
from headscan.leaks.mechanisms import (
    UNCHANGED,
    Change,
    Exposure,
    Mechanism,
    cross_entropy,
    loss_with,
    loss_with_cache,
    working,
)
from headscan.leaks.positions import PositionLeak, Prior, at_position, cut_prior, index_of, prior_of
from headscan.leaks.result import LeakRow, TrialRow
from headscan.leaks.run import (
    CHANNELS,
    SHARED,
    TESTS,
    Leak,
    LeakChannel,
    LeakTest,
    plan_of,
    protections,
    windows_of,
)
from headscan.model.lens import Lens
from headscan.model.recording import evaluating
from headscan.model.slicing import Slice, SlicedModel
from headscan.model.slicing.cache_slice import CacheSlice, cache_slice
from headscan.model.slicing.mapped import Mapped
from headscan.model.slicing.prefix import Prefix
from headscan.run import BadInput, Given, Option, Run

MANY = 12
COUNTED = ("noise", "prior", "windows", "length", "candidates", "draws")


@CHANNELS.register("states")
class StatesChannel(LeakChannel):
    """The states of a site at every position: what a split model sends, or a server keeps."""

    uses: ClassVar[tuple[str, ...]] = ("sites", "format", "defence", *COUNTED)
    meaning: ClassVar[str] = (
        "Bits that the state at a token's position reveals of that token to an attacker who "
        "knows the tokens before it; "
        "what later states add is not counted."
    )

    def attack(self, lens: Lens, texts: list[list[int]], asked: Given, run: Run) -> Leak:
        names = sites_of(lens, asked)
        widths = tuple(lens.width(name) for name in names)
        together = Slice(sites=names).on(lens)
        loss = partial(loss_with, lens)
        exposure = Exposure(
            names, together, widths, lambda name: Slice(sites=(name,)).on(lens), loss=loss
        )
        return audit(exposure, texts, asked, run)


def sites_of(lens: Lens, asked: Given) -> tuple[str, ...]:
    """The sites asked for; else all blocks, of many the first, the middle and the last, or for
    several defences the first. Of a cache the last is left out: who has it has those of the blocks
    before it, which are read in less time.
    """
    names = lens.match(asked["sites"] or "block.*")
    most = 1 if len(protections(asked)) > 1 else 2 if asked["release"] == "cache" else 3
    few = (names[0], names[len(names) // 2], names[-1])[:most]
    return names if asked["sites"] or len(names) <= MANY else few


# ---- A leaked key-value cache.


@CHANNELS.register("cache")
class CacheChannel(LeakChannel):
    """Keys, values or both that attention stores, of some blocks and heads, in the number format of
    the cache.
    """

    uses: ClassVar[tuple[str, ...]] = SHARED
    meaning: ClassVar[str] = (
        "Bits that what the cache holds of a token reveals of that token to an attacker who "
        "knows the tokens before it; "
        "what later tokens' entries add is not counted."
    )

    def attack(self, lens: Lens, texts: list[list[int]], asked: Given, run: Run) -> Leak:
        if lens.traits.encoder_decoder or not lens.traits.causal:
            raise BadInput(f"'{lens.name}' is no causal model with a key-value cache.")
        names = sites_of(lens, asked)
        wrong = [name for name in names if re.fullmatch(r"block\.\d+", name) is None]
        if wrong:
            raise BadInput(f"A cache belongs to a block: write --sites 'block.3', not {wrong[0]}.")

        def layer(name: str) -> int:
            return int(name.partition(".")[2])

        def loss(name: str, ids: Int[Tensor, "B T"], change: Change) -> Tensor:
            return loss_with_cache(lens, layer(name), asked["stored"], ids, change)

        def alone(name: str) -> SlicedModel:
            return cache_slice(lens, [layer(name)], asked["stored"])

        whole = cache_slice(lens, [layer(name) for name in names], asked["stored"])
        each = len(whole.parts) // len(names)
        parts = tuple(whole.parts[i : i + each] for i in range(0, len(whole.parts), each))
        return audit(
            Exposure(names, whole, tuple(map(sum, parts)), alone, parts, loss=loss),
            texts,
            asked,
            run,
        )


# ---- Leaked logits: the states at the head's input, seen through a linear map.


@CHANNELS.register("logits")
class LogitsChannel(LeakChannel):
    """The logits of every position, or log-probabilities, which lack one number of them.

    Logits are W h + b, with the head's weight W [V, d] and the state h before it: d numbers seen V
    times. All that noise of equal power in every logit leaves of h is in Wᵀ y, so with WᵀW = RᵀR
    the release is R h with d noises of that power: the same distances, the same bits, at d numbers
    a token and not V. Log-probabilities lack the logits' normaliser: they are taken centred over
    the vocabulary, which is the same for W with its columns centred.
    """

    uses: ClassVar[tuple[str, ...]] = COUNTED
    meaning: ClassVar[str] = (
        "Bits that the logits at a token's position, given as log-probabilities, reveal of that "
        "token to an attacker who "
        "knows the tokens before it."
    )

    def attack(self, lens: Lens, texts: list[list[int]], asked: Given, run: Run) -> Leak:
        """Bits and attacks at the head. Noise is in the rms of the equivalent d numbers, times
        √(d/V) that of a logit.
        """
        head = lens.traits.linear_head
        if head is None:
            raise BadInput(
                f"The head of '{lens.name}' is no linear map of its states, so its logits are "
                "not read back."
            )
        centred = (weight := head.weight.detach().double()) - weight.mean(0)
        values, vectors = torch.linalg.eigh(centred.T @ centred)
        root = (values.clamp_min(0).sqrt()[:, None] * vectors.T).float()
        cut = Mapped(
            Slice(sites=(head.site,)).on(lens),
            lambda states: states.float() @ root.T,
            "centred logits",
        )

        def loss(_: str, ids: Int[Tensor, "B T"], change: Change) -> Tensor:
            with torch.no_grad():
                states = lens.run(ids, sites=head.site)[head.site].float()
                seen = states @ root.T
                moved = torch.linalg.lstsq(root, (change(seen) - seen).flatten(0, 1).T).solution.T
                return cross_entropy(head.logits(states + moved.view_as(states)), ids)

        return audit(
            Exposure(("head",), cut, (cut.width,), lambda _: cut, loss=loss), texts, asked, run
        )


# ---- A leaked embedding: one vector for a whole text.

BATCH = 256
PASSAGES = 200


@CHANNELS.register("embedding")
class EmbeddingChannel(LeakChannel):
    """The mean of the last block's states, of unit length: what a vector store holds of a text. No
    training is needed.

    One vector stands for all tokens, so the bits are those of one token to one who knows all the
    others (a genie): B_t = I(X_t; Y | all other tokens). Their sum is no bound on the whole text
    from below. Without noise the attack names the nearest candidate, the others given; `headscan
    invert --given embedding` searches all tokens jointly.

    What a defence costs is told by retrieval: of up to 200 passages of the text, as long as a
    window, the share that the clean embedding of their first half finds first among what is
    released of all.
    """

    uses: ClassVar[tuple[str, ...]] = (*COUNTED, "defence")
    meaning: ClassVar[str] = (
        "Bits that the embedding of a text reveals of one token to an attacker who knows all the "
        "others, before and after it: "
        "more than an attacker has, so no sum of them bounds the whole text from below."
    )

    def attack(self, lens: Lens, texts: list[list[int]], asked: Given, run: Run) -> Leak:
        length = asked["length"]
        seed = asked["seed"]
        cut = EmbeddingSlice(lens)
        prior = prior_of(asked["prior"], lens, texts)
        plan = plan_of(cut, texts, asked, run, whole_rows=True)
        rows = list[LeakRow]()
        passages = windows_of(texts, PASSAGES, length)
        stored, queries = (
            _embedded(cut, ids) for ids in (passages, passages[:, : (length + 1) // 2])
        )
        for number, defence in enumerate(protections(asked)):
            fit = UNCHANGED if defence is None else defence.fit(stored.float(), seed, lens)
            leaks, scale = self._leaks(
                cut, fit.seen, plan.windows, plan.candidates, prior, asked, run, number
            )
            for place, level in enumerate(dict.fromkeys(asked["noise"])):
                parts = [[one for one in part if one.level == place] for part in leaks]
                name = "none" if defence is None else defence.name
                row = bits_row("embedding", name, level, level * scale, parts, asked["draws"], None)
                noise = level * scale, torch.Generator().manual_seed(seed + 2)
                share = retrieval(stored, queries, working(fit.kept or fit.seen, fit.back, *noise))
                row = replace(
                    row, retrieval=share, retrieval_interval=share_interval(share, len(stored))
                )
                if not level and (defence is None or not defence.rounds):
                    row = replace(
                        row,
                        bits_lower=None,
                        bits_upper=None,
                        bits_truth=None,
                        bits_truth_error=None,
                        bits_interval=None,
                        lower_by=None,
                        upper_by=None,
                        attack="nearest, others known",
                        attack_accuracy_upper=None,
                        attack_accuracy_upper_interval=None,
                        worst_lower=None,
                        worst_upper=None,
                        attack_accuracy=row.text_accuracy,
                        attack_accuracy_interval=row.text_accuracy_interval,
                    )
                rows.append(row)
        return Leak(rows=rows, notes=plan.notes)

    def _leaks(
        self,
        cut: SlicedModel,
        released: Change,
        windows: Int[Tensor, "B T"],
        candidates: int | None,
        prior: Prior,
        asked: Given,
        run: Run,
        number: int,
    ) -> tuple[list[list[PositionLeak]], float]:
        """What is told at each position of each window behind the defence of a number, and the unit
        of its noise.
        """
        seen = released(_embedded(cut, windows).float()).double()
        scale = (
            float(seen.var(0, unbiased=False).mean().sqrt())
            if len(windows) > 1
            else float(seen.std())
        )
        sigmas = [level * scale for level in dict.fromkeys(asked["noise"])]
        work = partial(
            _window,
            cut,
            released,
            candidates=candidates,
            sigmas=sigmas,
            prior=prior,
            ordered=asked["prior"] == "model",
            draws=asked["draws"],
            seed=asked["seed"],
        )
        found: list[list[PositionLeak]] = []
        for place, window in enumerate(windows):
            mark = f"{number}-window-{place}" if number else f"window-{place}"
            found.append(run.unit(mark, list[PositionLeak], partial(work, window)))
            run.progress("bits", (place + 1) * len(window), windows.numel(), "tokens")
        return found, scale


def retrieval(stored: Float[Tensor, "N w"], queries: Float[Tensor, "N w"], change: Change) -> float:
    """The share of queries whose own passage has the largest cosine among what `change` makes of
    the stored vectors.
    """
    left = change(stored.float()).double()
    cosines = queries @ (left / left.norm(dim=1, keepdim=True).clamp_min(1e-30)).T
    return float((cosines.argmax(1) == torch.arange(len(queries))).double().mean())


@torch.no_grad()
def _embedded(cut: SlicedModel, rows: Int[Tensor, "B T"]) -> Float[Tensor, "B w"]:
    return torch.cat([cut.run(part)[:, 0] for part in rows.split(BATCH)]).cpu().double()


@torch.no_grad()
def _window(
    cut: SlicedModel,
    released: Change,
    ids: Int[Tensor, " T"],
    *,
    candidates: int | None,
    sigmas: list[float],
    prior: Prior,
    ordered: bool,
    draws: int,
    seed: int,
) -> list[PositionLeak]:
    """Every position of a window, the others known. A model's prior is that given the tokens
    before: what the later ones say of the token is left out of it, so that it counts as the
    release's.
    """
    seen = released(_embedded(cut, ids[None]).float())[0].double()
    found = list[PositionLeak]()
    shares = prior(ids[None])[0]
    for place in range(int(ordered), len(ids)):
        tokens, coded = cut_prior(shares[place - 1] if ordered else shares[place], candidates)
        rows = ids.repeat(len(tokens), 1)
        rows[:, place] = tokens
        code = coded(released(_embedded(cut, rows).float()))
        found += at_position(
            code, seen, index_of(ids[place], tokens), 0, sigmas, draws, seed + 7919 * place
        )
    return found


# ---- The attacks on key-value caches of "Shadow in the Cache" (arXiv:2508.09442), by name: inversion, collision, injection.


# windows that are read of a model of many blocks, unless the number of candidates was asked for
FEW = 2


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

    def measure(self, lens: Lens, texts: list[list[int]], asked: Given, run: Run) -> list[TrialRow]:
        names = sites_of(lens, asked)
        found = list[TrialRow]()
        cuts = {
            name: cache_slice(lens, [int(name.partition(".")[2])], asked["stored"])
            for name in names
        }
        plan = plan_of(
            cuts[names[-1]], texts, asked, Run.quiet(), sites=len(names)
        )  # the audit has told it
        windows = plan.windows.to(lens.device)
        most = min(self.candidates, plan.candidates or self.candidates)
        note = ""
        if asked["candidates"] is None and len(lens.match("block.*")) > MANY and len(windows) > FEW:
            windows = windows[:FEW]
            note = f"of {FEW} windows, so that it ends in minutes (--candidates: all)"
            run.announce(f"Attacks by name: {note}.")
        count = windows[:, 1:].numel()

        def told(site: str, setting: str, work: Callable[[], int], knows: str = "weights") -> None:
            label = "none" if defence is None else defence.name
            behind = f", noise {level:g}" if level else ""
            share = run.unit(f"attack-{len(found)}", int, work) / count
            found.append(
                TrialRow(
                    test=self.name,
                    site=site,
                    defence=label,
                    setting=setting + behind,
                    quantity="tokens read",
                    value=share,
                    interval=share_interval(share, count),
                    count=count,
                    knows=knows,
                    note=note,
                )
            )
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
                    told(
                        name, "collision", summed(partial(self._collide, cut, most), windows, seen)
                    )
                change = partial(hidden, defence=defence, noise=level)
                told(
                    "all blocks",
                    "injection",
                    summed(partial(self._inject, lens, change), windows),
                    "nothing",
                )
        return found

    @staticmethod
    @torch.no_grad()
    def _collide(
        cut: CacheSlice, most: int, ids: Int[Tensor, " T"], seen: Float[Tensor, "T w"]
    ) -> int:
        """Tokens that a collision names rightly, with the likeliest candidates of a position."""
        prefix = Prefix(cut, ids[None, :1])
        told = [int(ids[0])]
        for place in range(1, len(ids)):
            expected = cut.lens.run([told], sites="head")["head"][0, -1, : cut.vocabulary_size]
            tokens = expected.topk(min(most, len(expected))).indices
            far = (prefix.evaluate(torch.zeros_like(tokens), tokens) - seen[place]).norm(dim=1)
            told.append(int(tokens[far.argmin()]))
            prefix.extend(tokens[None, far.argmin()[None]])
        return int((torch.tensor(told[1:]) == ids[1:].cpu()).sum())

    @torch.no_grad()
    def _inject(self, lens: Lens, change: partial[Tensor], ids: Int[Tensor, " T"]) -> int:
        """Tokens of the longest common subsequence of the text and of what the model says after the
        instruction.
        """
        tokens = lens.require_tokenizer()(self.instruction, add_special_tokens=False)["input_ids"]
        limit = (lens.context_length or 2**30) - len(ids)
        cache = DynamicCache()
        step = torch.tensor([tokens[: max(1, limit // 2)]], device=lens.device)
        said = list[int]()
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
                step = (
                    lens.model(input_ids=step, past_key_values=cache, use_cache=True)
                    .logits[:, -1:]
                    .argmax(-1)
                )
                said.append(int(step))
        return min(longest_common(said, ids.tolist()), len(ids) - 1)


def hidden(
    rows: Float[Tensor, "T w"], parts: Sequence[int], defence: Mechanism | None, noise: float
) -> Float[Tensor, "T w"]:
    """What lies in memory in place of the entries of a window, with secrets drawn anew; `parts` are
    keys and values.
    """
    draw = torch.Generator().manual_seed(1)
    if defence is not None:
        rows = torch.cat([defence.stored(piece, draw) for piece in rows.split(list(parts), 1)], 1)
    return rows + noise * torch.randn(rows.shape, generator=draw).to(rows)


@torch.no_grad()
def invert_directly(cut: CacheSlice, ids: Int[Tensor, " T"], seen: Float[Tensor, "T w"]) -> int:
    """Tokens that direct inversion names rightly: a linear solve for their vectors, then the
    nearest embedding.
    """
    table = torch.nn.functional.normalize(cut.lens.input_embeddings.detach().float(), dim=1)
    some = torch.randperm(len(table), generator=torch.Generator().manual_seed(0))[
        : 4 * cut.width
    ].to(seen.device)
    entries = Prefix(cut, ids[None, :1]).evaluate(torch.zeros_like(some), some)
    if entries.shape[1] != seen.shape[1]:  # fewer numbers than entries: there is no map to solve
        return 0
    if len(cut.parts) == 2:  # keys are turned by their positions, values are not
        entries = entries[:, cut.parts[0] :]
        seen = seen[:, cut.parts[0] :]
    middle = entries.mean(0)
    mean = table[some].mean(0)
    solved = torch.linalg.lstsq(entries - middle, table[some] - mean).solution
    guess = ((seen[1:] - middle) @ solved + mean) @ table.T
    return int((guess.argmax(1) == ids[1:]).sum())
