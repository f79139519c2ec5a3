"""Statements that no experiment here could turn, and why they are not tested."""

NOT_TESTED: tuple[tuple[str, str, str], ...] = (
    (
        "slides",
        "Headless models score higher on GLUE, LAMBADA and XNLI in less time.",
        "It takes 400 GPU hours a model: `headscan train bert --objective cwt`, `recover`, "
        "`headscan evaluate --tasks cola-finetuned,...`.",
    ),
    (
        "slides",
        "Headless pre-training is faster.",
        "Seconds on a shared processor decide nothing; "
        "`benchmarks/headless_step_of_a_small_bert_is_cheaper.py` times whole steps.",
    ),
    (
        "slides",
        "Of 100 % of the positions nearly all say of each word: do not predict.",
        "It follows from the count of the commonest word (S3); no text could turn it.",
    ),
    (
        "paper",
        "The published code minimises Frobenius's norm.",
        "It is a property of one version of another program.",
    ),
    (
        "paper",
        "The proxy S̃ᵀS̃ stands in for the Gram matrix of the words.",
        "A proxy has no bound of its own: its cosine was 0.91, with the square root 0.97 to 0.98 "
        "(an earlier run); `headscan ntp` uses the square root.",
    ),
    (
        "paper",
        "An embedding narrower than the vocabulary carries the geometry.",
        "It is a conjecture on every data set; `headscan_lab.theory.train_features` with a small "
        "width shows instances.",
    ),
    (
        "paper",
        "An MLP of eight times the parameters stays at CE - H of 1e-2.",
        "It is said of one MLP on one data set; another of another size on another text says "
        "nothing about it.",
    ),
    (
        "paper",
        "Trained autoregressively, short contexts converge first.",
        "It needs the 200 stories and 16 orders of appendix D.3.",
    ),
    (
        "article",
        "Attribution by both normalised measures combines their information; gradients are useful "
        "in larger models.",
        "The first is a definition; of the second no model is named. `headscan attribute` measures "
        "faithfulness.",
    ),
    (
        "article",
        "The pseudo-inverse of the embedding takes tokens back; another table gives odd tokens.",
        "Both follow from linear algebra: `--at 'block.0 embedding=random:0' --method "
        "indirect:decode_with=model` shows the second, a test holds both.",
    ),
    (
        "article",
        "Untrained self-attention alone gives the words of the prompt.",
        "The width decides: of 16 prompts of two random Llamas a tuned descent found 0.40 of the "
        "words at a width of 64, 0.52 at 256 and 0.56 at 512 (one model); the article's is 4,096 "
        "wide.",
    ),
    (
        "article",
        "The cosine as the loss, and the width of untrained blocks.",
        "Each is one command; no control at hand could tell the claim's cause from the "
        "optimiser's.",
    ),
    (
        "article",
        "Wrong answers are tokens that are unlikely in text.",
        "Nearly all tokens of a vocabulary are: a token drawn by chance is as rare (an earlier "
        "run).",
    ),
    (
        "article",
        "A raw attention module lets later tokens into earlier outputs.",
        "It follows from the missing mask; `headscan flow` shows it, a test holds it.",
    ),
    (
        "article",
        "The scaled one-hot target makes no difference.",
        "Both targets are one command (`--method direct:scale=10`) and both are tested; that two "
        "are equal has no bound.",
    ),
    (
        "article",
        "GPT-J, Llama-30b to 70b and Mistral, and depth and width among them.",
        "No such model is here; the command of each row runs on one.",
    ),
    (
        "article",
        "Trained mixers of 512 to 2,048 features, and transformers of their size.",
        "They are trained on two million stories for twelve hours; `headscan train mixer --size "
        "paper` does it.",
    ),
    (
        "article",
        "After 'go swish swish' GPT-2 predicts the word again.",
        "It is said of one prompt of GPT-2: `headscan attribute gpt2 --prompt 'The wipers on the "
        "bus go swish swish'`.",
    ),
    (
        "later",
        "Deep blocks, four bits, or noise of five per cent protect a text.",
        "Without noise an exact search finds everything at every depth (arXiv:2510.15511), so that "
        "nothing could turn it; `headscan privacy` gives bits with noise.",
    ),
    (
        "later",
        "Distinct prompts have distinct states in 8 bits, not always in 4 (arXiv:2511.14808).",
        "Its theorem (arXiv:2510.15511) leaves nothing to turn as computed; an earlier run found "
        "none in 8 bits.",
    ),
    (
        "later",
        "Models of characters are anisotropic too (arXiv:2401.12143).",
        "One model of 105 tokens is at hand; it stands in the row of S1.",
    ),
    (
        "later",
        "The average cosine of a layer goes with the norm of its mean vector.",
        "It is nearly an identity: the average cosine is the squared norm of the mean unit vector.",
    ),
    (
        "later",
        "Trivial patterns cannot be learned over large vocabularies (SpamLang), convergence is 16 "
        "times slower (arXiv:2603.10145).",
        "scripts/spamlang.py trains it; at V of 100,000 it needs a GPU for an hour.",
    ),
    (
        "later",
        "At equal loss a transformer collapses contexts of equal supports more than free features "
        "do (no paper says it).",
        "The data and the optimiser decide: independent code found 0.98 against 0.90 on "
        "TinyStories; here it is 0.96 against 0.95 to 0.97 (one piece of the shipped stories, 32 "
        "wide, gradient descent and Adam).",
    ),
    (
        "later",
        "Small models saturate late in training (arXiv:2404.07647); anisotropy jumps then.",
        "It needs the checkpoints of Pythia.",
    ),
    (
        "later",
        "Queries and keys lie along one direction (Q-Filters, arXiv:2503.02812).",
        "It needs models of long contexts.",
    ),
    (
        "later",
        "Orthants of a pretrained model are concepts (arXiv:2505.08348); structure comes before "
        "collapse (arXiv:2606.26749).",
        "The first needs a judge of concepts, the second a trained course of a larger model.",
    ),
    (
        "later",
        "Masked mixers are better at retrieval (arXiv:2409.01482).",
        "It needs trained mixers and transformers of one compute.",
    ),
)
"""Document, statement, and why it is not tested."""
