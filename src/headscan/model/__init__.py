"""Models: loading, the `Lens` that names and records their sites, the embedded specimens.

>>> from headscan.model import Lens
>>> from transformers import GPT2Config, GPT2LMHeadModel
>>> lens = Lens(GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=8, n_layer=2, n_head=2)))
>>> lens.default_sites
('embedding', 'block.0', 'block.1', 'final_norm')
>>> lens.run([[1, 2, 3]], sites="final_norm")["final_norm"].shape
torch.Size([1, 3, 8])
"""

from __future__ import annotations

from headscan.model.byte_tokenizer import ByteTokenizer
from headscan.model.lens import Lens
from headscan.model.specimens import specimen_path, specimens

__all__ = ["ByteTokenizer", "Lens", "specimen_path", "specimens"]
