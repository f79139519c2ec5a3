"""The Lens: one language model of any family, with its sites named alike."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import TypeAliasType

from headscan.model.inputs import (
    IdsLike,
    ModelInputs,
    SentenceHead,
    context_length,
    live_sentence_head,
    sentence_head,
)
from headscan.model.load import Blank, Preparation, load_tokenizer, prepare, require_tokenizer
from headscan.model.recording import Recorder, Stack, find_sites, patched, record
from headscan.model.settings import (
    Building,
    Loading,
    Origin,
    TokenizerLike,
    identify_files,
    model_identity,
    tensor_rows,
)
from headscan.model.sites import Tap, match_sites
from headscan.model.traits import Memo, Traits, embedding_table, output_layer
from headscan.run import BadInput, Json, ModelRecord, Run
from headscan.text.prompts import Limits


class Lens(Memo):
    """A language model whose inner representations can be read by name, the same names in every
    family.

    Site names, in the order of depth:

        embedding             what the first block is given: [B, T, d]
        block.I.attention     what block I's attention adds to the residual stream (see
        `headscan.model.branches`) block.I.mlp           what its feed-forward part adds
        block.I.mixer         what a mixer that is not attention adds (Mamba, RWKV) block.I
        what block I returns; the last one is *before* the final norm final_norm            the
        final norm's output, in models that have one: transformers' `hidden_states[-1]` head
        the logits: [B, T, vocabulary]

    In an encoder-decoder all but `head` begin with `encoder.` or `decoder.`. A model has the sites
    that a tiny probing pass finds in it when the Lens is made, no others; every one is tried once
    before the Lens is handed out.

    The model is one of transformers, on any device and in any precision. It is left as it is: no
    hook stays on it.

    Raises BadInput: the model has no weights, takes other input than tokens, or shows no chain of
    blocks.

    Cost: two forward passes of 2 x 7 tokens when it is made.

    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> config = LlamaConfig(vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
    ...                      num_attention_heads=2, max_position_embeddings=32)
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
        self.name = name  # in tables and messages
        self.origin = Origin()
        # the longest input in tokens, None where the model sets no limit
        self.context_length = context_length(model)
        self.stacks: tuple[Stack, ...]
        self._taps: dict[str, Tap]
        self.stacks, self._taps = find_sites(model, self.context_length)
        # What a reader of this model's numbers must know, as sentences.
        self.notes: list[str] = [note for stack in self.stacks for note in stack.notes]
        # in the order in which the model passes them
        self.sites: tuple[str, ...] = tuple(self._taps)
        # blocks; of both stacks in an encoder-decoder
        self.depth: int = sum(stack.depth for stack in self.stacks)

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

        `model` is the name of an embedded specimen, a local folder or a .gguf file, or a Hugging
        Face id (looked up in that order), also as ID@REVISION. `random_init`: build the model from
        its configuration with fresh weights drawn from this seed, without reading a weight file.
        The other options are the fields of `headscan.model.settings.Loading`.

        Raises BadInput: nothing there, no or damaged safetensors, only pickle weights, a
        configuration that describes no model or one larger than memory, weights that do not fit it,
        an unknown or absent device, dtype or quantisation. All but what only the weights show is
        checked before they are read.

        Weights are read from safetensors, or unpacked from a .gguf file (which needs
        `headscan[gguf]`). Weights that the configuration has but the file lacks are refused, except
        a pooler's, which feeds no site. Where those of the head alone are missing, the model
        without its head is loaded, and a note says so; another names weights in the file that the
        model does not use.
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
    def of(cls, prepared: Preparation) -> "Lens":
        """The Lens over a model that was prepared: its weights are read, or drawn."""
        network, origin, notes = prepared.load()
        lens = cls(network, prepared.tokenizer, name=prepared.source.name)
        lens.origin = origin
        lens.notes += notes
        return lens

    # ---- sites

    @property
    def default_sites(self) -> tuple[str, ...]:
        """What a scan looks at: `embedding`, every `block.I`, and `final_norm` where there is one."""
        norm = ["final_norm"] if any(site.endswith("final_norm") for site in self.sites) else []
        return self.match(["embedding", "block.*", *norm])

    def match(self, glob: str | Iterable[str]) -> tuple[str, ...]:
        """The sites that a glob matches, in the order of depth; see
        `headscan.model.sites.match_sites` for the rules. Raises BadInput: a glob matches nothing;
        the message lists the sites there are.
        """
        return match_sites(glob, self.sites, self.name)

    def width(self, site: str) -> int:
        return self.tap(site).width

    def tap(self, site: str) -> Tap:
        """Where a site is read: the module and whether at its input or output. BadInput for a site
        there is none of.
        """
        if site not in self._taps:
            self.match(site)
        return self._taps[site]

    # ---- running

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
        """Run the model as far as the deepest of `sites` and give back what passed them.

        Later layers are not computed. The model runs in evaluation mode (and is put back into its
        own mode), without cache, with its own masks and positions. No hook is left behind.

        Args:
            input_ids: token ids [B, T], as a tensor, an array or nested lists; or `inputs_embeds`,
                embeddings in their place, as the embedding table would give them.
            attention_mask: 1 for tokens, 0 for padding; None if there is no padding.
            decoder_input_ids: [B, T'] for an encoder-decoder; by default `input_ids` shifted right
                by one, as in training with the input as the target.
            sites: names or globs, as for `match`.
            each: called as `each(site, tensor)` the moment a site is passed; nothing is kept then,
                so memory stays that of the forward pass. The tensor is the live one: copy it before
                keeping or changing it.
            grad: whether to record gradients (through `inputs_embeds`, for example).

        Returns:
            {site: tensor [B, T, width]} in the order of depth; empty if `each` is given.

        Raises BadInput: ids outside the vocabulary, longer input than the context, a glob that
        matches nothing.
        """
        chosen = self.match(sites)
        inputs = self.inputs.forward(
            input_ids, inputs_embeds, attention_mask, decoder_input_ids, chosen
        )
        tensors = record(self.model, [self._taps[site] for site in chosen], inputs, each, grad=grad)
        return {} if each else {site: tensors[site] for site in chosen}

    def watch(self, sites: str | Iterable[str], each: Callable[[str, Tensor], Any]) -> Recorder:
        """A context in which `each(site, tensor)` is called in every forward pass of the model,
        whoever runs it.

        For training loops, generation, evaluation: the model's mode, gradients and cache are those
        of the caller. The tensor is the live one; copy it before keeping or changing it. Under
        activation checkpointing parts of a block run once more in the backward pass, and sites
        there can be passed again: leave the context before `backward`.

        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> lens = Lens(GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=2, n_head=2)))
        >>> with lens.watch("block.1", lambda site, tensor: print(site, tuple(tensor.shape), tensor.requires_grad)):
        ...     _ = lens.model(input_ids=torch.tensor([[1, 2, 3]]))
        block.1 (1, 3, 8) True
        """
        return Recorder([self._taps[site] for site in self.match(sites)], each)

    # ---- the model itself

    @contextmanager
    def patch(self, changes: Mapping[str, Callable[[Tensor], Tensor]]) -> Iterator[None]:
        """Replace the states at sites in every forward pass of this context.

        Args:
            changes: by site, a function of its states [windows, T, d] that returns states of the
                same shape, which the model goes on with.

        Raises:
            BadInput: for an unknown site, and for one whose states cannot be replaced.

        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> config = GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=2, n_head=2)
        >>> lens = Lens(GPT2LMHeadModel(config))
        >>> with lens.patch({"block.1": torch.zeros_like}):
        ...     float(lens.run([[1, 2]], sites="block.1")["block.1"].abs().max())
        0.0
        """
        with ExitStack() as patches:
            for site, function in changes.items():
                patches.enter_context(patched(self.tap(site), function))
            yield

    @cached_property
    def traits(self) -> Traits:
        return Traits(self)

    @cached_property
    def sentence(self) -> SentenceHead | None:
        """Of a sentence encoder, what makes a text's vector of the states at the last default site;
        None of other models.
        """
        files = self.origin.files.get("config.json")
        folder = self.origin.source if files is None else files.parent
        return sentence_head(
            folder, self.name, self.width(self.default_sites[-1]), self.context_length
        )

    @property
    def inputs(self) -> ModelInputs:
        return ModelInputs(self.model, self.name, self.context_length)

    @property
    def device(self) -> torch.device:
        return self.input_embeddings.device

    @property
    def vocabulary_size(self) -> int:
        return self.input_embeddings.shape[0]

    @property
    def limits(self) -> Limits:
        return Limits(self.name, self.vocabulary_size, self.context_length)

    @property
    def input_embeddings(self) -> Float[Tensor, "V e"]:
        return embedding_table(self.model)

    @property
    def output_embeddings(self) -> Float[Tensor, "V e"] | None:
        """The weight of the output layer [V, e], live, or None for a model without one."""
        layer = output_layer(self.model)
        return None if layer is None else layer.weight

    def require_tokenizer(self) -> Any:
        return require_tokenizer(self.tokenizer, self.name)

    def random_init(self, seed: int, *, first_block: bool = False) -> "Lens":
        """The same architecture with fresh random weights: the random-weight control of a trained
        model.

        It has the same device and precision, and the family's own initialisation; the global random
        state is not touched. With `first_block` only one block is built (but in families whose
        first weights depend on the depth).
        """
        return self.twin(seed, first_block=first_block)()

    def twin(self, seed: int, *, first_block: bool = False) -> "Callable[[], Lens]":
        """A function that makes `random_init(seed)`. It holds none of this model's weights, so that
        the model and its random-weight control need not be in memory at once.
        """
        blank = Blank.of(self.model)
        tokenizer = self.tokenizer
        source = self.origin.source
        name = f"{self.name} (random weights, seed {seed})"
        sentence = self.sentence
        blank = blank.first_block() if first_block else blank

        def made() -> Lens:
            fresh = Lens(blank.drawn(seed), tokenizer, name=name)
            fresh.origin = Origin(source, random_init=seed)
            fresh.sentence = sentence
            return fresh

        return made

    def provenance(self) -> ModelRecord:
        """What this model is and where it came from, for the protocol of a result; `sha256` is
        empty for a model that was built, not loaded. The first call reads the files once.
        """
        model = self.model
        counted = (
            model.num_parameters()
            if hasattr(model, "num_parameters")
            else sum(p.numel() for p in model.parameters())
        )
        return ModelRecord(
            name=self.name,
            source=self.origin.source,
            revision=self.origin.revision,
            model_class=type(model).__name__,
            architecture=getattr(model.config, "model_type", None),
            parameters=int(counted),
            dtype=str(getattr(model, "dtype", self.input_embeddings.dtype)).removeprefix("torch."),
            device=str(self.device),
            depth=self.depth,
            width=self.width(self.default_sites[0]),
            vocabulary=self.vocabulary_size,
            context=self.context_length,
            quantize=self.origin.quantize,
            random_init=self.origin.random_init,
            notes=list(self.notes),
            sha256=dict(self.once("sha256", self.origin.sha256)),
        )

    def identity(self) -> Json:
        """The hashes of the files that it was read from; of a model that was built, one of what it
        is made of. Asked once.
        """
        return self.once("identity", self._identity)

    def _identity(self) -> Json:
        own = model_identity(self.model, self.provenance().sha256)
        head = self.sentence
        if self.origin.source is not None or head is None:
            return own
        weights = {f"sentence.{number}": weight for number, weight in enumerate(head.weights)}
        # no file has a live encoder's head
        return [own, *head.pooling, *head.settings, head.length, *tensor_rows(weights)]

    def identify(self, run: Run, role: str = "the model", *, named: bool = True) -> None:
        """Record that a run rests on this model: its name, files and tokenizer, its device and its
        precision.

        `role` says which of a verb's models it is ("model 2"), whatever its name is. `named=False`
        leaves its name out.
        """
        if run.folder is None:
            return
        record = self.provenance()
        if named:
            run.identify(f"the name of {role}", self.name)
        identify_files(run, role, self.identity(), self.tokenizer)
        run.identify(
            f"the device and precision of {role}",
            f"{record.device}, {record.quantize or record.dtype}",
        )

    def __repr__(self) -> str:
        return (
            f"Lens({self.name!r}: {type(self.model).__name__}, {self.depth} blocks, width "
            f"{self._taps[self.default_sites[0]].width}, {len(self.sites)} sites)"
        )


# ---- What verbs take as models

ModelLike = TypeAliasType("ModelLike", str | os.PathLike[str] | Lens | nn.Module)
"""A specimen's name, a folder, a .gguf file, a Hugging Face id, a Lens, a model of transformers or
of sentence-transformers.
"""
ModelsLike = TypeAliasType("ModelsLike", ModelLike | Sequence[ModelLike])


def open_models(given: ModelsLike, settings: Loading) -> Iterator[Lens]:
    """The models as Lenses, each loaded when its turn comes; a live model is left as it is.

    Raises BadInput: none was given, or one of them cannot be loaded. That is said at once, before
    any weights are read.

    >>> from transformers import GPT2Config, GPT2Model
    >>> live = GPT2Model(GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=2, n_head=2))
    >>> [lens.name for lens in open_models([live, "gpt-vanilla"], Loading(device="cpu"))]
    ['GPT2Model', 'gpt-vanilla']
    """
    models = [given] if isinstance(given, str | os.PathLike | Lens | nn.Module) else list(given)
    if not models:
        raise BadInput("No model was named: name at least one model.")
    ready = [prepare_model(model, settings) for model in models]
    return (Lens.of(model) if isinstance(model, Preparation) else model for model in ready)


def open_model(given: ModelLike, settings: Loading) -> Lens:
    """One model as a Lens; see `open_models`."""
    return next(open_models(given, settings))


def prepare_model(given: ModelLike, settings: Loading) -> Preparation | Lens:
    """A model whose weights wait to be read, or the Lens of a live one."""
    if isinstance(given, str | os.PathLike):
        return prepare(given, Building(**settings.part(Loading)))
    if isinstance(given, Lens):
        return given
    if not isinstance(given, nn.Module):
        raise BadInput(
            f"A model is a name, a folder, a Lens or a live model, not a {type(given).__name__}."
        )
    tokenizer = load_tokenizer(settings.tokenizer)
    inner = getattr(next(given.children(), None), "auto_model", None)  # of a SentenceTransformer
    network = inner if isinstance(inner, nn.Module) else given
    name = str(
        getattr(getattr(network, "config", None), "name_or_path", "") or type(network).__name__
    )
    if network is given:
        return Lens(network, tokenizer, name=name)
    lens = Lens(network, tokenizer or getattr(given, "tokenizer", None), name=name)
    lens.sentence = live_sentence_head(
        given, name, lens.width(lens.default_sites[-1]), lens.context_length
    )
    return lens


def check_live(model: nn.Module) -> None:
    """Raise BadInput for a live model that is neither of transformers nor of sentence-transformers."""
    if hasattr(getattr(model, "config", None), "model_type") and hasattr(
        model, "get_input_embeddings"
    ):
        return
    raise BadInput(
        "A live model is one of transformers or of sentence-transformers, and "
        f"{type(model).__name__} is neither: pass its hidden states as a dict of arrays by site, "
        "each [windows, T, d]."
    )
