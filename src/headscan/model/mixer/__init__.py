"""Masked mixers as transformers models, which importing this makes known to the Auto classes."""

from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

from headscan.model.mixer.mixing import MIXINGS, MixerConfig
from headscan.model.mixer.modeling import (
    MixerAutoencoder,
    MixerForBidirectionalLM,
    MixerForCausalLM,
    MixerModel,
)

__all__ = [
    "MIXINGS",
    "MixerAutoencoder",
    "MixerConfig",
    "MixerForBidirectionalLM",
    "MixerForCausalLM",
    "MixerModel",
]

AutoConfig.register(MixerConfig.model_type, MixerConfig, exist_ok=True)
AutoModel.register(MixerConfig, MixerModel, exist_ok=True)
AutoModelForCausalLM.register(MixerConfig, MixerForCausalLM, exist_ok=True)
