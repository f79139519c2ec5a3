"""A causal model run part by part, of which, where that is asked, no more than one block is in
memory.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from headscan.model.lens import Lens
from headscan.model.recording import Stop, evaluating
from headscan.model.rounding import RoundingName, round_block
from headscan.model.sites import first_tensor, input_tensor
from headscan.run import BadInput


class PartwiseModel:
    """A causal model whose `parts` run one at a time, within `ready`: embedding, block.0, ..., head
    (final norm and output layer). Masks and positions are those that its own forward pass makes.

    With a `rounding` each block is rounded in its turn, in a copy. With `spill` the weights of
    blocks go to temporary files and are in memory in their turn only (those packed in few bits
    stay): so two whole models never are.

    Raises BadInput for other models, blocks that share weights, and logits that are not those of
    the parts in a row.
    """

    def __init__(
        self, lens: Lens, *, rounding: RoundingName | None = None, spill: bool = False
    ) -> None:
        if len(lens.stacks) != 1 or "head" not in lens.sites or not lens.traits.causal:
            raise BadInput(
                f"{lens.name} is no causal language model with a head: its blocks cannot be "
                "exchanged."
            )
        self.lens = lens
        self.rounding = rounding
        self.record = lens.provenance()
        self.blocks = lens.stacks[0].blocks
        self.parts = (
            "embedding",
            *(f"block.{number}" for number in range(len(self.blocks))),
            "head",
        )
        self._turn: nn.Module | None = None
        ids = torch.arange(8, device=lens.device)[None] % lens.vocabulary_size
        outputs = list[Any]()
        hooks = [
            block.register_forward_hook(lambda *given: outputs.append(given[-1]))
            for block in self.blocks
        ]
        whole = lens.run(ids, sites="head")["head"]
        for hook in hooks:
            hook.remove()
        if bool(whole.isnan().any()):
            raise BadInput(
                f"The logits of {lens.name} are NaN: try --dtype float32, or look for broken "
                "weights."
            )
        self._tuples = [len(one) if isinstance(one, tuple) else 0 for one in outputs]
        states = lens.run(ids, sites="embedding")["embedding"].clone()
        for number in range(len(self.blocks)):
            states = self.block(number, states)
        # but for rounding
        same = torch.allclose(
            self.logits(states), whole, atol=1e-4 * float(whole.abs().max()), rtol=1e-4
        )
        if len(set(map(id, self.blocks))) < len(self.blocks) or not same:
            raise BadInput(
                f"{lens.name} is more than blocks of their own in a row: they cannot be exchanged."
            )
        self.bytes = {
            part: sum(x.nbytes for one in self.weights(part).values() for x in held(one))
            for part in self.parts
        }
        self.formats = set[str]()
        folder: Any = tempfile.TemporaryDirectory(prefix="headscan-damage-") if spill else None
        self._folder = folder
        for part in self.parts[1:-1] if spill else ():
            save_file(
                {name: one.detach().cpu().contiguous() for name, one in self._aside(part)},
                f"{self._folder.name}/{part}",
            )
            self._empty(part)

    def weights(self, part: str) -> dict[str, Tensor]:
        """The parameters of a part by name. A table that is the output layer's, too, belongs to
        embedding and head.
        """
        if part.startswith("block."):
            return dict(self.blocks[int(part[6:])].named_parameters())
        norm = self.lens.stacks[0].taps.get("final_norm")
        model = self.lens.model
        head = {
            id(w)
            for one in (model.get_output_embeddings(), norm and norm.module)
            if one
            for w in one.parameters()
        }
        inner = {id(weight) for block in self.blocks for weight in block.parameters()}
        named = {
            name: weight for name, weight in model.named_parameters() if id(weight) not in inner
        }
        head = (
            head
            if part == "head"
            else {id(weight) for weight in named.values()} - head | {id(self.lens.input_embeddings)}
        )
        return {name: weight for name, weight in named.items() if id(weight) in head}

    def _aside(self, part: str) -> list[tuple[str, Tensor]]:
        weights = self.weights(part).items() if self._folder and part.startswith("block.") else ()
        return [
            (name, one)
            for name, one in weights
            if type(one) is nn.Parameter and one.is_floating_point()
        ]

    def _empty(self, part: str) -> None:
        for _, one in self._aside(part):
            one.data = one.data.new_empty(0)

    @contextmanager
    def ready(self, part: str) -> Iterator[None]:
        """A context in which the weights of a part are in memory, or rounded."""
        aside = self._aside(part)
        held = load_file(f"{self._folder.name}/{part}") if aside else {}
        for name, one in aside:
            one.data = held.pop(name).to(one.device)
        if self.rounding is not None and part.startswith("block."):
            self._turn = deepcopy(self.blocks[int(part[6:])])
            self.bytes[part], self.formats = round_block(self._turn, self.rounding)
        yield
        self._turn = None
        self._empty(part)

    def differs(self, first: "PartwiseModel", part: str) -> bool:
        """Whether a part has other weights than the first model's."""
        if self.rounding is not None:
            return part.startswith("block.")
        with self.ready(part):
            mine, theirs = (
                {n: w.to(first.lens.device) for n, w in one.weights(part).items()}
                for one in (self, first)
            )
            kinds = [
                {name: [(x.dtype, x.shape) for x in held(one)] for name, one in own.items()}
                for own in (mine, theirs)
            ]
            pairs = (
                pair
                for name, one in mine.items()
                for pair in zip(held(one), held(theirs[name]), strict=True)
            )
            if kinds[0] != kinds[1] or not all(torch.equal(*pair) for pair in pairs):
                return True
            for name, one in (
                self.weights(part).items() if self._folder and not part.startswith("block.") else ()
            ):
                one.data = first.weights(part)[name].data  # in memory once
            return False

    def block(self, number: int, states: Tensor) -> Tensor:
        """What a block returns for these states [B, T, d]."""
        block = self._turn or self.blocks[number]
        found = list[Any]()
        forward = block.forward

        def run(*args: Any, **kwargs: Any) -> None:
            # some blocks write into what they are given
            own = input_tensor(args, kwargs)
            given = states.clone()
            named = {key: given if value is own else value for key, value in kwargs.items()}
            found.append(
                first_tensor(
                    forward(*(given if value is own else value for value in args), **named)
                )
            )
            raise Stop

        with evaluating(block):
            self._run(states, number, run)
        made: Tensor = found[0]
        return made

    def logits(self, states: Tensor) -> Tensor:
        """The logits [B, T, V] for what the last block returned."""
        return first_tensor(self._run(states, -1, None))  # type: ignore[return-value]

    def _run(self, states: Tensor, number: int, call: Callable[..., Any] | None) -> Any:
        """The model's own forward pass with one block replaced; all others, or all, return these
        states.
        """
        ids = torch.zeros(states.shape[:2], dtype=torch.int64, device=self.lens.device)
        before = [vars(block).get("forward") for block in self.blocks]
        try:
            for k, block in enumerate(self.blocks):
                given = (states, *[None] * (self._tuples[k] - 1)) if self._tuples[k] else states
                vars(block)["forward"] = (
                    call if k == number else lambda *args, given=given, **kwargs: given
                )
            with torch.no_grad(), evaluating(self.lens.model):
                return self.lens.model(input_ids=ids, use_cache=False)
        except Stop:
            return None
        finally:
            for block, own in zip(self.blocks, before, strict=True):
                vars(block).pop("forward")
                vars(block).update({} if own is None else {"forward": own})


def held(weight: Tensor) -> list[Tensor]:
    """The tensors that a weight packed by torchao is made of; of any other the weight itself."""
    names: list[str] = (
        weight.__tensor_flatten__()[0] if is_traceable_wrapper_subclass(weight) else []
    )
    return [getattr(weight, name) for name in names] or [weight]
