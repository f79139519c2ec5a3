"""Slices: a part of a model, made ready on one model and run."""

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Self

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from typing_extensions import TypeAliasType

from headscan.model.framed import framed_ids
from headscan.model.inputs import IdsLike
from headscan.model.lens import Lens
from headscan.model.recording import record, record_within_memory
from headscan.model.slicing.ablation import Ablation
from headscan.model.slicing.specification import SliceSpecification, features_of, positions_of
from headscan.model.traits import Memo, blind_to_the_last, random_ids
from headscan.run import BadInput, Option, exhausted
from headscan.text.tokens import NO_FRAME, Frame

ROWS_AT_ONCE = 4096
TRIAL_TOKENS = 4


def random_table(name: str, lens: Lens) -> Float[Tensor, "V e"]:
    """Return the embedding table "random:SEED", with the standard deviation of the model's own."""
    kind, _, seed = name.partition(":")
    if kind != "random" or not seed.isdigit():
        raise BadInput(f"Another embedding table is given as random:SEED, not as '{name}'.")
    table = lens.input_embeddings
    normal = torch.randn(table.shape, generator=torch.Generator().manual_seed(int(seed)))
    return (normal * table.detach().float().std().cpu()).to(table)


def equal_rows(table: Float[Tensor, "V e"]) -> dict[int, list[int]]:
    """Return the rows that are equal to others, by row; rows without an equal are not in it.

    >>> equal_rows(torch.tensor([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]]))
    {0: [0, 2], 2: [0, 2]}
    """
    # Equal rows have equal sums along any direction; the few that agree there are compared entry by
    # entry.
    generator = torch.Generator().manual_seed(0)
    direction = torch.randn(table.shape[1], generator=generator).double()
    sums = [(rows.double().cpu() * direction).sum(1) for rows in table.split(ROWS_AT_ONCE)]
    _, group, counts = torch.cat(sums).unique(return_inverse=True, return_counts=True)
    equals: dict[int, list[int]] = {}
    for row in (counts[group] > 1).nonzero()[:, 0].tolist():
        if row in equals:
            continue
        candidates = (group == group[row]).nonzero()[:, 0]
        matches = (table[candidates.to(table.device)] == table[row]).all(1).cpu()
        twins = candidates[matches].tolist()
        if len(twins) > 1:
            equals |= dict.fromkeys(twins, twins)
    return equals


class SlicedModel(Memo):
    """A `Slice` on a `Lens`.

    It is made by `Slice.on`, which stores it, so that the preparation is done once.

    Attributes:
        lens: the model that runs: the one that was sliced, or a copy with fresh weights.
        sites: in the order in which their outputs are joined: as the slice names them; globs expand
            in the order of depth.
        width: w', the number of features of the output.
        causal: whether no output depends on a later token, as measured on random embeddings.
    """

    def __init__(self, specification: SliceSpecification, lens: Lens) -> None:
        super().__init__()
        self.slice = specification
        self.lens = lens
        if specification.weights is not None:
            seed = int(specification.weights.partition(":")[2])
            self.lens = lens.random_init(seed)
        matched = [site for glob in specification.sites for site in self.lens.match(glob)]
        self.sites = tuple(dict.fromkeys(matched))
        stacks = [
            stack for stack in self.lens.stacks if any(site in stack.taps for site in self.sites)
        ]
        deepest_stack = (stacks or self.lens.stacks)[-1]
        self._ablation = Ablation(specification, self.lens, deepest_stack)
        self._taps = [self.lens.tap(site) for site in self.sites]
        total_width = sum(tap.width for tap in self._taps)
        self._index = features_of(specification.features, total_width)
        if isinstance(self._index, Tensor):
            self.width = len(self._index)
        else:
            self.width = len(range(total_width)[self._index])
        self.causal = self._measure_causal()
        self._check_causal()

    def _check_causal(self) -> None:
        """Raise BadInput where the mask that the slice asks for has no effect."""
        causal = self.slice.causal
        if causal is None or self.slice.only == "mlp" or self.causal == causal:
            return
        action = "imposed on" if causal else "lifted from"
        raise BadInput(
            f"A causal mask cannot be {action} '{self.lens.name}': it is not a mask that this "
            "family is given."
        )

    def __repr__(self) -> str:
        return f"SlicedModel({str(self.slice)!r} of {self.lens.name!r}: {self.width} features)"

    def keeping(self, tokens: str) -> Self:
        """Return the same slice with other positions of its output."""
        copied = copy.copy(self)
        copied.slice = self.slice.but(tokens=tokens)
        return copied

    def document(self) -> dict[str, Any]:
        """Return what is computed at every position, as plain values.

        It is the key under which results are stored on disk.
        """
        return self.slice.but(tokens=":").document() | {"pool": None}

    def takes(self, argument: str) -> bool:
        """Return whether the model's forward pass has an argument of this name."""
        return argument in inspect.signature(self.lens.model.forward).parameters

    @cached_property
    def vectors(self) -> Float[Tensor, "V e"]:
        """The vector of every token of the vocabulary, detached.

        They are those that the model's embedding module gives, or of the slice's own table.
        """
        if self.slice.embedding is not None:
            return random_table(self.slice.embedding, self.lens).detach()
        module = self.lens.model.get_input_embeddings()
        if type(module) is nn.Embedding and module.max_norm is None:
            return module.weight.detach()  # the same numbers, without a second table in memory
        with torch.no_grad():
            ids = torch.arange(self.lens.vocabulary_size, device=self.lens.device)
            table: Tensor = module(ids)
        return table.detach()

    @cached_property
    def equal_rows(self) -> dict[int, list[int]]:
        """The tokens whose vectors are equal to those of others, by token."""
        return equal_rows(self.vectors)

    @property
    def vocabulary_size(self) -> int:
        """The number of tokens."""
        return self.lens.vocabulary_size

    def embed(self, ids: Int[Tensor, "..."]) -> Float[Tensor, "... e"]:
        """Return the vectors of tokens."""
        return F.embedding(ids.to(self.vectors.device), self.vectors)

    def check(self, input_ids: IdsLike) -> Int[Tensor, "B T"]:
        """Return token ids as the model takes them.

        Raises:
            BadInput: for ids that it does not take.
        """
        return self.lens.inputs.ids(input_ids)

    def run(
        self,
        input_ids: IdsLike | None = None,
        *,
        inputs_embeds: Float[Tensor, "B T e"] | None = None,
        grad: bool = False,
    ) -> Float[Tensor, "B selected width"]:
        """Return the slice's output; see `Slice.run`."""
        return self.part(self.states(input_ids, inputs_embeds=inputs_embeds, grad=grad))

    def states(
        self,
        input_ids: IdsLike | None = None,
        *,
        inputs_embeds: Float[Tensor, "B T e"] | None = None,
        grad: bool = False,
        extra: dict[str, Any] | None = None,
    ) -> Float[Tensor, "B T width"]:
        """Return the output at every position, before `tokens` and `pool` take their part.

        `extra`: further arguments of the model's forward pass (a cache, for example); the length is
        not checked then.
        """
        if input_ids is not None and inputs_embeds is None and self.slice.embedding is not None:
            inputs_embeds = self.embed(self.check(input_ids))
            input_ids = None
        if inputs_embeds is not None:
            inputs_embeds = inputs_embeds.to(self.lens.device, self.lens.input_embeddings.dtype)
        frame = self._frame(extra)
        if inputs_embeds is not None:
            inputs_embeds = self._framed(inputs_embeds, frame)
        elif input_ids is not None and frame.length:
            input_ids = framed_ids(self.check(input_ids), frame)
        inputs = self.lens.inputs.forward(input_ids, inputs_embeds, None, None, self.sites)
        tokens = inputs["input_ids"] if inputs_embeds is None else inputs["inputs_embeds"]
        inputs |= self._mask(tokens.shape[0], tokens.shape[1])
        inputs |= extra or {}
        with self._ablation.active():
            if grad or extra:
                states = record(self.lens.model, self._taps, inputs, grad=grad)
            else:
                limit = self.lens.limit
                states = record_within_memory(self.lens.model, self._taps, inputs, limit=limit)
        outputs = [states[site] for site in self.sites]
        joined = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)
        return self.features(joined[:, frame.text(joined.shape[1])])

    def _frame(self, extra: dict[str, Any] | None) -> Frame:
        """Return what stands around the input of a pass.

        Behind a cache that has begun there is nothing; one that begins has the tokens in front.
        """
        cache = (extra or {}).get("past_key_values")
        if cache is None:
            return self.lens.frame
        return NO_FRAME if getattr(cache, "begun", False) else Frame(self.lens.frame.front)

    def _framed(
        self, inputs_embeds: Float[Tensor, "B T e"], frame: Frame
    ) -> Float[Tensor, "B framed e"]:
        """Return vectors with those of the added tokens."""
        if not frame.length:
            return inputs_embeds
        added = self.embed(torch.tensor([*frame.front, *frame.end])).to(inputs_embeds)
        by_row = added.expand(len(inputs_embeds), -1, -1)
        front = by_row[:, : len(frame.front)]
        end = by_row[:, len(frame.front) :]
        return torch.cat([front, inputs_embeds, end], dim=1)

    def in_batches(self, run: Callable[[slice], Tensor], count: int, batch: int) -> Tensor:
        """Return `run(slice)` of `count` rows, concatenated, in batches of at most so many rows.

        Batches are halved where memory runs out; the model's `limit` notes it.
        """
        if not count:
            return run(slice(0, 0))
        results = []

        def work(begin: int, end: int) -> None:
            results.append(run(slice(begin, end)))

        self.lens.limit.run(count, work, most=batch)
        return torch.cat(results)

    def features(self, states: Float[Tensor, "*shape all"]) -> Float[Tensor, "*shape width"]:
        """Return the features that the slice selects, of all features of its sites."""
        selects_all = self.width == states.shape[-1] and isinstance(self._index, slice)
        return states if selects_all else states[..., self._index]

    def part(self, states: Float[Tensor, "B T width"]) -> Float[Tensor, "B selected width"]:
        """Return the selected positions of states, pooled if the slice says so."""
        positions = self.kept(states.shape[1])
        if len(positions) < states.shape[1]:
            states = states[:, positions[0] : positions[-1] + 1]
        if self.slice.pool == "mean":
            return states.mean(1, keepdim=True)
        if self.slice.pool == "first":
            return states[:, :1]
        if self.slice.pool == "last":
            return states[:, -1:]
        return states

    def kept(self, length: int) -> list[int]:
        """Return the positions of the output that are seen, of an input of `length` tokens."""
        return positions_of(self.slice.tokens, length)

    @property
    def plain_input(self) -> bool:
        """Return whether the model gets its own mask."""
        return self.slice.causal is None or self.slice.causal == self.lens.traits.causal

    def _mask(self, rows: int, length: int) -> dict[str, Any]:
        """Return the mask, where the slice changes it.

        transformers takes a mask of four dimensions as it is.
        """
        if self.plain_input:
            return {}
        dtype = self.lens.input_embeddings.dtype
        mask = torch.zeros(length, length, dtype=dtype, device=self.lens.device)
        if self.slice.causal:
            is_later = torch.ones_like(mask).triu(1).bool()
            mask = mask.masked_fill(is_later, torch.finfo(dtype).min)
        return {"attention_mask": mask.expand(rows, 1, length, length)}

    def _measure_causal(self) -> bool:
        embeds = self.embed(random_ids(self.lens, 1, TRIAL_TOKENS))
        generator = torch.Generator().manual_seed(0)
        noise = torch.randn(embeds.shape[-1], generator=generator).to(embeds)
        changed = embeds.clone()
        changed[:, -1] = self.vectors.mean(0) + self.vectors.std() * noise
        try:
            states = self.states(inputs_embeds=torch.cat([embeds, embeds, changed]))
        except BadInput:
            raise
        except (ValueError, RuntimeError, TypeError, IndexError) as error:
            if exhausted(error):
                raise
            lines = str(error).strip().splitlines() or [type(error).__name__]
            reason = lines[0].rstrip(".")
            raise BadInput(
                f"'{self.lens.name}' cannot be run as the slice '{self.slice}' asks: {reason}."
            ) from error
        return blind_to_the_last(states)


@dataclass(frozen=True)
class Slice(SliceSpecification):
    """A part of a model from its input embeddings to a site, and a part of the output.

    It holds no model, and is saved inside results as `slice.document()`. `run` gives [B, T', w']:
    T' positions selected, w' features selected, all sites together.

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
        tokens: which positions of the output are selected, as between the brackets of numpy: ":",
            "1:", ":3", "-1", "2:5".
        features: which features: ":", ":64", "64:128", or "random(64,SEED)" for a random subset.
        pool: "mean", "first" or "last" replaces the selected positions by one vector, as sentence
            encoders do.

    Raises:
        BadInput: for an attribute that no slice can have.

    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> config = GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=2, n_head=2)
    >>> lens = Lens(GPT2LMHeadModel(config))
    >>> cut = Slice.parse("block.0 + block.1 [:, 1:, :12]", causal=False)
    >>> cut.run(lens, [[1, 2, 3]]).shape
    torch.Size([1, 2, 12])
    >>> str(cut)
    'block.0 + block.1 [:, 1:, :12] causal=False'
    >>> Slice.from_document(cut.document()) == cut
    True
    """

    def on(self, lens: Lens) -> SlicedModel:
        """Return the slice made ready on a model.

        What takes time (fresh weights, probing the mask) is done once and stored with the Lens.

        Raises:
            BadInput: where the model cannot be cut so; one sentence says why.
        """
        return lens.once(self, lambda: SlicedModel(self, lens))

    def run(
        self,
        lens: Lens,
        input_ids: IdsLike | None = None,
        *,
        inputs_embeds: Float[Tensor, "B T e"] | None = None,
        grad: bool = False,
    ) -> Float[Tensor, "B selected width"]:
        """Return the output for token ids [B, T], or for vectors of the embedding table's kind.

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
