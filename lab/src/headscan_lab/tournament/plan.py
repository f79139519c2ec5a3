"""The plan of a tournament of each size: its architecture, its steps and rates."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from transformers import GPT2Config, PreTrainedConfig

from headscan.model.mixer import MixerConfig
from headscan.run import BadInput
from headscan.training.recipes import Recipe, recipe_of


@dataclass(frozen=True, kw_only=True)
class TournamentPlan:
    """The runs of a tournament.

    Rates are the same for every arm; each arm is run at all of them, and reported at its best.

    Attributes:
        vocabulary, width, blocks, heads, context, batch, steps, warmup: of a run (constant rate
            after a linear warm-up, AdamW, clip 1).
        rates: peak learning rates.
        matched_loss: nats at which arms are compared.
        points: measurements of a run.
        windows: held-out windows that are measured; half as many choose the rate.
    """

    vocabulary: int
    width: int
    blocks: int
    heads: int
    context: int
    batch: int
    steps: int
    warmup: int
    rates: tuple[float, ...]
    matched_loss: float
    points: int = 16
    windows: int = 64
    betas: tuple[float, float] = (0.9, 0.95)
    decay: float = 0.01

    def recipe(self, kind: str) -> Recipe:
        """Return the recipe of an arm: a GPT-2 or a masked mixer of this shape."""

        def architecture(vocabulary: int, context: int) -> PreTrainedConfig:
            shape: dict[str, Any] = {
                "vocab_size": vocabulary,
                "bos_token_id": 0,
                "eos_token_id": 0,
                "tie_word_embeddings": False,
            }
            if kind == "mixer":
                return MixerConfig(
                    **shape,
                    hidden_size=self.width,
                    num_hidden_layers=self.blocks,
                    max_position_embeddings=context,
                    final_norm=True,
                )
            return GPT2Config(
                **shape,
                n_embd=self.width,
                n_layer=self.blocks,
                n_head=self.heads,
                n_positions=context,
                resid_pdrop=0.0,
                embd_pdrop=0.0,
                attn_pdrop=0.0,
                use_cache=False,
            )

        recipe = recipe_of(kind).but(
            vocabulary=self.vocabulary, context=self.context, batch=self.batch, steps=self.steps
        )
        return replace(recipe, architecture=architecture)

    @property
    def measured_steps(self) -> list[int]:
        """Return the steps at which a run is measured, densest where the loss falls fast."""
        last = self.points - 1
        if last <= 0:
            return [self.steps]
        return sorted({round(self.steps * (point / last) ** 2) for point in range(self.points)})


SIZES: dict[str, TournamentPlan] = {
    "tiny": TournamentPlan(
        vocabulary=4096,
        width=96,
        blocks=3,
        heads=4,
        context=64,
        batch=16,
        steps=240,
        warmup=30,
        rates=(1e-3, 3e-3),
        matched_loss=5.0,
    ),
    "small": TournamentPlan(
        vocabulary=8192,
        width=256,
        blocks=6,
        heads=4,
        context=128,
        batch=32,
        steps=2000,
        warmup=100,
        rates=(3e-4, 1e-3, 3e-3),
        matched_loss=4.5,
    ),
    "base": TournamentPlan(
        vocabulary=32_768,
        width=512,
        blocks=8,
        heads=8,
        context=256,
        batch=64,
        steps=10_000,
        warmup=500,
        rates=(3e-4, 1e-3, 3e-3),
        matched_loss=4.0,
    ),
}
"""The plans by size.

Twelve arms and five seeds of tiny take an hour on two cores, of small a day. Base is for a GPU.
"""


def numbers_of(text: str, flag: str) -> Sequence[float]:
    """Return positive numbers that have commas between them.

    Raises:
        BadInput: where they are not such; the message names the option.
    """
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or not all(0 < number < float("inf") for number in numbers):
        raise BadInput(f"{flag} are numbers above 0 with commas between, not {text!r}.")
    return numbers
