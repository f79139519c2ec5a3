"""What loading takes: weights in shards are mapped, not copied, and another precision has no copy
of the first beside it.
"""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from headscan.model.load import prepare
from headscan.model.settings import Building
from tests.model.tiny import llama

# Loads a model and prints MB: of its weights, and the largest resident and the largest private
# memory while it loaded.
LOADING = """
import sys, threading, time
from headscan.model import Lens

def held(name):
    return int(open("/proc/self/status").read().split(name + ":")[1].split()[0]) / 1e3

def watch():
    while not done.is_set():
        for name in most:
            most[name] = max(most[name], held(name) - before[name])
        time.sleep(0.002)

Lens.load("gpt-vanilla", device="cpu")  # what the first model costs in code is not this one's
for dtype in sys.argv[2:]:
    before = {name: held(name) for name in ("VmRSS", "RssAnon")}
    most, done = dict.fromkeys(before, 0.0), threading.Event()
    thread = threading.Thread(target=watch)
    thread.start()
    lens = Lens.load(sys.argv[1], dtype=dtype, device="cpu", tokenizer="bytes")
    done.set()
    thread.join()
    print(sum(p.numel() * p.element_size() for p in lens.model.parameters()) / 1e6, *most.values())
    del lens
"""


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="no /proc: memory while loading is NOT measured"
)
def test_shards_take_the_memory_of_the_model_once(tmp_path):
    sizes = {
        "vocab_size": 8000,
        "hidden_size": 512,
        "intermediate_size": 1376,
        "num_hidden_layers": 4,
    }
    llama(0, **sizes, num_attention_heads=8, num_key_value_heads=8).save_pretrained(
        tmp_path, max_shard_size="20MB"
    )
    assert len(list(tmp_path.glob("*.safetensors"))) > 3
    command = [sys.executable, "-c", LOADING, str(tmp_path), "float32", "bfloat16"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    (full, resident, private), (half, _, private_half) = (
        map(float, line.split()) for line in lines
    )
    assert half == pytest.approx(full / 2)
    assert resident < 1.4 * full
    assert private < 0.5 * full, "the weights were copied out of their files"
    assert private_half < 1.6 * half, "a copy in float32 was made"


def test_the_memory_of_a_real_model_is_known_before_it_is_read(real):
    for model in ("qwen", "qwen.gguf"):
        ready = prepare(real / model, Building(device="cpu", dtype="float32"))
        assert ready.bytes == pytest.approx(7.11e9, rel=0.01)
        assert ready.dtype == torch.float32
    assert prepare(real / "qwen", Building(device="cpu", dtype="bfloat16")).bytes == pytest.approx(
        3.55e9, rel=0.01
    )
