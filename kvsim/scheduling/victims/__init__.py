"""Who loses its room when memory runs out, each rule in a file of its own."""

from __future__ import annotations

from collections.abc import Callable

from kvsim.protocols import VictimRule
from kvsim.scheduling.victims.fewest_generated import FewestGenerated
from kvsim.scheduling.victims.largest import Largest
from kvsim.scheduling.victims.last import Last
from kvsim.scheduling.victims.lowest_priority import LowestPriority

VICTIMS: dict[str, Callable[[], VictimRule]] = {
    "last": Last,
    "lowest-priority": LowestPriority,
    "largest": Largest,
    "fewest-generated": FewestGenerated,
}
