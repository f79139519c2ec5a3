"""The monitor of a training run: measurements within a share of its time, with alarms."""

from headscan.training.monitor.alarms import ALARMS, Alarm, AlarmRule
from headscan.training.monitor.callback import Monitor
from headscan.training.monitor.families import FAMILIES, Family
from headscan.training.monitor.readings import Reading
from headscan.training.monitor.trackers import TRACKERS, Tracker
from headscan.training.monitor.watch import Watch

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
