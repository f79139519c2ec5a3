"""The laboratory's probes, pages, optimisers and regularisers, which register when imported.

The entry point of the group `headscan.plugins` names this module.
"""

import headscan_lab.measures.collapse
import headscan_lab.measures.frequency
import headscan_lab.measures.zipf
import headscan_lab.pages.evaluation
import headscan_lab.pages.reproduce
import headscan_lab.pages.tournament
import headscan_lab.tournament.optimisers
import headscan_lab.tournament.regularisers  # noqa: F401 - modules register what they define
