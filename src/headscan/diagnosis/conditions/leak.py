"""The conditions of what hidden states give away (HS3..), and of the flow between tokens."""

from headscan.diagnosis.evidence import LeakedBits, ModelEvidence
from headscan.diagnosis.registry import Seen, condition
from headscan.leaks.findings import READABLE


@condition(
    "HS301",
    "leak",
    "States that give the prompt away",
    threshold=READABLE,
    known=True,
    unit="share of tokens read",
    lacks=("inversion",),
    sentence="Share of a prompt's tokens that exact search reads from the states of a middle "
    "block.",
    meaning="Anyone who has the states of one layer can recover the text: states need the text's "
    "protection.",
    source="Morris et al. 2023, arXiv:2310.06816; exact search: docs/inversion.md",
    todo="Protect states as the text itself is protected. headscan privacy measures how many "
    "bits a defence leaves, and its cost.",
    limits="One block and a few prompts were tried, with the weights known to the attacker. A "
    "prompt that was not recovered may still be recoverable.",
)
def readable_states(evidence: ModelEvidence, _earlier: list[ModelEvidence]) -> Seen | None:
    """Return the share of tokens that exact search read, where it was tried."""
    read = evidence.read
    if read is None:
        return None
    bits = evidence.bits
    return Seen(
        value=read.recovered,
        site=read.site,
        interval=read.interval,
        null=None if bits is None else bits.guessed,
        null_of="guessing without a state",
        sentence=f"Exact search recovers {read.recovered:.0%} of {read.tokens} tokens from the "
        f"states of {read.site} ({read.verdict}).",
        advice=f"Treat stored or shared states as text. {_defence_advice(bits)}",
    )


def _defence_advice(bits: LeakedBits | None) -> str:
    """Return what noise leaves of a token's bits, or the command that measures it."""
    if bits is None:
        return "headscan privacy measures what a defence leaves and costs."
    low, high = bits.told
    share = f"{low}% to {high}%" if low < high else f"{low}%"
    return (
        f"Noise of {bits.noise:g} rms still leaks {share} of a token's {bits.prior_bits:.1f} bits "
        "(headscan privacy measures other defences and their cost)."
    )


@condition(
    "HS302",
    "leak",
    "Text that shows through noise",
    threshold=0.5,
    known=True,
    unit="least share of a token's bits that leaks",
    sentence="Lower bound on the share of a token's bits that noisy states reveal.",
    meaning="Even with Gaussian noise that hurts the model, states reveal most of each token's "
    "information.",
    lacks=("bits", "inversion"),
    source="docs/leaks.md; bounds: Kolchinsky and Tracey 2017, arXiv:1706.02419",
    todo="Do not rely on noise that leaves the model usable: headscan privacy compares other "
    "defences (rounding, projection, permutation, rotation) by the bits they leave and the nats "
    "they cost.",
    limits="A lower bound, for this model's own expectation of the text as prior knowledge and "
    "for the likeliest candidates: more may leak, never less. One block and a few windows; "
    "the interval is wide.",
)
def text_through_noise(evidence: ModelEvidence, _earlier: list[ModelEvidence]) -> Seen | None:
    """Return the lower bound on the share of a token's bits, where bits were counted."""
    bits = evidence.bits
    if bits is None:
        return None
    interval_of_share = None
    if bits.interval is not None:
        low, high = bits.interval
        interval_of_share = (bits.share(low), bits.share(high))
    percent, _ = bits.told
    bound = " or more" if percent < 100 else ""
    return Seen(
        value=bits.lower / bits.prior_bits,
        site=bits.site,
        interval=interval_of_share,
        null=bits.guessed,
        null_of="tokens guessed without a state",
        sentence=f"With noise of {bits.noise:g} rms the states of {bits.site} still leak "
        f"{percent}%{bound} of a token's {bits.prior_bits:.1f} bits; the best attack recovers "
        f"{bits.named:.0%} of the tokens.",
    )


@condition(
    "HS303",
    "leak",
    "Tokens that know nothing of each other",
    threshold=0.01,
    least=False,
    heading="Flow",
    unit="movement by another token over that by its own",
    brings=("HS201", "HS202", "HS207"),
    source="docs/flow.md",
    of_text=False,
    lacks=("flow",),
    sentence="Movement of an output when another token is replaced, over that when its own is.",
    meaning="No information flows between tokens: attention is cut off or broken.",
    todo="Look at the attention: its mask, its output projection, a norm before it. headscan flow "
    "--cut attention,mlp shows which part carries what, site by site.",
    limits="A mean over positions of a few short prompts at the last block. Information that flows "
    "need not be used: headscan attribute examines one prediction.",
)
def unconnected_tokens(evidence: ModelEvidence, _earlier: list[ModelEvidence]) -> Seen | None:
    """Return how far another token moves an output over how far its own does, where measured."""
    flow = evidence.flow
    if flow is None:
        return None
    return Seen(
        value=flow.heard,
        site=flow.site,
        interval=flow.interval,
        null=flow.null,
        sentence=f"Replacing another token moves an output of {flow.site} {flow.heard:.2g} times "
        "as far as replacing its own.",
    )
