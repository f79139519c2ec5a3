"""What one token's output knows of another token, and how narrow and noisy the channel may be that
tells it.

`run(models, prompt, ...)` and `channel(models, prompt, ...)` give results with their pages. Their
parts:

- `leaks`: how far output j moves when input token i changes
- `recovery`: whether token i can be recovered from output j alone, by trying every token of the
  vocabulary
- `VARIANTS`: attention alone, the feed-forward parts alone, without residual, with and without a
  causal mask
- `codebook`, `distances`: the outputs of all tokens at one place, and how far apart they are
- `noise_accuracy`: maximum-likelihood decoding through noise
- `channel_bound`, `gaussian_bits`, `fano_accuracy`, `fano_bits`: what no decoder can exceed
"""

from headscan.flow.channel import channel
from headscan.flow.codebooks import channel_bound, codebook, distances, noise_accuracy
from headscan.flow.comparison import VARIANTS, variant
from headscan.flow.influence import Recovery, leaks, recovery
from headscan.flow.result import ChannelResult, FlowResult
from headscan.flow.run import run
from headscan.run.verbs import make_callable
from headscan.statistics.information import fano_accuracy, fano_bits, gaussian_bits

__all__ = [
    "VARIANTS",
    "ChannelResult",
    "FlowResult",
    "Recovery",
    "channel",
    "channel_bound",
    "codebook",
    "distances",
    "fano_accuracy",
    "fano_bits",
    "gaussian_bits",
    "leaks",
    "noise_accuracy",
    "recovery",
    "run",
    "variant",
]


def __dir__() -> list[str]:
    return __all__


make_callable(__name__)
