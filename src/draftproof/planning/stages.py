"""Pipelines: how engines cut a model's layers into stages, and the setup of each stage.

Called by the engines' rules, `assemble` and `memory`. A stage's devices hold its layers with their caches; the first
holds the embedding besides, the last the output matrix, the drafter and the rows of logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from draftproof.checkpoints.geometry import Geometry
from draftproof.core.errors import DraftproofError
from draftproof.planning.setup import EngineMemory, Setup, Stage


def extra_from_the_end(num_layers: int, num_stages: int) -> tuple[int, ...]:
    """Even shares; layers that are left go to the last but one stage, the one before it, and so on (vLLM 0.33,
    `get_pp_indices`)."""
    even, left = divmod(num_layers, num_stages)
    return tuple(even + (2 <= num_stages - index <= left + 1) for index in range(num_stages))


def extra_at_the_end(num_layers: int, num_stages: int) -> tuple[int, ...]:
    """Even shares; layers that are left go to the last stages (SGLang 0.5.23, `get_pp_indices`)."""
    even, left = divmod(num_layers, num_stages)
    return tuple(even + (index >= num_stages - left) for index in range(num_stages))


def extra_at_the_start(num_layers: int, num_stages: int) -> tuple[int, ...]:
    """Even shares; layers that are left go to the first stages (TensorRT-LLM 1.3, `Mapping.pp_layers`)."""
    even, left = divmod(num_layers, num_stages)
    return tuple(even + (index < left) for index in range(num_stages))


def cut_by_engine(rules: EngineMemory, shape: Geometry, num_stages: int) -> tuple[int, ...]:
    """Layers of each stage; numbered layers that consist of several are not parted."""
    assert rules.stages is not None
    return tuple(
        num * shape.sublayers for num in rules.stages(shape.num_layers // shape.sublayers, num_stages)
    )


def checked_cuts(cuts: Sequence[int], num_layers: int, num_stages: int, field: str) -> tuple[int, ...]:
    """Raises DP001 for cuts that are not of so many layers and stages, as the engines do."""
    if len(cuts) != num_stages or sum(cuts) != num_layers or min(cuts, default=0) < 0:
        raise DraftproofError(
            "DP001",
            field,
            ",".join(map(str, cuts))[:80],
            f"{num_stages} numbers of layers that make {num_layers} together",
            "Count the layers of each stage again.",
        )
    return tuple(cuts)


def per_stage(setup: Setup) -> tuple[Setup, ...]:
    """A setup for each stage; the setup itself where there is no pipeline, or it is of a stage already."""
    if not setup.cuts or setup.stage is not None:
        return (setup,)
    assert setup.parts is not None
    parts, whole = setup.parts(), setup.target
    found, first = [], 0
    for index, num in enumerate(setup.cuts):
        end = first + num
        own = replace(whole, layers=whole.layers[first:end], weights=parts.of_stage(first, end))
        stage = Stage(index=index, cuts=setup.cuts, layers=whole.layers)
        found.append(replace(setup, target=own, stage=stage))
        first = end
    return tuple(found)
