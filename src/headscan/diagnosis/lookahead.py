"""HS208: the logits of a model that should predict the next token move with later tokens."""

import re
from typing import Any

from headscan.diagnosis.evidence import ModelEvidence
from headscan.diagnosis.registry import Seen, condition
from headscan.model import Lens
from headscan.model.traits import random_ids

CLASSES = re.compile(r"(For[A-Z]\w*|LMHeadModel)$")
"""Names of classes that say what a model is for, such as `GPT2LMHeadModel`, `LlamaForCausalLM`,
`BertForMaskedLM`.
"""
CAUSAL = ("ForCausalLM", "LMHeadModel")


def built_causal(model: Any) -> bool:
    """Return whether a model's class and configuration say that it predicts each token from the
    ones before.

    A class that a user derived counts as its nearest ancestor whose name says what it is for.
    Encoder families have such classes, too: these are meant only with `is_decoder=True`. XLNet
    (`attn_type="bi"`) is read in both directions by design.
    """
    from transformers import AutoModelForMaskedLM

    config = model.config
    class_names = (ancestor.__name__ for ancestor in type(model).__mro__)
    class_name = next((name for name in class_names if CLASSES.search(name)), "")
    bidirectional = getattr(config, "attn_type", "") == "bi"
    if not class_name.endswith(CAUSAL):
        return False
    if bidirectional or getattr(config, "is_encoder_decoder", False):
        return False
    encoder_family = type(config) in AutoModelForMaskedLM._model_mapping
    return not encoder_family or bool(getattr(config, "is_decoder", False))


def movement_by_later(lens: Lens) -> float | None:
    """Return how far the logits before the last token move when that token is replaced, over how
    far its own logits move.

    0 where no output depends on a later token (`Traits.causal`, which allows for rounding); None of
    a model whose class does not say that it predicts the next token. The tokens are random ones of
    the vocabulary, the same in each run.
    """
    if not lens.traits.predicts or not built_causal(lens.model):
        return None
    if lens.traits.causal:
        return 0.0
    token_ids = random_ids(lens, 2)
    token_ids[1] = token_ids[0]
    token_ids[1, -1] = (token_ids[0, -1] + 1) % lens.vocabulary_size

    logits = lens.run(token_ids, sites="head")["head"].float()
    movement = (logits[1] - logits[0]).norm(dim=-1)
    return float(movement[:-1].mean() / movement[-1].clamp_min(1e-30))


@condition(
    "HS208",
    "cause",
    "Logits that see later tokens",
    threshold=1e-6,
    of_text=False,
    source="definition",
    unit="movement by a later token over that by its own",
    silent="its class is not that of a model that predicts the next token",
    sentence="Movement of logits when a later token is replaced, relative to the movement "
    "when their own is; 0 under a causal mask.",
    meaning="The model can read the token that it is asked to predict: its causal mask is missing "
    "or was lifted. It has no loss, and what it generates differs from what it computes "
    "on a whole text.",
    todo="Look at the attention mask: the configuration (is_causal, is_decoder), the attention "
    "implementation, a mask that was passed or patched. headscan flow MODEL --prompt TEXT "
    "says how far each site sees ahead (HS311).",
    limits="Applies to models whose class predicts the next token (ForCausalLM, "
    "LMHeadModel), not to masked models, encoders and XLNet. Diffusion models and "
    "models with a prefix that is read both ways have it by design: --ignore HS208. "
    "Six random tokens are read, so a mask that fails only at longer distances is not "
    "detected.",
)
def later_tokens(evidence: ModelEvidence, _earlier: list[ModelEvidence]) -> Seen | None:
    """Return how far a later token moves the logits, of a model that should predict the next
    token.
    """
    if evidence.later is None:
        return None
    if evidence.later == 0:
        return Seen(
            value=0.0, site="output head", sentence="No logit moves when a later token is replaced."
        )
    return Seen(
        value=evidence.later,
        site="output head",
        sentence=f"Replacing a later token moves the logits before it {evidence.later:.2g} times "
        "as far as the logits of its own place: they depend on the tokens that follow.",
    )
