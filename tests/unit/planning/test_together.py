"""Settings that make room together where none does alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from draftproof.planning.assemble import Wish
from draftproof.planning.knobs import knobs
from draftproof.planning.memory import plan_memory, smallest
from draftproof.planning.together import Combination, together
from support.plans import CHAIN, DRAFT, GIB, TARGET, setup_of


def names(combination: Combination) -> set[str]:
    return {part.name for part in combination.parts}


def test_two_settings_make_room_where_neither_does(tmp_path: Path) -> None:
    """15 GiB of weights and a cache of 16: on 16 GiB both must shrink."""
    setup = setup_of(tmp_path, wish=Wish(memory=16 * GIB))
    assert plan_memory(setup).requests(131_072) == 0
    assert not [knob for knob in knobs(setup, 131_072) if knob.after and "parallelism" not in knob.name]
    found = together(setup, 131_072)
    assert names(found[0]) == {"cache dtype", "target weights"}
    assert {part.flag for part in found[0].parts} >= {"--kv-cache-dtype fp8"}
    assert found[0].requests == 1
    assert all(part.price for part in found[0].parts)


def test_where_one_setting_makes_room_nothing_is_combined(tmp_path: Path) -> None:
    assert together(setup_of(tmp_path), 8192) == (), "a request fits"
    eased = setup_of(tmp_path, wish=Wish(memory=16 * GIB))
    assert any(knob.after for knob in knobs(eased, 4096) if knob.name == "target weights")
    assert together(eased, 4096) == ()


def test_one_setting_further_than_it_is_shown_is_enough(tmp_path: Path) -> None:
    """Half of 2,048 requests, or of their rows, still takes too much for logits; fewer do not."""
    setup = setup_of(tmp_path, max_num_seqs=2048)
    bits = replace(setup.target, weights=setup.target.weights.rounded(4.5))  # which leaves no bits to turn
    whole = replace(setup, target=bits, kv_bytes=1)
    cramped = replace(whole, memory=smallest(replace(whole, max_num_seqs=256), 8192, 1).memory)
    assert not [knob for knob in knobs(cramped, 8192) if knob.after and "parallelism" not in knob.name]
    found = together(cramped, 8192)
    assert [names(each) for each in found] == [{"largest pass"}, {"concurrent requests"}]
    assert found[1].parts[0].change == "2048 to 1"


def test_more_devices_come_last_and_as_few_as_will_do(tmp_path: Path) -> None:
    """Six heads are shared by two devices and by no other even number, two layers make two stages at most."""
    target = TARGET | {
        "num_attention_heads": 6,
        "num_key_value_heads": 6,
        "head_dim": 128,
        "num_hidden_layers": 2,
    }
    setup = setup_of(tmp_path, target=target | {"intermediate_size": 100_000})
    shape = replace(setup.target, weights=setup.target.weights.rounded(4.5))
    least = replace(
        setup, target=shape, tensor_parallel=2, kv_bytes=1, max_num_seqs=1, max_batched_tokens=256
    )
    cramped = replace(setup, memory=int(1.02 * smallest(least, 131_072, 1).memory))
    assert not any(knob.after for knob in knobs(cramped, 131_072))
    found = together(cramped, 131_072)
    assert found
    assert found[0].parts[-1].change == "1 to 2 devices"
    assert len(found[0].parts) > 1


def test_where_nothing_works_nothing_is_named(tmp_path: Path) -> None:
    assert together(setup_of(tmp_path, "draftproof", wish=Wish(memory=GIB)), 131_072) == ()


@given(
    memory=st.integers(2, 60), context=st.integers(1000, 131_072), has_drafter=st.booleans(),
    engine=st.sampled_from(["vllm", "sglang", "trtllm", "llamacpp", "draftproof"]),
)  # fmt: skip
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_named_works_and_every_part_is_needed(
    memory: int, context: int, has_drafter: bool, engine: str, tmp_path: Path
) -> None:
    drafts: dict[str, Any] = {"speculation": CHAIN, "drafter": DRAFT} if has_drafter else {}
    setup = setup_of(tmp_path, engine, wish=Wish(memory=memory * GIB // 2), **drafts)
    found = together(setup, context)
    same_devices = [knob for knob in knobs(setup, context) if knob.after and "parallelism" not in knob.name]
    assert not (found and same_devices)
    for combination in found:
        assert combination.requests >= 1
        assert len(names(combination)) == len(combination.parts)
    several = [names(each) for each in found if len(each.parts) > 1]
    assert not [one for one in several for other in several if one < other], "a part of another one works"
