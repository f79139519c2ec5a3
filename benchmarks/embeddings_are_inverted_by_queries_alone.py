"""Embeddings of sentences are inverted by queries alone: a language model, a beam, no weights and
no training.

python benchmarks/embeddings_are_inverted_by_queries_alone.py ENCODER LANGUAGE SENTENCES [COUNT]
[JUDGE] [JOINT]

ENCODER and LANGUAGE are models (the encoder is called, never opened by the attack), SENTENCES a CSV
file with one in its first column, of which COUNT (8) are taken evenly; JUDGE is another encoder,
which says how alike the meanings are. JOINT sentences (0) are inverted with the weights too, by the
exact joint search. Printed: tokens in any order, by the encoder's tokenizer, with 95 % intervals;
cosines; texts encoded; processor seconds.
"""

import csv
import sys
import time
from typing import Any

from _table import needs

from headscan.inversion import invert
from headscan.inversion.methods import Joint
from headscan.leaks.query_inversion import QueryInversion, encoder_of, recovered
from headscan.model import Lens


def _token_ids(tokenizer: Any, texts: list[str]) -> list[list[int]]:
    return [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]


def main() -> None:
    if len(sys.argv) < 4:
        needs("an encoder, a language model and a file of sentences")
    name, language, file, *options = sys.argv[1:]
    count = int(options[0]) if options else 8
    judge = options[1] if options[1:] else name
    joint = int(options[2]) if options[2:] else 0
    with open(file, encoding="utf-8", newline="") as lines:
        sentences = list(
            dict.fromkeys(
                row[0] for row in csv.reader(lines) if row and 6 <= len(row[0].split()) <= 16
            )
        )
    texts_read = sentences[:: max(1, len(sentences) // count)][:count]
    lens = Lens.load(name)
    encode = encoder_of(lens)
    tokenizer = lens.require_tokenizer()
    start = time.process_time()
    attack = QueryInversion(encode, Lens.load(language), length=20)
    print(
        f"common words encoded: {len(attack.words):,}, {time.process_time() - start:.0f} s",
        flush=True,
    )
    answers = []
    for text, target in zip(texts_read, encode(texts_read), strict=True):
        start = time.process_time()
        queries_before = attack.queries
        answers.append(attack(target))
        seconds = time.process_time() - start
        queries = attack.queries - queries_before
        print(f"{text!r} -> {answers[-1]!r} ({queries:,} queries, {seconds:.0f} s)", flush=True)
    judged = encoder_of(Lens.load(judge))
    rows = recovered(
        "beam",
        _token_ids(tokenizer, texts_read),
        _token_ids(tokenizer, answers),
        judged(texts_read),
        judged(answers),
        attack.queries,
    )
    for row in rows:
        ends = "" if row.interval is None else f"[{row.interval[0]:.2f}, {row.interval[1]:.2f}]"
        print(f"{row.setting}: {row.quantity} {row.value:.2f} {ends} of {row.count}")
    for text in texts_read[:joint]:
        start = time.process_time()
        result = invert(lens, text, given="embedding", method=Joint(budget=60_000))
        seconds = time.process_time() - start
        accuracy = f"{result.token_accuracy:.0%} of its tokens in their places"
        print(f"joint search, {text!r}: {accuracy}, {result.verdict}, {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
