"""log_likelihood, LAMBADA, BLiMP and bits a byte beside lm-evaluation-harness (pip install lm_eval), item by item.

    python lab/scripts/compare_with_the_harness.py --sets ../shared/assets/text MODEL [MODEL ...] [--limit 100]

The harness's own model class scores the same requests, as its LAMBADA, BLiMP and rolling tasks make them. Prints the largest
difference of a log-likelihood in nats and ends with status 1 where one is above 1e-5 of its size (at least of 1 nat).
"""

import argparse
import math
import sys
from pathlib import Path

import numpy as np
from headscan_lab.evaluation.likelihood import log_likelihood
from headscan_lab.evaluation.tasks import blimp_hits, lambada, read_blimp, read_lambada
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

from headscan import Lens
from headscan.training.recovery import bytes_of_tokens, perplexity

WITHIN = 1e-5


def main() -> int:
    """The comparison; 1 where a difference is too large."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--sets", type=Path, required=True)
    parser.add_argument("--limit", type=int, default=100)
    options = parser.parse_args()
    passages = read_lambada(options.sets / "lambada" / "lambada_test.jsonl")[: options.limit]
    paradigms = dict(list(read_blimp(options.sets / "blimp" / "BLiMP.zip", each=5).items())[:20])
    worst = 0.0
    for name in options.models:
        lens = Lens.load(name)
        model, tokenizer = lens.model.eval(), lens.require_tokenizer()
        length = getattr(model.config, "max_position_embeddings", 512)
        theirs = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=16, max_length=length)

        def ask(pairs, kind="loglikelihood", theirs=theirs):
            return getattr(theirs, kind)([Instance(kind, {}, pair, i) for i, pair in enumerate(pairs)], disable_tqdm=True)

        def compared(what, pairs, name=name, model=model, tokenizer=tokenizer, length=length, ask=ask) -> float:
            scores, greedy = log_likelihood(model, tokenizer, pairs, context=length)
            expected = ask(pairs)
            values = np.array([value for value, _ in expected])
            apart = np.abs(scores - values) / np.maximum(1, np.abs(values))
            same = int((greedy == np.array([found for _, found in expected])).sum())
            print(f"{name}: {what}: {len(pairs)} items, largest difference {apart.max():.1e}, greedy equal in {same}")
            return float(apart.max()) if same == len(pairs) else math.inf

        split = [passage.strip().rpartition(" ") for passage in passages]
        worst = max(worst, compared("LAMBADA", [(given, " " + word) for given, _, word in split]))
        worst = max(worst, compared("spaces at the end", [(given + "  ", word) for given, _, word in split[:20]]))
        worst = max(worst, compared("too long", [((given + " ") * 20, word) for given, _, word in split[:5]]))
        sentences = [("", sentence) for pairs in paradigms.values() for pair in pairs for sentence in pair]
        worst = max(worst, compared("BLiMP", sentences))
        # The metrics of the tasks, from the harness's likelihoods.
        answers = ask([(given, " " + word) for given, _, word in split])
        ours = lambada(model, tokenizer, passages, context=length)
        nats = -float(np.mean([value for value, _ in answers]))
        worst = max(worst, abs(ours["nats_per_word"] - nats), abs(ours["accuracy"] - np.mean([hit for _, hit in answers])))
        judged = np.array([value for value, _ in ask(sentences)]).reshape(-1, 5, 2)
        mine = [hits.mean() for hits in blimp_hits(model, tokenizer, paradigms, context=length).values()]
        worst = max(worst, float(np.abs((judged[..., 0] > judged[..., 1]).mean(1) - mine).max()))
        # Bits a byte of a text that fits one window, as the harness has its tokens (before those of Llama two starts).
        text = passages[0]
        ids = [theirs.prefix_token_id, *theirs.tok_encode(text)][: length + 1]
        (rolled,) = ask([(text,)], "loglikelihood_rolling")
        read, size = perplexity(model, np.array([ids]), tokenizer), len(text.encode())
        counted = int(bytes_of_tokens(tokenizer)[ids[1:]].sum())  # SentencePiece writes a space before a text
        ours_bits, bits = read.bits_per_byte * counted / size, -rolled / math.log(2) / size
        worst = max(worst, abs(ours_bits - bits))
        print(f"{name}: bits a byte of {size} bytes ({counted} by its tokens): {ours_bits:.6f}, the harness {bits:.6f}")
    print(f"largest difference of all {worst:.1e}")
    return int(worst > WITHIN)


if __name__ == "__main__":
    sys.exit(main())
