"""Models: loading, the `Lens` that names and records their sites, slices of it, the embedded
specimens.

Its names are loaded when first asked for, so that `headscan.model.settings` can be read without
torch.

>>> from headscan.model import Lens
>>> from transformers import GPT2Config, GPT2LMHeadModel
>>> lens = Lens(GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=2, n_head=2)))
>>> lens.default_sites
('embedding', 'block.0', 'block.1', 'final_norm')
>>> lens.run([[1, 2, 3]], sites="final_norm")["final_norm"].shape
torch.Size([1, 3, 8])
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headscan.model.lens import Lens
    from headscan.model.load import ByteTokenizer
    from headscan.model.source import specimen_path, specimens

__all__ = ["ByteTokenizer", "Lens", "specimen_path", "specimens"]

_HOMES = {"ByteTokenizer": "load", "Lens": "lens", "specimen_path": "source", "specimens": "source"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'headscan.model' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"headscan.model.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
