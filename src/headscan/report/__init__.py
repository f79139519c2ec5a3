"""Pages, tables and plots from saved results; this package reads plain data only and never loads a model.

- `scan_page(document, arrays)`: the HTML page of a scan
- `scan_table(document)`: the same in short, for the terminal
- `plots`: plotly figures; `page.render`: the shell for pages of other kinds
"""

from __future__ import annotations

from headscan.report.plots import scan_plot
from headscan.report.scan import scan_page
from headscan.report.terminal import scan_table

__all__ = ["scan_page", "scan_plot", "scan_table"]
