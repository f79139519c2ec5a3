"""Earlier names of headscan.statistics.uncertainty."""

from headscan.statistics.uncertainty import StandardError as Deviation  # noqa: F401
from headscan.statistics.uncertainty import bounded as bounded
from headscan.statistics.uncertainty import clustered as of_items  # noqa: F401
from headscan.statistics.uncertainty import enough_documents as several  # noqa: F401
from headscan.statistics.uncertainty import jackknife as left_out  # noqa: F401
from headscan.statistics.uncertainty import student as student
from headscan.statistics.uncertainty import wilson as wilson
from headscan.statistics.uncertainty import with_intervals as with_intervals
