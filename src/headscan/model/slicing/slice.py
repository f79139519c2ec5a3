"""Slices: the value that says which part of a model is run, and that runs it."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from headscan.model.inputs import IdsLike
from headscan.model.lens import Lens
from headscan.model.slicing.sliced_model import SlicedModel
from headscan.model.slicing.specification import SliceSpecification

__all__ = ["Slice"]


@dataclass(frozen=True)
class Slice(SliceSpecification):
    """A part of a model from its input embeddings to a site, cut in any of several ways, and a part of the output.

    A Slice says what is computed; it holds no model. It is saved inside results as `slice.document()`.

    Attributes:
        sites: one or more sites of the Lens (globs are allowed). Several are concatenated on the feature axis.
        only: "attention" or "mlp" silences the other branches of every block (attention stands for whatever mixes
            tokens: recurrences and mixers too). What is left keeps its norm and its residual unless said otherwise.
        start: the first block that is run; blocks before it pass the embeddings on. `start=3, sites=("block.3",)` is
            block 3 alone.
        residual: False replaces x + branch(x) by branch(x) in every block.
        normalisation: False makes every norm the identity, the final one included.
        causal: True imposes a causal mask, False lifts it, None leaves the model's own.
        positions: False takes away position embeddings and rotary angles.
        embedding: another embedding table: "random:SEED" (normal, with the standard deviation of the model's own) or
            the name of a model whose table has the same shape; None is the model's own.
        weights: None as given, "fresh:SEED" for newly initialised ones (`Lens.random_init`).
        bits: round the weights of every linear map to so many bits (per output row, symmetric), 2 to 8: what 8-bit
            loading does to them, on any machine. None leaves them.
        tokens: which positions of the output are kept, as between the brackets of numpy: ":", "1:", ":3", "-1", "2:5".
        features: which features: ":", ":64", "64:128", or "random(64)" / "random(64, SEED)" for a random subset.
        pool: "mean", "first" or "last" replaces the kept positions by one vector, as sentence encoders do.

    `run` gives [B, T', w']: T' positions kept, w' features kept, all sites together.

    Raises:
        BadInput: an attribute that no slice can have.

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
        """The slice made ready on a model: what takes time (fresh weights, probing the mask) is done once and kept.

        Raises:
            BadInput: the model cannot be cut so; one sentence says why.
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
        """Run the slice on token ids [B, T] or on embeddings [B, T, e]; later layers are not computed.

        Args:
            lens: the model.
            input_ids: token ids [B, T].
            inputs_embeds: in place of ids, vectors as the embedding table would give them, without positions.
            grad: record gradients, so that the output can be differentiated by `inputs_embeds`.

        Returns:
            [B, T', w'] in the precision of the model.
        """
        return self.on(lens).run(input_ids, inputs_embeds=inputs_embeds, grad=grad)
