"""What a proposer with a model of its own may use: the target, its cache, memory, and the loaded drafters.

Made once by the engine and handed to the registry. Requests whose configurations name the same drafter share its
weights; a drafter that no proposer holds any more is freed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from draftproof.kv.budget import ByteBudget
from draftproof.kv.cache import KVCache

if TYPE_CHECKING:
    from draftproof.models.loading import LoadedModel
    from draftproof.proposers.drafter import Drafter

LoadModel = Callable[..., "LoadedModel"]
"""`models.loading.load_model`, or a double of it."""


@dataclass(slots=True)
class Resources:
    """target        the model that verifies
    cache            its keys and values, whose uncommitted slots `self` writes to
    budget           what the blocks of a drafter's own cache are drawn from, as those of the target's are
    max_len          most tokens of a request, prompt and output
    num_blocks       blocks of the target's cache: a drafter's own cache never holds more
    available_bytes  asks how much memory a drafter may take, weights and cache together
    reserves_weights whether a drafter's weights come out of `budget` as well, because all memory is limited
    shares_prefixes  whether a drafter's cache keeps computed prefixes for later requests of the same scope
    load             loads a model
    reload           loads the target in another precision
    drafters         those that are loaded, by where they lie and precision
    """

    target: LoadedModel
    cache: KVCache
    budget: ByteBudget
    max_len: int
    num_blocks: int
    available_bytes: Callable[[], int]
    reserves_weights: bool
    shares_prefixes: bool
    load: LoadModel
    reload: Callable[[LoadedModel, str], LoadedModel]
    drafters: WeakValueDictionary[tuple[str, str], Drafter] = field(default_factory=WeakValueDictionary)

    def describe(self) -> list[dict[str, Any]]:
        """The loaded drafters, for `Engine.describe`."""
        return [drafter.describe() for drafter in self.drafters.values()]
