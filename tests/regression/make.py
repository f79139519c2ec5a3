"""Make the file of numbers: `OMP_NUM_THREADS=1 python -m tests.regression.make`, from the
repository's root.

It was made once, with headscan 0.1 (commit 02275fc and the colours of 3c0408d), so that whoever
rebuilds a part can see that its numbers stayed. Making it again would only prove that the program
agrees with itself. Where a number is corrected on purpose, name it with the reason in `CORRECTED`
of test_numbers.py instead.
"""

import sys
import time

from tests.regression.cases import CASES
from tests.regression.flat import ARRAYS, NUMBERS, write


def main() -> None:
    """Run every case and keep what it says."""
    numbers = {}
    for name, run in CASES.items():
        begun = time.perf_counter()
        case_numbers = run()
        numbers |= case_numbers
        print(
            f"{name}: {len(case_numbers)} numbers, {time.perf_counter() - begun:.1f} s",
            file=sys.stderr,
        )
    write(numbers)
    print(f"{NUMBERS.stat().st_size + ARRAYS.stat().st_size} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
