"""A training run under watch: measured as it goes, within a share of its time, with calibrated
alarms.
"""

from headscan.training.monitor.alarms import ALARMS, Alarm, AlarmRule
from headscan.training.monitor.families import FAMILIES, Family
from headscan.training.monitor.readings import TRACKERS, Reading, Tracker
from headscan.training.monitor.watch import Monitor, Watch

__all__ = [
    "ALARMS",
    "FAMILIES",
    "TRACKERS",
    "Alarm",
    "AlarmRule",
    "Family",
    "Monitor",
    "Reading",
    "Tracker",
    "Watch",
]
