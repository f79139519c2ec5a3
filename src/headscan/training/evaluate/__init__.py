"""What a trained model can do, measured offline: likelihood, minimal pairs, sentence vectors, probes."""

from __future__ import annotations

from headscan.training.evaluate.likelihood import bytes_of_tokens, log_likelihood, perplexity, token_losses

__all__ = ["bytes_of_tokens", "log_likelihood", "perplexity", "token_losses"]
