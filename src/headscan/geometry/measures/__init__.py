"""The measures of a cloud, one a file; `headscan.geometry.MEASURES` finds them by itself."""
