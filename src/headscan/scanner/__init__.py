"""The scan: one pass over the text, with every site, measure and probe."""

from headscan.scanner.result import ScanResult
from headscan.scanner.run import scan
from headscan.scanner.selection import choose, ordered_measures, ordered_probes

__all__ = ["ScanResult", "choose", "ordered_measures", "ordered_probes", "scan"]


def __dir__() -> list[str]:
    return __all__
