"""Writes `store` and `seen.npz` beside this file: SAELens' own runner caches a random model's
activations.

Not run by the tests, which read what it wrote with SAELens 6.54.12 and TransformerLens 3.9.0:

    pip install sae-lens && python tests/states/saelens/write.py
"""

from pathlib import Path

import numpy as np
import sae_lens.cache_activations_runner as runner
import torch
from datasets import Dataset
from transformer_lens import HookedTransformer, HookedTransformerConfig

HERE = Path(__file__).parent
HOOK = "blocks.1.hook_resid_post"
torch.manual_seed(0)
model = HookedTransformer(
    HookedTransformerConfig(
        n_layers=2,
        d_model=8,
        n_ctx=16,
        d_head=4,
        n_heads=2,
        d_vocab=50,
        act_fn="gelu",
        normalization_type="LN",
        device="cpu",
    )
)
runner.load_model = lambda **_: model  # ours, and none of the hub
ids = np.random.default_rng(0).integers(0, 50, (40, 16))
settings = runner.CacheActivationsRunnerConfig(
    dataset_path="none",
    model_name="none",
    model_batch_size=4,
    hook_name=HOOK,
    d_in=8,
    training_tokens=640,
    context_size=16,
    new_cached_activations_path=str(HERE / "store"),
    shuffle=False,
    device="cpu",
    buffer_size_gb=8 * 16 * 8 * 4 / 1e9,
    prepend_bos=False,
    streaming=False,
)
runner.CacheActivationsRunner(
    settings, override_dataset=Dataset.from_dict({"input_ids": ids.tolist()})
).run()
with torch.no_grad():
    states = model.run_with_cache(torch.tensor(ids))[1][HOOK]
np.savez(HERE / "seen.npz", states=states.numpy(), ids=ids)
