"""Pages, tables and plots from saved results; this package reads plain data only and never loads a model.

- `scan_page(document, arrays)`: the HTML page of a scan
- `scan_table(document)`: the same in short, for the terminal
- `plots`: plotly figures; `page.render`: the shell for pages of other kinds
"""

from __future__ import annotations

from headscan.report.attribute import attribute_page, attribute_plot, attribute_snippet, attribute_table
from headscan.report.evaluation import evaluation_page, evaluation_plot, evaluation_table
from headscan.report.flow import flow_page, flow_plot, flow_table
from headscan.report.gradient import gradient_page, gradient_plot, gradient_table
from headscan.report.invert import (
    invert_page,
    invert_plot,
    invert_table,
    privacy_page,
    privacy_plot,
    privacy_table,
)
from headscan.report.ntp import ntp_page, ntp_plot, ntp_table
from headscan.report.plots import scan_plot
from headscan.report.reproduce import reproduce_page, reproduce_plot, reproduce_table
from headscan.report.scan import scan_page
from headscan.report.terminal import scan_table
from headscan.report.train import train_page, train_plot, train_table

__all__ = [
    "attribute_page",
    "attribute_plot",
    "attribute_snippet",
    "attribute_table",
    "evaluation_page",
    "evaluation_plot",
    "evaluation_table",
    "flow_page",
    "flow_plot",
    "flow_table",
    "gradient_page",
    "gradient_plot",
    "gradient_table",
    "invert_page",
    "invert_plot",
    "invert_table",
    "ntp_page",
    "ntp_plot",
    "ntp_table",
    "privacy_page",
    "privacy_plot",
    "privacy_table",
    "reproduce_page",
    "reproduce_plot",
    "reproduce_table",
    "scan_page",
    "scan_plot",
    "scan_table",
    "train_page",
    "train_plot",
    "train_table",
]
