"""An arm: all that tells one way of training a language model from another, and the arms that a
tournament sets side by side.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jaxtyping import Int
from torch import Tensor
from torch.optim import Optimizer
from transformers import (
    GPT2Config,
    PreTrainedConfig,
    PreTrainedModel,
    TrainerCallback,
    TrainingArguments,
)

from headscan.model.mixer import MixerConfig
from headscan.run import BadInput, Registry
from headscan.training.learner import Learner
from headscan.training.objective import CrossEntropy, Objective, WeightTying
from headscan.training.optimisers import AdamW, Optimiser
from headscan.training.recipes import Recipe, recipe_of
from headscan_lab.tournament.optimisers import CentreHead, CoupledAdam, Muon


@dataclass(frozen=True, kw_only=True)
class Arm:
    """An objective, what is added to it, by what the weights move, and the model's kind.

    about: what it does, in a few words. objective, regulariser, optimiser, tied, centre_head: as
    `headscan.train` takes them. recipe: whose architecture, "gpt" or "mixer".

    It works in any `transformers.Trainer`, for the learner is a module whose forward pass returns a
    loss:

        arm = ARMS["ce+unigram"]
        learner = arm.learner(model, counts)                       # counts of the text's tokens,
        int64 [V] Trainer(learner, args, train_dataset=..., data_collator=headscan.training.collate,
                optimizers=(arm.optimizer(learner, args), None), callbacks=arm.callbacks())

    and afterwards `learner.settle()` puts a bias into the model.
    """

    about: str
    objective: Objective = field(default_factory=CrossEntropy)
    regulariser: str | None = None
    optimiser: Optimiser = field(default_factory=AdamW)
    tied: bool = False
    centre_head: bool = False
    recipe: str = "gpt"

    def learner(
        self,
        model: PreTrainedModel,
        counts: Int[Tensor, " vocabulary"] | None = None,
        *,
        masked: bool = False,
    ) -> Learner:
        """The model (with a head, or without one for a headless objective) with the arm's loss; see
        `Learner`.
        """
        return Learner(
            model, self.objective, regulariser=self.regulariser, masked=masked, counts=counts
        )

    def optimizer(self, learner: Learner, arguments: TrainingArguments) -> Optimizer:
        """torch's optimizer, with the numbers of a Trainer's arguments."""
        return self.optimiser.make(
            learner,
            rate=arguments.learning_rate,
            betas=(arguments.adam_beta1, arguments.adam_beta2),
            epsilon=arguments.adam_epsilon,
            decay=arguments.weight_decay,
        )

    def callbacks(self) -> list[TrainerCallback]:
        """What a Trainer must call besides."""
        return [CentreHead()] if self.centre_head else []


UNIGRAM = CrossEntropy(head_bias="unigram")
ARMS: Registry[Arm] = Registry("arm")
"""All arms by name; the first one is what the others are compared with."""

for _name, _arm in {
    "ce": Arm(about="cross-entropy, a head of its own without a bias"),
    "ce+tied": Arm(about="cross-entropy, the head is the input table", tied=True),
    "ce+unigram": Arm(about="a head bias that starts at the log unigram", objective=UNIGRAM),
    "ce+unigram+tied": Arm(
        about="a tied head with a bias that starts at the log unigram", objective=UNIGRAM, tied=True
    ),
    "ce+bias": Arm(
        about="a head bias from zero, at the table's rate", objective=CrossEntropy(head_bias="zero")
    ),
    "ce+fast-bias": Arm(
        about="a head bias from zero, at the rate 0.1",
        objective=CrossEntropy(head_bias="zero", bias_rate=0.1),
    ),
    "headless": Arm(
        about="contrastive weight tying, read out with the log unigram", objective=WeightTying()
    ),
    "ce+coupled": Arm(about="Coupled Adam on the head", optimiser=CoupledAdam()),
    "ce+coupled+tied": Arm(about="Coupled Adam on a tied head", optimiser=CoupledAdam(), tied=True),
    "ce+unigram+coupled": Arm(
        about="the log unigram and Coupled Adam", objective=UNIGRAM, optimiser=CoupledAdam()
    ),
    "ce+muon": Arm(about="Muon on the blocks' matrices, AdamW on all else", optimiser=Muon()),
    "ce+z-loss": Arm(about="z-loss, 1e-4", regulariser="z-loss:1e-4"),
    "ce+mu-loss": Arm(about="μ-loss, 0.1", regulariser="mu-loss:0.1"),
    "ce+mu-centre": Arm(about="μ-centring", centre_head=True),
    "ce+cap30": Arm(about="tanh cap at 30", objective=CrossEntropy(cap=30.0)),
    "ce+cap15": Arm(about="tanh cap at 15", objective=CrossEntropy(cap=15.0)),
    "ce+cosine": Arm(
        about="cosine regulariser on the final norm, 1", regulariser="cosine-states:1"
    ),
    "ce+cosine-block": Arm(
        about="cosine regulariser on the last block, 1", regulariser="cosine-block:1"
    ),
    "ce+cosine-centred": Arm(
        about="cosine regulariser on the last block's states less their own mean, 1",
        regulariser="cosine-block-centred:1",
    ),
    "mixer": Arm(about="a masked mixer, cross-entropy", recipe="mixer"),
    "mixer+unigram": Arm(
        about="a masked mixer, a head bias at the log unigram", recipe="mixer", objective=UNIGRAM
    ),
    "mixer+headless": Arm(
        about="a masked mixer without a head", recipe="mixer", objective=WeightTying()
    ),
}.items():
    ARMS.add(_name, _arm)


# ---- What a tournament of each size trains: every number of it.


@dataclass(frozen=True, kw_only=True)
class GridCell:
    """A vocabulary and a width.

    >>> GridCell(vocabulary=4096, width=96).name
    '4096/96'
    """

    vocabulary: int
    width: int

    @property
    def name(self) -> str:
        return f"{self.vocabulary}/{self.width}"


@dataclass(frozen=True, kw_only=True)
class TournamentPlan:
    """The runs of a tournament. Rates are the same for every arm, all of them are run, and each arm
    takes its best.

    cells: the first is the leaderboard's, and has all seeds and rates; the others have `others`
        seeds at each arm's rate.
    blocks, heads, context, batch, steps, warmup: of a run (constant rate after a linear warm-up,
        AdamW, clip 1).
    rates: peak learning rates. matched_loss: nats at which arms are compared in the first cell.
        levels: of the curves.
    points: measurements a run. windows: held-out windows that are measured; half as many choose the
        rate.
    """

    cells: tuple[GridCell, ...]
    blocks: int
    heads: int
    context: int
    batch: int
    steps: int
    warmup: int
    rates: tuple[float, ...]
    matched_loss: float
    others: int = 2
    points: int = 16
    windows: int = 64
    betas: tuple[float, float] = (0.9, 0.95)
    decay: float = 0.01

    def recipe(self, kind: str, cell: GridCell) -> Recipe:
        """The architecture of an arm in a cell: a GPT-2 or a masked mixer, of this depth."""

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
                    hidden_size=cell.width,
                    num_hidden_layers=self.blocks,
                    max_position_embeddings=context,
                    final_norm=True,
                )
            return GPT2Config(
                **shape,
                n_embd=cell.width,
                n_layer=self.blocks,
                n_head=self.heads,
                n_positions=context,
                resid_pdrop=0.0,
                embd_pdrop=0.0,
                attn_pdrop=0.0,
                use_cache=False,
            )

        plan = recipe_of(kind).but(
            vocabulary=cell.vocabulary, context=self.context, batch=self.batch, steps=self.steps
        )
        return replace(plan, architecture=architecture)

    @property
    def measured(self) -> list[int]:
        """The steps at which a run is measured: close together at first, where the loss falls fast."""
        last = self.points - 1
        return (
            sorted({round(self.steps * (k / last) ** 2) for k in range(self.points)})
            if last > 0
            else [self.steps]
        )


def _cells(text: str) -> tuple[GridCell, ...]:
    pairs = [part.split("/") for part in text.split(",")]
    return tuple(GridCell(vocabulary=int(one), width=int(other)) for one, other in pairs)


SIZES: dict[str, TournamentPlan] = {
    "tiny": TournamentPlan(
        cells=_cells("4096/96,1024/96,4096/48"),
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
        cells=_cells("8192/256,2048/256,8192/128"),
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
        cells=_cells("32768/512,8192/512,32768/256"),
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
"""tiny: twelve arms and five seeds in an hour of two cores. small: a day of them. base: a card's.
"""


def cells_of(text: str) -> tuple[GridCell, ...]:
    """Cells as the command line writes them, as "4096/96,1024/96"; BadInput where they are not.

    >>> [cell.width for cell in cells_of("4096/96,1024/48")]
    [96, 48]
    """
    try:
        found = _cells(text)
    except ValueError:
        found = ()
    if not found or any(cell.vocabulary < 257 or cell.width < 4 for cell in found):
        raise BadInput(
            "--cells are pairs VOCABULARY/WIDTH, of 257 tokens and 4 numbers at least, as in "
            f"4096/96,1024/96; not {text!r}."
        )
    return found


def numbers_of(text: str, flag: str) -> Sequence[float]:
    """Positive numbers with commas between; BadInput, which names the option, where they are not."""
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 < one < float("inf") for one in found):
        raise BadInput(f"{flag} are numbers above 0 with commas between, not {text!r}.")
    return found
