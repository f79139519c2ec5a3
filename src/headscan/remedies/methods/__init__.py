"""The remedies; `headscan.remedies.REMEDIES` finds them by itself."""
