"""A training run under watch: measured as it goes, within a share of its time, with calibrated alarms."""

from headscan.training.monitor.alarms import ALARMS, Alarm, AlarmRule
from headscan.training.monitor.watch import Monitor, Watch

__all__ = ["ALARMS", "Alarm", "AlarmRule", "Monitor", "Watch"]
