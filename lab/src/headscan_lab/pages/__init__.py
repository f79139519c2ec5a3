"""The pages of the laboratory's results; their templates and styles lie in this package."""

from headscan.report.kit.html import TEMPLATE_PACKAGES

if "headscan_lab" not in TEMPLATE_PACKAGES:
    TEMPLATE_PACKAGES.append("headscan_lab")
