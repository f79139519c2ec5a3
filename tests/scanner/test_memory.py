"""The memory that a scan announces is a bound: held against what a process really took."""

import ctypes
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest import mock

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import headscan
from headscan.model import ByteTokenizer, Lens
from headscan.scanner import examine
from headscan.scanner.memory import memory_bound
from tests.forked import fork, status_of

STATUS = Path("/proc/self/status")


def held() -> float:
    """Return the memory that this process has written to, in MB."""
    return int(STATUS.read_text().split("RssAnon:")[1].split()[0]) / 1e3


def peak(work: Callable[[], object]) -> float:
    """Do some work; return the most memory that was held meanwhile, looked at every 5 ms."""
    done = threading.Event()
    seen = [held()]

    def watch() -> None:
        while not done.wait(0.005):
            seen.append(held())

    thread = threading.Thread(target=watch)
    thread.start()
    work()
    done.set()
    thread.join()
    return max(seen)


def print_memory(width: int, tokens: int) -> None:
    """Scan the last block of a random model of two blocks, and print the announced and the taken
    memory beside the model and its forward pass, in MB.
    """
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=width,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=1,
        head_dim=128,
        max_position_embeddings=256,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    lens = Lens(LlamaForCausalLM(config).eval(), ByteTokenizer(), name="wide")
    ids = torch.randint(0, 256, (min(16, tokens // 128), 128))
    text = "".join(chr(32 + (i * i * 7 + i * 13) % 90) for i in range(tokens + 64))
    announced: list[float] = []

    def bound(*widths: object, **sizes: object) -> float:
        announced.append(memory_bound(*widths, **sizes))  # type: ignore[arg-type]
        return announced[-1]

    ctypes.CDLL(None).malloc_trim(0)  # memory that tests before this one have left would be reused
    forward = peak(lambda: lens.run(ids, sites="block.1", each=lambda *_: None))
    with mock.patch.object(examine, "memory_bound", bound):
        taken = peak(
            lambda: headscan.scan(lens, [text], max_tokens=tokens, sites="embedding,block.1")
        )
    print(announced[0] / 1e6, taken - forward)


def memory_of(width: int, tokens: int, printed: Path) -> tuple[float, float]:
    """Return the announced and the taken memory of a scan in a process of its own."""
    assert status_of(fork(partial(print_memory, width, tokens), printed)) == 0, printed.read_text()
    announced, measured = map(float, printed.read_text().split()[-2:])
    return announced, measured


@pytest.mark.skipif(not STATUS.exists(), reason="no /proc: the announced memory is NOT checked")
@pytest.mark.parametrize("width", [4096, 8192])
def test_a_wide_model_is_scanned_within_what_is_announced(real, width, tmp_path):
    """Minutes: the eigenvalues of two sites. It asks for `real` not for its models but because it
    is as long.
    """
    announced, measured = memory_of(width, 512, tmp_path / "printed")
    assert measured < announced < 4 * measured + 1000


@pytest.mark.skipif(not STATUS.exists(), reason="no /proc: the announced memory is NOT checked")
def test_a_model_is_scanned_within_what_is_announced(tmp_path):
    announced, measured = memory_of(1024, 2048, tmp_path / "printed")
    assert 20 < measured < announced  # two second moments of 8 MB each, and what is made of them


def each_site(width: int, tokens: int | None) -> float:
    many, two_sites = (
        memory_bound([width] * n, context=128, batch=2048, tokens=tokens) for n in (40, 41)
    )
    return two_sites - many


@pytest.mark.parametrize("width", [768, 4096, 8192])
def test_the_bound_grows_with_every_site_by_its_width(width):
    matrices = 4  # of ordinary tokens, first ones and both kinds of sinks
    assert 5 * matrices * width**2 < each_site(width, None) < (5 * matrices + 4) * width**2 + 2e8


def test_the_bound_knows_that_a_short_text_leaves_little():
    assert each_site(8192, 4096) < 0.7 * each_site(8192, None)
