"""The arms of a tournament: ways of training a language model that are compared side by side."""

from dataclasses import dataclass, field

from jaxtyping import Int
from torch import Tensor
from torch.optim import Optimizer
from transformers import PreTrainedModel, TrainerCallback, TrainingArguments

from headscan.run import Registry
from headscan.training.learner import Learner
from headscan.training.objective import CrossEntropy, Objective, WeightTying
from headscan.training.optimisers import AdamW, Optimiser
from headscan_lab.tournament.optimisers import CentreHead, CoupledAdam, Muon


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One way of training: an objective, a regulariser, an optimiser, and the model's architecture.

    An arm works in any `transformers.Trainer`, because its learner is a module whose forward pass
    returns a loss:

        arm = ARMS["ce+unigram"]
        learner = arm.learner(model, counts)  # counts of the text's tokens, int64 [V]
        Trainer(
            learner,
            args,
            train_dataset=...,
            data_collator=headscan.training.collate,
            optimizers=(arm.optimizer(learner, args), None),
            callbacks=arm.callbacks(),
        )

    Afterwards `learner.settle()` puts a bias into the model.

    Attributes:
        about: what the arm does, in a few words.
        objective, regulariser, optimiser, tied, centre_head: as `headscan.train` takes them.
        recipe: the recipe that has the architecture, "gpt" or "mixer".
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
        """Return the model with the arm's loss; see `Learner`.

        The model has a head, or none for a headless objective.
        """
        return Learner(
            model, self.objective, regulariser=self.regulariser, masked=masked, counts=counts
        )

    def optimizer(self, learner: Learner, arguments: TrainingArguments) -> Optimizer:
        """Return torch's optimizer, with the numbers of a Trainer's arguments."""
        return self.optimiser.make(
            learner,
            rate=arguments.learning_rate,
            betas=(arguments.adam_beta1, arguments.adam_beta2),
            epsilon=arguments.adam_epsilon,
            decay=arguments.weight_decay,
        )

    def callbacks(self) -> list[TrainerCallback]:
        """Return the callbacks that a Trainer must call besides."""
        return [CentreHead()] if self.centre_head else []


UNIGRAM = CrossEntropy(head_bias="unigram")
ARMS: Registry[Arm] = Registry("arm")
"""All arms by name; the others are compared with the first."""

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
