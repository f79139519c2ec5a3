"""The probes of a scan, one family a file; importing this package registers all of them, in the order of the page."""

from headscan.geometry.probes import (  # noqa: I001  the order is that of the page
    sites,
    shape,
    zipf,
    head,
    attention,
)

__all__ = ["attention", "head", "shape", "sites", "zipf"]
