"""The probes of a scan, one a file; `headscan.geometry.PROBES` finds them by itself."""
