"""Two threads that use one model get the right numbers: one works with it, the other waits."""

import threading
from collections.abc import Callable
from typing import Any

import torch

import headscan
from headscan.model import Lens

ROUNDS = 6


def together(*calls: Callable[[], Any]) -> list[Any]:
    """Return what calls return that run at the same time; raise what one raises."""
    results: list[Any] = [None] * len(calls)
    start = threading.Barrier(len(calls))

    def work(number: int) -> None:
        start.wait()
        try:
            results[number] = calls[number]()
        except BaseException as error:
            results[number] = error

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def scan(model: Lens) -> list[float]:
    options = {"context": 16, "max_tokens": 320, "sites": "block.*"}
    result = headscan.scan(model, "stories", **options)
    return [row["average_cosine"] for row in result.document["sites"]]


def test_scans_of_one_live_model_are_right():
    loaded = Lens.load("gpt-vanilla-early")
    expected = scan(loaded)
    same_model = Lens(loaded.model, loaded.tokenizer)
    assert together(lambda: scan(loaded), lambda: scan(same_model)) == [expected, expected]


def test_passes_of_one_lens_are_right():
    lens = Lens.load("gpt-vanilla-early")
    ids = [torch.randint(0, 300, (4, 12), generator=torch.manual_seed(seed)) for seed in (1, 2)]
    expected = [lens.run(rows, sites="block.2")["block.2"] for rows in ids]

    def passes(number: int) -> bool:
        for _ in range(ROUNDS):
            states = lens.run(ids[number], sites="block.2")["block.2"]
            if not torch.equal(states, expected[number]):
                return False
        return True

    assert together(lambda: passes(0), lambda: passes(1)) == [True, True]


def test_a_users_own_pass_beside_a_scan_disturbs_nothing():
    lens = Lens.load("gpt-vanilla-early")
    model = lens.model
    ids = torch.randint(0, 300, (2, 8), generator=torch.manual_seed(0))
    with torch.no_grad():
        logits = model(input_ids=ids).logits
    expected = scan(lens)
    ended = threading.Event()

    def scan_once() -> list[float]:
        try:
            return scan(Lens(model, lens.tokenizer))  # its trial passes are disturbed, too
        finally:
            ended.set()

    def own_passes() -> bool:
        equal = True
        while not ended.is_set():
            with torch.no_grad():
                equal = equal and torch.equal(model(input_ids=ids).logits, logits)
        return equal

    assert together(scan_once, own_passes) == [expected, True]


def test_a_patch_of_one_thread_is_not_in_the_numbers_of_another():
    lens = Lens.load("gpt-vanilla-early")
    ids = torch.randint(0, 300, (4, 12), generator=torch.manual_seed(3))
    expected = lens.run(ids, sites="block.2")["block.2"]
    patching = threading.Event()

    def patched() -> bool:
        with lens.patch({"block.1": torch.zeros_like}):
            patching.set()
            zeros = [lens.run(ids, sites="block.1")["block.1"] for _ in range(ROUNDS)]
        return not any(states.any() for states in zeros)

    def read() -> bool:
        patching.wait()
        states = [lens.run(ids, sites="block.2")["block.2"] for _ in range(ROUNDS)]
        return all(torch.equal(rows, expected) for rows in states)

    assert together(patched, read) == [True, True]


def test_two_verbs_on_one_live_model_are_right():
    lens = Lens.load("gpt-vanilla-early")

    def attribute() -> Any:
        result = headscan.attribute(lens, prompt="Once upon a time there was")
        return result.document["scores"]

    expected = [attribute(), scan(lens)]
    assert together(attribute, lambda: scan(lens)) == expected
