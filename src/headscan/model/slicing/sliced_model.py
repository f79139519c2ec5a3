"""Slices: a part of a model, made ready on one model and run, with parts taken out or another
embedding table.
"""

import copy
import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Self

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from typing_extensions import TypeAliasType

from headscan.model.inputs import IdsLike
from headscan.model.lens import Lens
from headscan.model.recording import Stack, record
from headscan.model.sites import Tap, first_tensor, input_tensor
from headscan.model.slicing.specification import SliceSpecification, features_of, positions_of
from headscan.model.traits import Memo, blind_to_the_last, random_ids
from headscan.run import BadInput, Option

MIXING = ("attention", "cross_attention", "mixer")


class Ablation:
    """What a slice takes out of one model, as hooks that are on while the slice runs and are
    removed afterwards.

    How a residual is taken out: the branch's output A is replaced by A - x before the model adds it
    to x, so that the sum is A whatever the family's code looks like. This costs one rounding at the
    scale of x, and holds only where a block's output is its input plus its branches
    (`Stack.plain`).
    """

    def __init__(self, slice_: SliceSpecification, lens: Lens, stack: Stack) -> None:
        self.slice = slice_
        self.lens = lens
        self.stack = stack
        self.live: list[list[Tap]] = []
        self.silent: list[list[Tap]] = []
        for index in range(stack.depth):
            live, silent = self._branches(index)
            self.live.append(live)
            self.silent.append(silent)
            name = f"block {index} of '{lens.name}'"
            if slice_.only and not live:
                raise BadInput(f"No {slice_.only} was found in {name}, so it cannot be run alone.")
            if not slice_.residual and not stack.plain[index]:
                raise BadInput(
                    f"The output of {name} is not its input plus its branches (a norm acts on the "
                    "sum), so its residual cannot be taken out."
                )
        # For each block, whether its branches follow one another (else they are parallel).
        self._following = [
            len(live) > 1 and self._depends(live[1], live[0])
            for live in self.live
            if not slice_.residual
        ]

    def _branches(self, index: int) -> tuple[list[Tap], list[Tap]]:
        """The branches of a block that stay, and those that `only` silences."""
        start = f"{self.stack.prefix}block.{index}."
        live = list[Tap]()
        silent = list[Tap]()
        for site, tap in self.stack.taps.items():
            if site.startswith(start):
                mixes = site[len(start) :].startswith(MIXING)
                stays = self.slice.only is None or mixes == (self.slice.only == "attention")
                (live if stays else silent).append(tap)
        return live, silent

    def _depends(self, later: Tap, earlier: Tap) -> bool:
        """Whether a branch changes when another is silenced: asked by one experiment."""
        outputs: list[Tensor] = []
        ids = torch.zeros(1, 2, dtype=torch.int64, device=self.lens.device)

        def note(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            outputs.append(_tensor(output).detach().clone())

        with ExitStack() as hooks:
            hooks.callback(later.module.register_forward_hook(note).remove)
            self.lens.run(ids, sites=later.site)
            hooks.callback(earlier.module.register_forward_hook(_silence).remove)
            self.lens.run(ids, sites=later.site)
        return not torch.equal(outputs[0], outputs[1])

    @contextmanager
    def active(self) -> Iterator[None]:
        with ExitStack() as hooks:
            for index, block in enumerate(self.stack.blocks):
                for tap in self.silent[index]:
                    hooks.callback(tap.module.register_forward_hook(_silence).remove)
                if not self.slice.residual:
                    self._remove_residual(index, block, hooks)
            if not self.slice.normalisation:
                for module in self.stack.module.modules():
                    if "norm" in type(module).__name__.lower() and not any(module.children()):
                        hooks.callback(module.register_forward_hook(_identity).remove)
            yield

    def _remove_residual(self, index: int, block: nn.Module, hooks: ExitStack) -> None:
        stream: dict[str, Tensor] = {}

        def begin(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            states = input_tensor(args, kwargs)
            assert states is not None
            stream["x"] = states

        def subtract(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
            branch = _tensor(output)
            before = stream["x"].reshape(branch.shape)
            stream["x"] = branch
            return _with_tensor(output, branch - before)

        hooks.callback(block.register_forward_pre_hook(begin, with_kwargs=True).remove)
        for tap in self.live[index] if self._following[index] else self.live[index][:1]:
            hooks.callback(tap.module.register_forward_hook(subtract).remove)


def _tensor(output: Any) -> Tensor:
    tensor = first_tensor(output)
    assert tensor is not None
    return tensor


def _with_tensor(output: Any, tensor: Tensor) -> Any:
    if isinstance(output, Tensor):
        return tensor
    if isinstance(output, tuple):
        return (tensor, *output[1:])
    if isinstance(output, list):
        return [tensor, *output[1:]]
    raise TypeError(
        f"A module returned {type(output).__name__}, in which no tensor can be replaced."
    )


def _silence(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
    return _with_tensor(output, torch.zeros_like(_tensor(output)))


def _identity(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
    return _with_tensor(output, args[0])


def other_table(name: str, lens: Lens) -> Float[Tensor, "V e"]:
    """The table "random:SEED", with the standard deviation of the model's own."""
    own = lens.input_embeddings
    kind, _, seed = name.partition(":")
    if kind != "random" or not seed.isdigit():
        raise BadInput(f"Another embedding table is given as random:SEED, not as '{name}'.")
    return (
        torch.randn(own.shape, generator=torch.Generator().manual_seed(int(seed)))
        * own.detach().float().std().cpu()
    ).to(own)


def equal_rows(table: Float[Tensor, "V e"]) -> dict[int, list[int]]:
    """The rows that are equal to others, by row; rows without an equal are not in it.

    >>> equal_rows(torch.tensor([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]]))
    {0: [0, 2], 2: [0, 2]}
    """
    # Equal rows have equal sums along any direction; the few that agree there are compared entry by
    # entry.
    direction = torch.randn(table.shape[1], generator=torch.Generator().manual_seed(0))
    sums = torch.cat(
        [(rows.double().cpu() * direction.double()).sum(1) for rows in table.split(4096)]
    )
    _, group, counts = sums.unique(return_inverse=True, return_counts=True)
    equals: dict[int, list[int]] = {}
    for row in (counts[group] > 1).nonzero()[:, 0].tolist():
        if row not in equals:
            alike = (group == group[row]).nonzero()[:, 0]
            same = alike[(table[alike.to(table.device)] == table[row]).all(1).cpu()].tolist()
            if len(same) > 1:
                equals |= dict.fromkeys(same, same)
    return equals


# ---- Slices: a part of a model, made ready on one model and run.


class SlicedModel(Memo):
    """A `Slice` on a `Lens`. Made by `Slice.on`, which keeps it, so that the preparation is done
    once.
    """

    def __init__(self, slice_: SliceSpecification, lens: Lens) -> None:
        super().__init__()
        self.slice = slice_
        # The model that runs: the one given, or a copy with fresh weights.
        self.lens = (
            lens
            if slice_.weights is None
            else lens.random_init(int(slice_.weights.partition(":")[2]))
        )
        # The sites in the order in which they are concatenated: as asked for; globs expand in the
        # order of depth.
        self.sites = tuple(
            dict.fromkeys(site for glob in slice_.sites for site in self.lens.match(glob))
        )
        stacks = [
            stack for stack in self.lens.stacks if any(site in stack.taps for site in self.sites)
        ]
        self._ablation = Ablation(slice_, self.lens, (stacks or self.lens.stacks)[-1])
        self._taps = [self.lens.tap(site) for site in self.sites]
        everything = range(sum(tap.width for tap in self._taps))
        self._index = features_of(slice_.features, len(everything))
        # w', the number of features of the output.
        self.width = (
            len(self._index) if isinstance(self._index, Tensor) else len(everything[self._index])
        )
        self.causal = self._measure_causal()  # as measured on random embeddings, not as promised
        if slice_.causal is not None and slice_.only != "mlp" and self.causal != slice_.causal:
            what = "imposed on" if slice_.causal else "lifted from"
            raise BadInput(
                f"A causal mask cannot be {what} '{lens.name}': it is not a mask that this family "
                "is given."
            )

    def __repr__(self) -> str:
        return f"SlicedModel({str(self.slice)!r} of {self.lens.name!r}: {self.width} features)"

    def keeping(self, tokens: str) -> Self:
        copied = copy.copy(self)
        copied.slice = self.slice.but(tokens=tokens)
        return copied

    def document(self) -> dict[str, Any]:
        """What is computed at every position, as plain values: the key under which results are kept
        on disk.
        """
        return self.slice.but(tokens=":").document() | {"pool": None}

    def takes(self, argument: str) -> bool:
        return argument in inspect.signature(self.lens.model.forward).parameters

    @cached_property
    def vectors(self) -> Float[Tensor, "V e"]:
        """The vector of every token of the vocabulary, [V, e], as the model's embedding module
        gives it (detached).
        """
        if self.slice.embedding is None:
            with torch.no_grad():
                module = self.lens.model.get_input_embeddings()
                if type(module) is nn.Embedding and module.max_norm is None:
                    # the same numbers, without a second table in memory
                    return module.weight.detach()
                table: Tensor = module(
                    torch.arange(self.lens.vocabulary_size, device=self.lens.device)
                )
                return table.detach()
        return other_table(self.slice.embedding, self.lens).detach()

    @cached_property
    def equal_rows(self) -> dict[int, list[int]]:
        return equal_rows(self.vectors)

    @property
    def vocabulary_size(self) -> int:
        return self.lens.vocabulary_size

    def embed(self, ids: Int[Tensor, "..."]) -> Float[Tensor, "... e"]:
        return F.embedding(ids.to(self.vectors.device), self.vectors)

    def check(self, input_ids: IdsLike) -> Int[Tensor, "B T"]:
        return self.lens.inputs.ids(input_ids)

    def run(
        self,
        input_ids: IdsLike | None = None,
        *,
        inputs_embeds: Float[Tensor, "B T e"] | None = None,
        grad: bool = False,
    ) -> Float[Tensor, "B kept width"]:
        return self.part(self.states(input_ids, inputs_embeds=inputs_embeds, grad=grad))

    def states(
        self,
        input_ids: IdsLike | None = None,
        *,
        inputs_embeds: Float[Tensor, "B T e"] | None = None,
        grad: bool = False,
        extra: dict[str, Any] | None = None,
    ) -> Float[Tensor, "B T width"]:
        """The output at every position, [B, T, w'], before `tokens` and `pool` take their part.
        `extra` is handed to the model's forward (a cache, for example); the length is not checked
        then.
        """
        if input_ids is not None and inputs_embeds is None and self.slice.embedding is not None:
            inputs_embeds = self.embed(self.check(input_ids))
            input_ids = None
        if inputs_embeds is not None:
            inputs_embeds = inputs_embeds.to(self.lens.device, self.lens.input_embeddings.dtype)
        inputs = self.lens.inputs.forward(input_ids, inputs_embeds, None, None, self.sites)
        first = inputs["input_ids"] if inputs_embeds is None else inputs["inputs_embeds"]
        inputs |= self._frame(first.shape[0], first.shape[1]) | (extra or {})
        with self._ablation.active():
            states = record(self.lens.model, self._taps, inputs, grad=grad)
        parts = [states[site] for site in self.sites]
        return self.features(parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1))

    def features(self, whole: Float[Tensor, "*shape all"]) -> Float[Tensor, "*shape width"]:
        """The features that the slice keeps, of all features of its sites."""
        return (
            whole
            if self.width == whole.shape[-1] and isinstance(self._index, slice)
            else whole[..., self._index]
        )

    def part(self, states: Float[Tensor, "B T width"]) -> Float[Tensor, "B kept width"]:
        """The kept positions of states [B, T, w'], pooled if the slice says so."""
        kept = self.kept(states.shape[1])
        chosen = states if len(kept) == states.shape[1] else states[:, kept[0] : kept[-1] + 1]
        if self.slice.pool is None:
            return chosen
        return {
            "mean": chosen.mean(1, keepdim=True),
            "first": chosen[:, :1],
            "last": chosen[:, -1:],
        }[self.slice.pool]

    def kept(self, length: int) -> list[int]:
        """The positions of the output that are seen, of an input of `length` tokens."""
        return positions_of(self.slice.tokens, length)

    @property
    def plain_input(self) -> bool:
        return self.slice.causal is None or self.slice.causal == self.lens.traits.causal

    def _frame(self, batch: int, length: int) -> dict[str, Any]:
        """The mask, where the slice changes it; transformers takes one of four dimensions as it is."""
        if self.plain_input:
            return {}
        dtype = self.lens.input_embeddings.dtype
        mask = torch.zeros(length, length, dtype=dtype, device=self.lens.device)
        if self.slice.causal:
            mask = mask.masked_fill(torch.ones_like(mask).triu(1).bool(), torch.finfo(dtype).min)
        return {"attention_mask": mask.expand(batch, 1, length, length)}

    def _measure_causal(self) -> bool:
        generator = torch.Generator().manual_seed(0)
        embeds = self.embed(random_ids(self.lens, 1, 4))
        changed = embeds.clone()
        noise = torch.randn(embeds.shape[-1], generator=generator).to(embeds)
        changed[:, -1] = self.vectors.mean(0) + self.vectors.std() * noise
        try:
            states = self.states(inputs_embeds=torch.cat([embeds, embeds, changed]))
        except (ValueError, RuntimeError, TypeError, IndexError) as error:
            if isinstance(error, BadInput):
                raise
            text = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
            raise BadInput(
                f"'{self.lens.name}' cannot be run as the slice '{self.slice}' asks: {text}."
            ) from error
        return blind_to_the_last(states)


@dataclass(frozen=True)
class Slice(SliceSpecification):
    """A part of a model from its input embeddings to a site, cut in any of several ways, and a part
    of the output.

    It holds no model, and is saved inside results as `slice.document()`.

    Attributes:
        sites: one or more sites of the Lens (globs are allowed). Several are concatenated on the
            feature axis.
        only: "attention" or "mlp" silences the other branches of every block (attention stands for
            whatever mixes tokens: recurrences and mixers too).
        residual: False replaces x + branch(x) by branch(x) in every block.
        normalisation: False makes every norm the identity, the final one included.
        causal: True imposes a causal mask, False lifts it, None leaves the model's own.
        embedding: "random:SEED" is another table (normal, with the standard deviation of the
            model's own).
        weights: None as given, "fresh:SEED" for newly initialised ones (`Lens.random_init`).
        tokens: which positions of the output are kept, as between the brackets of numpy: ":", "1:",
            ":3", "-1", "2:5".
        features: which features: ":", ":64", "64:128", or "random(64,SEED)" for a random subset.
        pool: "mean", "first" or "last" replaces the kept positions by one vector, as sentence
            encoders do.

    `run` gives [B, T', w']: T' positions kept, w' features kept, all sites together.

    Raises BadInput: an attribute that no slice can have.

    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> lens = Lens(GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=2, n_head=2)))
    >>> cut = Slice.parse("block.0 + block.1 [:, 1:, :12]", causal=False)
    >>> cut.run(lens, [[1, 2, 3]]).shape
    torch.Size([1, 2, 12])
    >>> str(cut)
    'block.0 + block.1 [:, 1:, :12] causal=False'
    >>> Slice.from_document(cut.document()) == cut
    True
    """

    def on(self, lens: Lens) -> SlicedModel:
        """The slice made ready on a model: what takes time (fresh weights, probing the mask) is
        done once and kept. Raises BadInput: the model cannot be cut so; one sentence says why.
        """
        return lens.once(self, lambda: SlicedModel(self, lens))

    def run(
        self,
        lens: Lens,
        input_ids: IdsLike | None = None,
        *,
        inputs_embeds: Float[Tensor, "B T e"] | None = None,
        grad: bool = False,
    ) -> Float[Tensor, "B kept width"]:
        """Run the slice on token ids [B, T], or on vectors [B, T, e] as the embedding table would
        give them.

        Later layers are not computed. With `grad` the output [B, T', w'], in the precision of the
        model, can be differentiated by `inputs_embeds`.
        """
        return self.on(lens).run(input_ids, inputs_embeds=inputs_embeds, grad=grad)


At = TypeAliasType(
    "At",
    Annotated[
        str | Slice,
        Option(
            "The slice: SITE [+ SITE ...], a part of its output, and how the model is cut: "
            "'block.3[:, 1:, :64] only=attention residual=false'. Attributes: only, residual, "
            "normalisation, causal, embedding, weights, pool.",
            group="Input",
        ),
    ],
)
