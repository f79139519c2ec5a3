"""A causal model that runs part by part, so that parts of two models can be exchanged."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from copy import deepcopy
from functools import partial
from typing import Any, TypeAlias

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from headscan.model.lens import Lens
from headscan.model.matrices import share_of_matrices
from headscan.model.recording import Args, Kwargs, Stop, after_call, evaluating, replaced_forward
from headscan.model.rounding import RoundedOnce, RoundingName, round_block
from headscan.model.sites import first_tensor, input_tensor
from headscan.run import BadInput

Rounding: TypeAlias = RoundingName | Mapping[str, Mapping[str, str]]

TRIAL_TOKENS = 8
TOLERANCE = 1e-4
"""The relative difference that rounding may make between a model and its parts in a row."""


class PartwiseModel:
    """A causal model whose parts run one at a time: embedding, block.0, ..., head.

    The head is the final norm and the output layer. Masks and positions are those that the model's
    own forward pass makes. A block runs within `ready`.

    With a `rounding` (one, or one for each matrix by its part and name) each block is rounded when
    it runs, in a copy; models of one `once` share what a part was rounded to. With `spill` the
    weights of blocks go to temporary files and are in memory only while they run (those packed in
    few bits stay): so two whole models are never in memory at once. Gradients are recorded where
    the states that a part reads need them.

    Attributes:
        parts: their names, in order.
        bytes: of the weights of each part.
        matrix_share: of the weights of blocks, which a rounding changes.
        formats: of the .gguf format that blocks were rounded to so far.

    Raises:
        BadInput: for other models, blocks that share weights, and logits that are not those of the
            parts in a row.
    """

    def __init__(
        self,
        lens: Lens,
        *,
        rounding: Rounding | None = None,
        once: RoundedOnce | None = None,
        spill: bool = False,
    ) -> None:
        if len(lens.stacks) != 1 or "head" not in lens.sites or not lens.traits.causal:
            raise BadInput(
                f"{lens.name} is no causal language model with a head: its blocks cannot be "
                "exchanged."
            )
        self.lens = lens
        self.rounding = rounding
        self._once = once
        self.record = lens.provenance()
        self.blocks = lens.stacks[0].blocks
        block_names = [f"block.{number}" for number in range(len(self.blocks))]
        self.parts = ("embedding", *block_names, "head")
        self.formats: set[str] = set()
        self.matrix_share = share_of_matrices(self.blocks)
        self._rounded_block: nn.Module | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._output_lengths: list[int] = []
        self._check_parts()
        self.bytes = {part: _bytes_of(self.weights(part)) for part in self.parts}
        if spill:
            self._folder = tempfile.TemporaryDirectory(prefix="headscan-damage-")
            for part in block_names:
                self._spill(part)

    def _check_parts(self) -> None:
        """Raise BadInput where the parts in a row are not the model; note what blocks return."""
        lens = self.lens
        not_in_a_row = BadInput(
            f"{lens.name} is more than blocks of their own in a row: they cannot be exchanged."
        )
        ids = torch.arange(TRIAL_TOKENS, device=lens.device)[None] % lens.vocabulary_size

        def note_length(_module: nn.Module, _args: Args, _kwargs: Kwargs, output: Any) -> None:
            self._output_lengths.append(len(output) if isinstance(output, tuple) else 0)

        with after_call(self.blocks, note_length):
            logits = lens.run(ids, sites="head")["head"]
        if bool(logits.isnan().any()):
            raise BadInput(
                f"The logits of {lens.name} are NaN: try --dtype float32, or look for broken "
                "weights."
            )
        if len(set(self.blocks)) < len(self.blocks):
            raise not_in_a_row
        states = lens.run(ids, sites="embedding")["embedding"].clone()
        for number in range(len(self.blocks)):
            states = self.block(number, states)
        tolerance = TOLERANCE * float(logits.abs().max())
        if not torch.allclose(self.logits(states), logits, atol=tolerance, rtol=TOLERANCE):
            raise not_in_a_row

    def weights(self, part: str) -> dict[str, Tensor]:
        """Return the parameters of a part by name.

        A table that is the output layer's, too, belongs to both embedding and head.
        """
        if part.startswith("block."):
            return dict(self.blocks[_block_number(part)].named_parameters())
        in_blocks = {id(weight) for block in self.blocks for weight in block.parameters()}
        outside = {
            name: weight
            for name, weight in self.lens.model.named_parameters()
            if id(weight) not in in_blocks
        }
        head = self._head_weights()
        if part == "head":
            return {name: weight for name, weight in outside.items() if id(weight) in head}
        table = id(self.lens.input_embeddings)
        return {
            name: weight
            for name, weight in outside.items()
            if id(weight) not in head or id(weight) == table
        }

    def _head_weights(self) -> set[int]:
        """Return the ids of the parameters of the final norm and the output layer."""
        norm = self.lens.stacks[0].taps.get("final_norm")
        modules = [self.lens.model.get_output_embeddings(), None if norm is None else norm.module]
        weights = [
            weight for module in modules if module is not None for weight in module.parameters()
        ]
        return {id(weight) for weight in weights}

    @contextmanager
    def ready(self, part: str) -> Iterator[None]:
        """Have the weights of a part in memory, or rounded, in this context."""
        self._load(part)
        if self.rounding is not None and part.startswith("block."):
            self._rounded_block = deepcopy(self.blocks[_block_number(part)])
            rounding = self.rounding
            of_part = rounding if isinstance(rounding, str) else rounding.get(part, {})
            once = None if self._once is None else self._once.of_part(part)
            self.bytes[part], formats = round_block(self._rounded_block, of_part, once)
            self.formats |= formats
        try:
            yield
        finally:
            self._rounded_block = None
            self._release(part)

    def _spilled(self, part: str) -> dict[str, Tensor]:
        """Return the weights of a part that go to a file: those of blocks, unless packed."""
        if self._folder is None or not part.startswith("block."):
            return {}
        return {
            name: weight
            for name, weight in self.weights(part).items()
            if type(weight) is nn.Parameter and weight.is_floating_point()
        }

    def _file(self, part: str) -> str:
        assert self._folder is not None
        return f"{self._folder.name}/{part}"

    def _spill(self, part: str) -> None:
        tensors = {
            name: weight.detach().cpu().contiguous() for name, weight in self._spilled(part).items()
        }
        save_file(tensors, self._file(part))
        self._release(part)

    def _load(self, part: str) -> None:
        weights = self._spilled(part)
        tensors = load_file(self._file(part)) if weights else {}
        for name, weight in weights.items():
            weight.data = tensors.pop(name).to(weight.device)

    def _release(self, part: str) -> None:
        for weight in self._spilled(part).values():
            weight.data = weight.data.new_empty(0)

    def differs(self, first: "PartwiseModel", part: str) -> bool:
        """Return whether a part has other weights than the first model's."""
        if self.rounding is not None:
            return part.startswith("block.")
        with self.ready(part):
            device = first.lens.device
            weights = {name: weight.to(device) for name, weight in self.weights(part).items()}
            first_weights = {
                name: weight.to(device) for name, weight in first.weights(part).items()
            }
            if not _same_weights(weights, first_weights):
                return True
            if self._folder is not None and not part.startswith("block."):
                for name, weight in self.weights(part).items():
                    weight.data = first.weights(part)[name].data  # in memory once
            return False

    def block(self, number: int, states: Tensor) -> Tensor:
        """Return what a block returns for these states [B, T, d]."""
        return self._within_memory(states, partial(self._after_block, number))

    def _within_memory(self, states: Tensor, work: Callable[[Tensor], Tensor]) -> Tensor:
        """Return `work` of states; in smaller pieces where memory runs out."""
        if len(states) < 2 or states.requires_grad:
            return work(states)
        pieces: list[Tensor] = []

        def run_piece(begin: int, end: int) -> None:
            pieces.append(work(states[begin:end]))

        self.lens.limit.run(len(states), run_piece)
        return torch.cat(pieces) if len(pieces) > 1 else pieces[0]

    def _after_block(self, number: int, states: Tensor) -> Tensor:
        block = self.blocks[number] if self._rounded_block is None else self._rounded_block
        forward = block.forward
        outputs: list[Tensor | None] = []

        def run_block(*args: Any, **kwargs: Any) -> None:
            passed = input_tensor(args, kwargs)
            copied = states.clone()  # some blocks write into their input
            new_args = [copied if value is passed else value for value in args]
            new_kwargs = {
                key: copied if value is passed else value for key, value in kwargs.items()
            }
            outputs.append(first_tensor(forward(*new_args, **new_kwargs)))
            raise Stop

        with evaluating(block):
            self._run(states, {number: run_block})
        output = outputs[0]
        assert output is not None
        return output.to(states.device)  # of a model on several devices

    def logits(self, states: Tensor) -> Tensor:
        """Return the logits [B, T, V] for what the last block returned."""
        return self._within_memory(states, self._head_logits)

    def _head_logits(self, states: Tensor) -> Tensor:
        logits = first_tensor(self._run(states, {}))
        assert logits is not None
        return logits.to(states.device)

    def _run(self, states: Tensor, forwards: dict[int, Callable[..., Any]]) -> Any:
        """Run the model's own forward pass with replaced blocks, and return its output.

        Blocks with a number in `forwards` are replaced by that function; all others return
        `states`. A function may raise Stop, which gives None.
        """
        ids = torch.zeros(states.shape[:2], dtype=torch.int64, device=self.lens.device)
        with ExitStack() as contexts:
            contexts.enter_context(suppress(Stop))
            for number, block in enumerate(self.blocks):
                output = self._as_output(number, states)
                forward = forwards.get(number, partial(_return, output))
                contexts.enter_context(replaced_forward(block, forward))
            contexts.enter_context(torch.set_grad_enabled(states.requires_grad))
            contexts.enter_context(evaluating(self.lens.model))
            return self.lens.model(input_ids=ids, use_cache=False)
        return None

    def _as_output(self, number: int, states: Tensor) -> Any:
        """Return states in the form in which a block returns them: alone, or first of a tuple."""
        length = self._output_lengths[number]
        return (states, *[None] * (length - 1)) if length else states


def _return(output: Any, *_args: Any, **_kwargs: Any) -> Any:
    return output


def _block_number(part: str) -> int:
    return int(part.removeprefix("block."))


def _bytes_of(weights: dict[str, Tensor]) -> int:
    return sum(tensor.nbytes for weight in weights.values() for tensor in _stored_tensors(weight))


def _stored_tensors(weight: Tensor) -> list[Tensor]:
    """Return the tensors that a weight packed by torchao is made of; of any other itself."""
    names: list[str] = []
    if is_traceable_wrapper_subclass(weight):
        names = weight.__tensor_flatten__()[0]
    return [getattr(weight, name) for name in names] or [weight]


def _same_weights(weights: dict[str, Tensor], first_weights: dict[str, Tensor]) -> bool:
    """Return whether two parts have the same weights, bit for bit, stored alike."""
    if weights.keys() != first_weights.keys():
        return False
    for name, weight in weights.items():
        tensors = _stored_tensors(weight)
        first_tensors = _stored_tensors(first_weights[name])
        if [_kind_of(tensor) for tensor in tensors] != [
            _kind_of(tensor) for tensor in first_tensors
        ]:
            return False
        pairs = zip(tensors, first_tensors, strict=True)
        if not all(torch.equal(tensor, other) for tensor, other in pairs):
            return False
    return True


def _kind_of(tensor: Tensor) -> tuple[torch.dtype, torch.Size]:
    return tensor.dtype, tensor.shape
