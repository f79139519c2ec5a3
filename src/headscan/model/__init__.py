"""Models: loading, the `Lens` that names, reads and writes their sites, slices, embedded models.

Its names are loaded when first asked for, so that `headscan.model.settings` can be read without
torch.

>>> from headscan.model import Lens
>>> from transformers import GPT2Config, GPT2LMHeadModel
>>> config = GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=2, n_head=2)
>>> lens = Lens(GPT2LMHeadModel(config))
>>> lens.default_sites
('embedding', 'block.0', 'block.1', 'final_norm')
>>> lens.run([[1, 2, 3]], sites="final_norm")["final_norm"].shape
torch.Size([1, 3, 8])
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headscan.model.available import specimen_path, specimens
    from headscan.model.lens import Lens
    from headscan.model.tokenizer import ByteTokenizer

__all__ = ["ByteTokenizer", "Lens", "specimen_path", "specimens"]

_MODULES = {
    "ByteTokenizer": "tokenizer",
    "Lens": "lens",
    "specimen_path": "available",
    "specimens": "available",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'headscan.model' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"headscan.model.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
