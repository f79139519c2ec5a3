"""The scan: sources and statistics strung together; one pass, every site, every measure and probe."""

from headscan.scanner.result import ScanResult
from headscan.scanner.run import scan
from headscan.scanner.settings import choose, ordered_measures, ordered_probes

__all__ = ["ScanResult", "choose", "ordered_measures", "ordered_probes", "scan"]


def __dir__() -> list[str]:
    return __all__
