"""Which defence stops which attack on a key-value cache, and what KV-Cloak costs beside a forward
pass.

python benchmarks/which_defence_stops_which_attack_on_a_cache.py MODEL TEXT [SITES] [WINDOWS]
[LENGTH] [CANDIDATES] [DEFENCES]

Inversion, collision and injection (arXiv:2508.09442) on what lies in memory behind each defence,
its secrets unknown, and exact search, which has KV-Cloak's secrets: share of tokens read with 95 %
intervals. Cost is processor time to store the whole cache of one window and to take it back, of the
forward pass that made it; in PyTorch, not fused into the weights as its authors do.
"""

import sys
import time

import torch
from _table import needs
from transformers import DynamicCache

from headscan.leaks import privacy
from headscan.leaks.defences import KVCloak
from headscan.leaks.result import LeakRow, TrialRow
from headscan.model import Lens


def show(
    row: LeakRow | TrialRow,
    value: float | None,
    interval: tuple[float, float] | None,
    attack: str,
) -> None:
    """Print one share of tokens with its interval."""
    share = "-" if value is None else f"{value:.2f}"
    ends = "" if interval is None else f"[{interval[0]:.2f}, {interval[1]:.2f}]"
    print(f"{row.defence:12} {row.site:12} {share} {ends} {attack}")


def main() -> None:
    if len(sys.argv) < 3:
        needs("a model and a text")
    model, text, *options = sys.argv[1:]
    defaults = ["block.0,block.2", "2", "21", "256", "permutation,rounding,kv-cloak"]
    sites, windows, length, candidates, defences = options + defaults[len(options) :]
    lens = Lens.load(model)
    start = time.process_time()
    result = privacy(
        lens,
        text,
        release="cache",
        sites=sites,
        windows=int(windows),
        length=int(length),
        candidates=int(candidates),
        noise=(0.0,),
        max_tokens=4000,
        start="none",
        defence=defences,
        test="attacks",
    )
    for row in result.rows:
        attack = f"exact search ({row.verdict})"
        show(row, row.text_accuracy, row.text_accuracy_interval, attack)
    for trial in result.trials:
        show(trial, trial.value, trial.interval, trial.setting)
    print(f"processor time: {time.process_time() - start:.0f} s")
    heads = lens.model.config.get_text_config()
    width = getattr(heads, "head_dim", None) or heads.hidden_size // heads.num_attention_heads
    defence = KVCloak(width=width)
    ids = torch.randint(0, lens.vocabulary_size, (1, 128))
    best = []
    for _ in range(3):
        with torch.no_grad():
            begun = time.process_time()
            cache = DynamicCache()
            lens.model(input_ids=ids, past_key_values=cache, use_cache=True)
            forward = time.process_time() - begun
            begun = time.process_time()
            for layer in cache.layers:
                for plain in (layer.keys, layer.values):  # type: ignore[union-attr]
                    assert plain is not None
                    stored, restore = defence.cloaked(
                        plain[0].transpose(0, 1).flatten(1).float(),
                        torch.Generator().manual_seed(0),
                    )
                    restore(stored)
        best.append((time.process_time() - begun) / forward)
    print(
        f"KV-Cloak, stored and taken back, 128 tokens: {min(best):.2f} to {max(best):.2f} forward "
        "passes"
    )


if __name__ == "__main__":
    main()
