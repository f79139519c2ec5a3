"""The Lens: one language model of any family, with the same names for its sites."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import TypeAliasType

from headscan.model.building import Blank
from headscan.model.grid import dequantised
from headscan.model.identity import Origin, identify_files, model_identity, tensor_rows
from headscan.model.inputs import IdsLike, ModelInputs, context_length
from headscan.model.load import Preparation, prepare
from headscan.model.recording import Recorder, patched, record, record_within_memory
from headscan.model.sentence import (
    SentenceHead,
    live_sentence_head,
    sentence_head,
    static_encoder,
)
from headscan.model.settings import Building, Loading, TokenizerLike
from headscan.model.sites import SiteDescription, Tap, match_sites
from headscan.model.stacks import Stack, find_structure
from headscan.model.tokenizer import load_tokenizer
from headscan.model.traits import Memo, Traits, embedding_table, output_layer
from headscan.run import BadInput, Json, ModelRecord, Run
from headscan.run.exhaustion import FittingSize
from headscan.run.locks import model_lock
from headscan.text.prompts import Limits, require_tokenizer
from headscan.text.tokens import NO_FRAME


class Lens(Memo):
    """A language model whose inner states can be read and written by name.

    The names are the same in every family. Sites, in the order of depth:

        embedding             what the first block gets: [B, T, d]
        block.I.attention     what block I's attention adds to the residual stream (see
                              `headscan.model.branches`)
        block.I.mlp           what its feed-forward part adds
        block.I.mixer         what a mixer that is not attention adds (Mamba, RWKV)
        block.I               what block I returns; the last one is *before* the final norm
        final_norm            the final norm's output, in models that have one: transformers'
                              `hidden_states[-1]`
        head                  the logits: [B, T, vocabulary]

    In an encoder-decoder all but `head` begin with `encoder.` or `decoder.`. A model has the sites
    that a tiny probing pass finds in it when the Lens is made, no others; every one is tried once
    before the Lens is returned.

    The model is one of transformers, on any device and in any precision. It is left as it is: no
    hook stays on it. Making a Lens costs two forward passes of 2 x 7 tokens.

    Attributes:
        name: in tables and messages.
        context_length: the longest input in tokens; None where the model sets no limit.
        stacks: the stacks of blocks: one, or two in an encoder-decoder.
        sites: in the order in which the model passes them.
        depth: the number of blocks, of both stacks in an encoder-decoder.
        notes: sentences that a reader of this model's numbers needs.
        frame: the tokens that stand around every input; `FramedLens` has some.

    Raises:
        BadInput: for a model that has no weights, takes other input than tokens, or shows no chain
            of blocks.

    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> config = LlamaConfig(
    ...     vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
    ...     num_attention_heads=2, max_position_embeddings=32,
    ... )
    >>> lens = Lens(LlamaForCausalLM(config), name="tiny")
    >>> lens.sites[:4]
    ('embedding', 'block.0.attention', 'block.0.mlp', 'block.0')
    >>> found = lens.run([[1, 2, 3]], sites="block.0.**, embedding")
    >>> branches = found["block.0.attention"] + found["block.0.mlp"]
    >>> torch.allclose(found["block.0"], found["embedding"] + branches, atol=1e-5)
    True
    """

    def __init__(self, model: nn.Module, tokenizer: Any = None, *, name: str = "model") -> None:
        super().__init__()
        check_live(model)
        self.model: Any = model
        self.tokenizer = tokenizer
        self.name = name
        self.origin = Origin()
        self.context_length = context_length(model)
        self.limit = FittingSize()
        self.frame = NO_FRAME
        self.stacks: tuple[Stack, ...]
        self._taps: dict[str, Tap]
        with model_lock(model):
            self.stacks, self._taps, self._switches = find_structure(model, self.context_length)
        self.sites: tuple[str, ...] = tuple(self._taps)
        self.depth: int = sum(stack.depth for stack in self.stacks)
        self.notes: list[str] = [note for stack in self.stacks for note in stack.notes]

    @classmethod
    def load(
        cls,
        model: str | os.PathLike[str],
        *,
        tokenizer: TokenizerLike | None = None,
        dtype: Literal["auto", "float32", "bfloat16", "float16", "8bit", "4bit"] = "auto",
        device: str | Mapping[str, str | int] = "auto",
        trust_remote_code: bool = False,
        random_init: int | None = None,
    ) -> "Lens":
        """Load a causal LM, masked LM, encoder or encoder-decoder, in evaluation mode.

        Weights are read from safetensors, or unpacked from a .gguf file (which needs
        `headscan[gguf]`). Weights that the configuration has but the file lacks are refused, except
        a pooler's, which feeds no site. Where those of the head alone are missing, the model
        without its head is loaded, and a note says so; another names weights in the file that the
        model does not use.

        Args:
            model: the name of an embedded model, a local folder or a .gguf file, or a Hugging Face
                id (looked up in that order), also as ID@REVISION.
            random_init: a seed: the model is built from its configuration with fresh weights drawn
                from it, and no weight file is read.
            tokenizer, dtype, device, trust_remote_code: see `headscan.model.settings.Building`.

        Raises:
            BadInput: where nothing is there, for no or damaged safetensors, only pickle weights, a
                configuration that describes no model or one larger than memory, weights that do not
                fit it, and an unknown or absent device, dtype or quantisation. All but what only
                the weights show is checked before they are read.
        """
        settings = Building(
            tokenizer=tokenizer,
            dtype=dtype,
            device=device,
            trust_remote_code=trust_remote_code,
            random_init=random_init,
        )
        return cls.of(prepare(model, settings))

    @classmethod
    def of(cls, preparation: Preparation) -> "Lens":
        """Return the Lens over a prepared model, whose weights are read, or drawn, now."""
        network, origin, notes = preparation.load()
        lens = cls(network, preparation.tokenizer, name=preparation.source.name)
        lens.origin = origin
        lens.notes += notes
        return lens

    @property
    def default_sites(self) -> tuple[str, ...]:
        """The sites of a scan: `embedding`, every `block.I`, and `final_norm` if there is one."""
        globs = ["embedding", "block.*"]
        if any(site.endswith("final_norm") for site in self.sites):
            globs.append("final_norm")
        return self.match(globs)

    def match(self, glob: str | Iterable[str]) -> tuple[str, ...]:
        """Return the sites that a glob matches, in the order of depth.

        The rules are those of `headscan.model.sites.match_sites`.

        Raises:
            BadInput: where a glob matches nothing; the message lists the model's sites.
        """
        return match_sites(glob, self.sites, self.name)

    def width(self, site: str) -> int:
        """Return the number of features at a site."""
        return self.tap(site).width

    def tap(self, site: str) -> Tap:
        """Return where a site is read: the module, and whether at its input or output.

        Raises:
            BadInput: for a site that the model does not have.
        """
        if site not in self._taps:
            self.match(site)  # raises BadInput
        return self._taps[site]

    def describe_sites(self) -> list[SiteDescription]:
        """Return name, width, place and parameters of every site, in the order of depth.

        >>> lens = Lens.load("gpt-vanilla")
        >>> lens.describe_sites()[1].site, lens.describe_sites()[1].width
        ('block.0.attention', 128)
        """
        rows = []
        for site, tap in self._taps.items():
            parameters = None
            if tap.where == "output":
                parameters = sum(weight.numel() for weight in tap.module.parameters())
            rows.append(SiteDescription(site, tap.width, tap.place, parameters))
        return rows

    def run(
        self,
        input_ids: IdsLike | None = None,
        *,
        inputs_embeds: Float[Tensor, "B T e"] | None = None,
        attention_mask: IdsLike | None = None,
        decoder_input_ids: IdsLike | None = None,
        sites: str | Iterable[str],
        each: Callable[[str, Tensor], Any] | None = None,
        grad: bool = False,
    ) -> dict[str, Float[Tensor, "B T width"]]:
        """Run the model as far as the deepest of `sites`, and return the states that passed them.

        Later layers are not computed. One thread runs the model at a time. Where memory runs out,
        the rows are run in smaller pieces (`limit.notes` says so), unless gradients are recorded.
        The model runs in evaluation mode (and is put back into its own mode), without cache, with
        its own masks and positions. No hook is left behind.

        Args:
            input_ids: token ids [B, T], as a tensor, an array or nested lists; or `inputs_embeds`,
                embeddings in their place, as the embedding table would give them.
            attention_mask: 1 for tokens, 0 for padding; None if there is no padding.
            decoder_input_ids: [B, T'] for an encoder-decoder; by default `input_ids` shifted right
                by one, as in training with the input as the target.
            sites: names or globs, as for `match`.
            each: called as `each(site, tensor)` the moment a site is passed; nothing is stored
                then, so memory stays that of the forward pass. The tensor is the live one: copy it
                before storing or changing it.
            grad: whether to record gradients (through `inputs_embeds`, for example).

        Returns:
            {site: tensor [B, T, width]} in the order of depth; empty if `each` is given.

        Raises:
            BadInput: for ids outside the vocabulary, an input longer than the context, and a glob
                that matches nothing.
        """
        matched = self.match(sites)
        inputs = self.inputs.forward(
            input_ids, inputs_embeds, attention_mask, decoder_input_ids, matched
        )
        taps = [self._taps[site] for site in matched]
        if grad:
            states = record(self.model, taps, inputs, each, grad=True, restore=self._switches)
        else:
            states = record_within_memory(
                self.model, taps, inputs, each, limit=self.limit, restore=self._switches
            )
        return {} if each else {site: states[site] for site in matched}

    def watch(self, sites: str | Iterable[str], each: Callable[[str, Tensor], Any]) -> Recorder:
        """Return a context in which `each(site, tensor)` is called in every forward pass.

        It serves training loops, generation and evaluation: the model's mode, gradients and cache
        are those of the caller. The tensor is the live one; copy it before storing or changing it.
        Under activation checkpointing parts of a block run once more in the backward pass, and
        sites there can be passed again: leave the context before `backward`.

        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> config = GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=2, n_head=2)
        >>> lens = Lens(GPT2LMHeadModel(config))
        >>> def show(site, tensor):
        ...     print(site, tuple(tensor.shape), tensor.requires_grad)
        >>> with lens.watch("block.1", show):
        ...     _ = lens.model(input_ids=torch.tensor([[1, 2, 3]]))
        block.1 (1, 3, 8) True
        """
        return Recorder([self._taps[site] for site in self.match(sites)], each)

    @contextmanager
    def patch(self, changes: Mapping[str, Callable[[Tensor], Tensor]]) -> Iterator[None]:
        """Replace the states at sites in every forward pass of this context.

        `run`, `watch` and slices see the replaced states, and the model goes on with them.

        Args:
            changes: by site, a function of its states [B, T, d] that returns states of the same
                shape, precision and device.

        Raises:
            BadInput: for a site that the model does not have, and for the head.

        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> config = GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=2, n_head=2)
        >>> lens = Lens(GPT2LMHeadModel(config))
        >>> with lens.patch({"block.1": torch.zeros_like}):
        ...     float(lens.run([[1, 2]], sites="block.1")["block.1"].abs().max())
        0.0
        """
        with ExitStack() as patches:
            patches.enter_context(model_lock(self.model))
            for site, function in changes.items():
                patches.enter_context(patched(self.tap(site), function))
            yield

    @cached_property
    def traits(self) -> Traits:
        """The traits of the model, found by trying it: causal, masked, with a linear head, ..."""
        return Traits(self)

    @cached_property
    def sentence(self) -> SentenceHead | None:
        """The map from a sentence encoder's states at its last default site to a text's vector.

        None of other models.
        """
        config_file = self.origin.files.get("config.json")
        folder = self.origin.source if config_file is None else config_file.parent
        width = self.width(self.default_sites[-1])
        return sentence_head(folder, self.name, width, self.context_length)

    @property
    def plain(self) -> "Lens":
        """The Lens whose inputs are read as they are; see `headscan.model.framed`."""
        return self

    @property
    def inputs(self) -> ModelInputs:
        """The maker of the arguments of a forward pass, which it checks."""
        return ModelInputs(self.model, self.name, self.context_length)

    @property
    def device(self) -> torch.device:
        """The device of the input embeddings."""
        return self.input_embeddings.device

    @property
    def vocabulary_size(self) -> int:
        """The number of rows of the input embeddings."""
        return self.input_embeddings.shape[0]

    @cached_property
    def token_rows(self) -> int:
        """The number of rows of the tables up to the last one that a token has.

        Tables are often larger than the vocabulary of their tokenizer, by rows that were never
        trained. Without a tokenizer it is all of them.
        """
        vocabulary: dict[str, int] = getattr(self.tokenizer, "get_vocab", dict)()
        return min(self.vocabulary_size, max(vocabulary.values(), default=2**63) + 1)

    @property
    def limits(self) -> Limits:
        """The limits of a prompt: vocabulary and context."""
        return Limits(self.name, self.vocabulary_size, self.context_length)

    @property
    def input_embeddings(self) -> Float[Tensor, "V e"]:
        """The weight of the input embeddings [V, e], live."""
        return embedding_table(self.model)

    @property
    def output_embeddings(self) -> Float[Tensor, "V e"] | None:
        """The weight of the output layer [V, e], live, or None for a model without one."""
        layer = output_layer(self.model)
        return None if layer is None else layer.weight

    def require_tokenizer(self) -> Any:
        """Return the tokenizer.

        Raises:
            BadInput: where the model has none.
        """
        return require_tokenizer(self.tokenizer, self.name)

    def random_init(self, seed: int, *, first_block: bool = False) -> "Lens":
        """Return the same architecture with fresh random weights: a random-weight control.

        It has the same device and precision, and the family's own initialisation; the global random
        state is not touched. With `first_block` only one block is built (but in families whose
        first weights depend on the depth).
        """
        return self.twin(seed, first_block=first_block)()

    def twin(self, seed: int, *, first_block: bool = False) -> "Callable[[], Lens]":
        """Return a function that makes `random_init(seed)`.

        It holds none of this model's weights, so that the model and its random-weight control need
        not be in memory at once.
        """
        blank = Blank.of(self.model)
        if first_block:
            blank = blank.first_block()
        tokenizer = self.tokenizer
        source = self.origin.source
        name = f"{self.name} (random weights, seed {seed})"
        sentence = self.sentence
        limit = self.limit  # as many rows fit for the control as for the model

        def make_control() -> Lens:
            control = Lens(blank.drawn(seed), tokenizer, name=name)
            control.limit = limit
            control.origin = Origin(source, random_init=seed)
            control.sentence = sentence
            return control

        return make_control

    def provenance(self) -> ModelRecord:
        """Return what this model is and where it came from, for the protocol of a result.

        `sha256` is empty for a model that was built, not loaded. The first call reads the files
        once.
        """
        model = self.model
        dtype = getattr(model, "dtype", self.input_embeddings.dtype)
        return ModelRecord(
            name=self.name,
            source=self.origin.source,
            revision=self.origin.revision,
            model_class=type(model).__name__,
            architecture=getattr(model.config, "model_type", None),
            parameters=self._parameter_count(),
            dtype=str(dtype).removeprefix("torch."),
            device=str(self.device),
            depth=self.depth,
            width=self.width(self.default_sites[0]),
            vocabulary=self.vocabulary_size,
            context=self.context_length,
            quantize=self.origin.quantize,
            random_init=self.origin.random_init,
            dequantised=self._dequantised(),
            notes=list(self.notes),
            sha256=dict(self.once("sha256", self.origin.sha256)),
        )

    def _dequantised(self) -> str:
        """Return a sentence on weights of few bits that were loaded in full precision."""
        if self.origin.source is None or self.origin.quantize is not None:
            return ""
        return self.once("dequantised", lambda: dequantised(self.model))

    def _parameter_count(self) -> int:
        if hasattr(self.model, "num_parameters"):
            return int(self.model.num_parameters())
        return sum(weight.numel() for weight in self.model.parameters())

    def identity(self) -> Json:
        """Return the hashes of the files that the model was read from.

        Of a model that was built it is a hash of its weights and configuration. It is made once.
        """
        return self.once("identity", self._identity)

    def _identity(self) -> Json:
        model = model_identity(self.model, self.provenance().sha256)
        head = self.sentence
        if self.origin.source is not None or head is None:
            return model
        # no file holds the head of a live encoder
        weights = {f"sentence.{number}": weight for number, weight in enumerate(head.weights)}
        return [model, *head.pooling, *head.settings, head.length, *tensor_rows(weights)]

    def identify(self, run: Run, role: str = "the model", *, named: bool = True) -> None:
        """Record that a run depends on this model: name, files, tokenizer, device and precision.

        Args:
            role: which of a verb's models it is ("model 2"), whatever its name is.
            named: whether its name is recorded, too.
        """
        if self.limit not in run.limits:
            run.limits.append(self.limit)
        if run.folder is None:
            return
        model_record = self.provenance()
        if named:
            run.identify(f"the name of {role}", self.name)
        identify_files(run, role, self.identity(), self.tokenizer)
        precision = model_record.quantize or model_record.dtype
        run.identify(f"the device and precision of {role}", f"{model_record.device}, {precision}")

    def __repr__(self) -> str:
        width = self.width(self.default_sites[0])
        return (
            f"Lens({self.name!r}: {type(self.model).__name__}, {self.depth} blocks, width "
            f"{width}, {len(self.sites)} sites)"
        )


ModelLike = TypeAliasType("ModelLike", str | os.PathLike[str] | Lens | nn.Module)
"""An embedded model's name, a folder, a .gguf file, a Hugging Face id, a Lens, a model of
transformers or of sentence-transformers.
"""
ModelsLike = TypeAliasType("ModelsLike", ModelLike | Sequence[ModelLike])


def open_models(models: ModelsLike, loading: Loading) -> Iterator[Lens]:
    """Return the models as Lenses, each loaded when its turn comes; a live model is left as it is.

    Raises:
        BadInput: where there is no model, or one of them cannot be loaded. This is raised at once,
            before any weights are read.

    >>> from transformers import GPT2Config, GPT2Model
    >>> live = GPT2Model(GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=2, n_head=2))
    >>> [lens.name for lens in open_models([live, "gpt-vanilla"], Loading(device="cpu"))]
    ['GPT2Model', 'gpt-vanilla']
    """
    if isinstance(models, str | os.PathLike | Lens | nn.Module):
        listed: list[ModelLike] = [models]
    else:
        listed = list(models)
    if not listed:
        raise BadInput("No model was named: name at least one model.")
    prepared = [prepare_model(model, loading) for model in listed]
    return (Lens.of(model) if isinstance(model, Preparation) else model for model in prepared)


def open_model(model: ModelLike, loading: Loading) -> Lens:
    """Return one model as a Lens; see `open_models`."""
    return next(open_models(model, loading))


def prepare_model(model: ModelLike, loading: Loading) -> Preparation | Lens:
    """Return a model whose weights wait to be read, or the Lens of a live one."""
    if isinstance(model, str | os.PathLike):
        return prepare(model, Building(**loading.part(Loading)))
    if isinstance(model, Lens):
        return model
    if not isinstance(model, nn.Module):
        raise BadInput(
            f"A model is a name, a folder, a Lens or a live model, not a {type(model).__name__}."
        )
    tokenizer = load_tokenizer(loading.tokenizer)
    # A SentenceTransformer wraps a model of transformers and holds its tokenizer.
    first_module = next(model.children(), None)
    if type(first_module).__name__ == "StaticEmbedding":
        raise static_encoder(_live_name(model))
    inner = getattr(first_module, "auto_model", None)
    if not isinstance(inner, nn.Module):
        return Lens(model, tokenizer, name=_live_name(model))
    tokenizer = tokenizer or getattr(model, "tokenizer", None)
    lens = Lens(inner, tokenizer, name=_live_name(inner))
    width = lens.width(lens.default_sites[-1])
    lens.sentence = live_sentence_head(model, lens.name, width, lens.context_length)
    return lens


def _live_name(network: nn.Module) -> str:
    """Return what a live model is called: the name in its configuration, or its class."""
    name = getattr(getattr(network, "config", None), "name_or_path", "")
    return str(name or type(network).__name__)


def check_live(model: nn.Module) -> None:
    """Raise BadInput for a live model that is not of transformers or sentence-transformers."""
    has_config = hasattr(getattr(model, "config", None), "model_type")
    if has_config and hasattr(model, "get_input_embeddings"):
        return
    raise BadInput(
        "A live model is one of transformers or of sentence-transformers, and "
        f"{type(model).__name__} is neither: pass its hidden states as a dict of arrays by site, "
        "each [windows, T, d]."
    )
