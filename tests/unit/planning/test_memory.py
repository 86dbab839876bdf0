"""The plan of memory: parts, pages, engines' rules, what is smallest, and what each setting costs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.checkpoints.layers import KeyValues, Latent
from draftproof.checkpoints.states import RunningState
from draftproof.configs.speculation import Speculation, Tree
from draftproof.core.errors import DraftproofError
from draftproof.planning.assemble import Wish
from draftproof.planning.chart import svg_chart, text_chart
from draftproof.planning.engines import RULES, memory_rules
from draftproof.planning.knobs import knobs
from draftproof.planning.memory import contexts_up_to, curve, plan_memory, smallest, without_speculation
from draftproof.planning.paging import CachedLayer, Group, Pool, cached_layers, plain_pool
from draftproof.planning.setup import Allowances, Certainty, Setup
from support.plans import CHAIN, DRAFT, GIB, HEAD, TARGET, setup_of

TOKEN_BYTES = 32 * 8 * 128 * 2 * 2
"""Of the target: layers × heads × length × keys and values × bytes."""
DRAFT_TOKEN_BYTES = 16 * 8 * 64 * 2 * 2
MTP = TARGET | {"model_type": "mimo", "num_nextn_predict_layers": 1}


def test_layers_become_bytes_per_token_and_per_request() -> None:
    layers = (
        KeyValues(8, 128, 128),
        KeyValues(8, 128, 128, window=512),
        Latent(512, 64),
        RunningState(100, 20),
    )
    found = cached_layers(layers, 2, 4, lambda state: 2 * (state.state_elements + state.conv_elements))
    assert found == (
        CachedLayer(2 * 256 * 2),
        CachedLayer(2 * 256 * 2, 512),
        CachedLayer(576 * 2),
        CachedLayer(0, None, 60),
    )
    assert cached_layers(layers[:1], 2, 16, lambda state: 0)[0].token_bytes == 256 * 2, (
        "a device has at least one head"
    )


def test_pages_are_whole_and_windows_end() -> None:
    pool = Pool((Group(16, 1600), Group(16, 160, window=100, extra_pages=1)), state_bytes=7)
    assert pool.request_bytes(17) == 2 * 1600 + 3 * 160 + 7
    assert pool.request_bytes(1000) == 63 * 1600 + 8 * 160 + 7, "99 tokens in 7 pages, and one for the offset"
    assert pool.token_bytes == 100
    assert pool.num_requests(3 * pool.request_bytes(1000), 1000) == 3


@given(
    st.integers(1, 64),
    st.lists(st.tuples(st.integers(1, 4096), st.none() | st.integers(1, 9000)), min_size=1, max_size=5),
    st.integers(1, 20_000), st.integers(1, 2000), st.integers(0, 2**40), st.integers(0, 2**34),
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_more_memory_never_holds_fewer_and_longer_never_more(
    page: int, layers: list[tuple[int, int | None]], context: int, more: int, memory: int, extra: int
) -> None:
    cached = [CachedLayer(size, window) for size, window in layers]
    pool = plain_pool(cached, page, keeps_windows=True, in_flight=0)
    fits = pool.num_requests(memory, context)
    assert pool.num_requests(memory + extra, context) >= fits
    assert pool.num_requests(memory, context + more) <= fits
    assert fits * pool.request_bytes(context) <= memory
    whole = plain_pool(cached, page, keeps_windows=False, in_flight=0)
    slack = page * sum(size for size, _ in layers)
    assert pool.request_bytes(context) <= whole.request_bytes(context) + slack, (
        "a window saves, but for one page"
    )


def test_parts_of_a_plan_with_a_draft_model(tmp_path: Path) -> None:
    setup = setup_of(tmp_path, speculation=CHAIN, drafter=DRAFT)
    plan = plan_memory(setup)
    parts = {item.name: item for item in plan.items}
    assert parts["target weights"].num_bytes == 2 * 8_030_261_248
    assert parts["target weights"].certainty is Certainty.COMPUTED
    assert parts["drafter weights"].num_bytes == setup.drafter.weights.num_bytes(2)  # type: ignore[union-attr]
    rows = 256 * 6
    assert parts["logits to verify"].num_bytes == rows * 128256 * 2 + min(GIB, rows * 128256 * 4)
    assert plan.pool.token_bytes == TOKEN_BYTES + DRAFT_TOKEN_BYTES
    assert plan.lookahead == 5
    held = sum(item.num_bytes for item in plan.items)
    assert plan.cache_bytes == int(24 * GIB * 0.92) - held
    assert plan.request_bytes(1000) == -(-1005 // 16) * 16 * (TOKEN_BYTES + DRAFT_TOKEN_BYTES)


def test_assumptions_are_labelled_and_can_be_set(tmp_path: Path) -> None:
    plan = plan_memory(setup_of(tmp_path))
    assumed = {item.name for item in plan.items if item.certainty is Certainty.ASSUMPTION}
    assert assumed == {"graphs", "runtime"}
    wish = Wish(memory=24 * GIB, allowances=Allowances(runtime=1, graphs=2, activations=3))
    parts = {item.name: item.num_bytes for item in plan_memory(setup_of(tmp_path, wish=wish)).items}
    assert (parts["runtime"], parts["graphs"], parts["activations"]) == (1, 2, 3)


def test_probabilistic_drafts_keep_their_probabilities(tmp_path: Path) -> None:
    drawing = replace(CHAIN, draft_sampling="probabilistic")
    for engine, element_bytes in (("vllm", 2), ("sglang", 4)):
        setup = setup_of(tmp_path, engine, drawing, DRAFT, max_num_seqs=64, memory_fraction=0.8)
        parts = {item.name: item.num_bytes for item in plan_memory(setup).items}
        assert parts["draft probabilities"] == 64 * 5 * 128256 * element_bytes
    greedy = plan_memory(setup_of(tmp_path, speculation=CHAIN, drafter=DRAFT, max_num_seqs=64))
    assert "draft probabilities" not in {item.name for item in greedy.items}


@pytest.mark.parametrize(
    ("engine", "said", "levels", "draft_tokens", "branching"),
    [
        ("sglang", Speculation(method="ngram"), 1, 11, 10),
        ("sglang", Speculation(method="ngram", tree=Tree(num_nodes=7)), 1, 7, 10),
        ("sglang", Speculation(method="ngram", tree=Tree(branching=4, num_nodes=15)), 4, 15, 4),
        ("sglang", Speculation(method="draft_model"), 3, 3, 1),
        ("llamacpp", Speculation(method="draft_model"), 3, 3, 1),
        ("trtllm", Speculation(method="eagle3", tree=Tree(depth=6, branching=10)), 6, 60, 10),
        ("trtllm", Speculation(method="eagle3", tree=Tree(depth=6, branching=10, num_nodes=20)), 6, 20, 10),
    ],
)
def test_what_nobody_says_is_planned_as_the_engine_takes_it(
    tmp_path: Path, engine: str, said: Speculation, levels: int, draft_tokens: int, branching: int
) -> None:
    setup = setup_of(tmp_path, engine, said, {"ngram": None, "eagle3": HEAD}.get(said.method, DRAFT))
    assert (setup.levels, setup.draft_tokens, setup.branching) == (levels, draft_tokens, branching)


def test_a_head_is_divided_as_the_target_is_whatever_is_set(tmp_path: Path) -> None:
    for drafter, method, ranks in ((HEAD, "eagle3", 4), (DRAFT, "draft_model", 1)):
        said = Speculation(method=method, depth=5, draft_tensor_parallel=1)  # type: ignore[arg-type]
        assert setup_of(tmp_path, "vllm", said, drafter, tensor_parallel=4).draft_tensor_parallel == ranks


def test_tensor_parallelism_divides_weights_and_heads(tmp_path: Path) -> None:
    one, four = setup_of(tmp_path), setup_of(tmp_path, tensor_parallel=4)
    assert plan_memory(four).items[0].num_bytes == -(-plan_memory(one).items[0].num_bytes // 4)
    assert plan_memory(four).pool.token_bytes == TOKEN_BYTES / 4
    divided = plan_memory(four).items[0]
    assert divided.certainty is Certainty.ESTIMATE
    assert plan_memory(one).items[0].certainty is not Certainty.ESTIMATE
    alone = replace(CHAIN, draft_tensor_parallel=1)
    whole = plan_memory(setup_of(tmp_path, speculation=alone, drafter=DRAFT, tensor_parallel=4))
    assert whole.pool.token_bytes == TOKEN_BYTES / 4 + DRAFT_TOKEN_BYTES, (
        "a drafter on one device is there whole"
    )


def test_heads_and_prediction_layers(tmp_path: Path) -> None:
    head = plan_memory(setup_of(tmp_path, speculation=Speculation(method="eagle3", depth=3), drafter=HEAD))
    assert head.pool.token_bytes == TOKEN_BYTES * 33 / 32
    mtp = plan_memory(setup_of(tmp_path, speculation=Speculation(method="mtp"), target=MTP))
    assert mtp.setup.levels == 1
    assert mtp.pool.token_bytes == TOKEN_BYTES * 33 / 32
    own = plan_memory(setup_of(tmp_path, "draftproof", speculation=Speculation(method="self", depth=4)))
    assert own.pool.token_bytes == TOKEN_BYTES, "it drafts in the target's own cache"
    assert own.items[1].num_bytes == round(8_030_261_248 * 0.5625)


@pytest.mark.parametrize("method", ["draft_model", "self"])
@pytest.mark.parametrize(
    ("precision", "bits"), [(None, 4.5), ("auto", 4.5), ("int4", 4.5), ("int8", 8.5), ("native", 16)]
)
def test_our_own_engine_rounds_a_drafter_as_it_does(
    tmp_path: Path, method: str, precision: str | None, bits: float
) -> None:
    said = Speculation(method=method, depth=4, draft_weights=precision)
    drafter = DRAFT if method == "draft_model" else None
    setup = setup_of(tmp_path, "draftproof", speculation=said, drafter=drafter)
    assert setup.drafter is not None
    expected = setup.drafter.num_parameters * bits / 8
    assert plan_memory(setup).items[1].num_bytes == pytest.approx(expected, rel=1e-6)
    if drafter is not None:  # no other engine does
        other = setup_of(tmp_path / "other", speculation=replace(said, draft_weights=None), drafter=drafter)
        assert plan_memory(other).items[1].num_bytes == pytest.approx(
            setup.drafter.num_parameters * 2, rel=1e-6
        )


def test_look_up_reserves_nothing(tmp_path: Path) -> None:
    plan = plan_memory(setup_of(tmp_path, speculation=Speculation(method="ngram", depth=8)))
    assert plan.lookahead == 0
    assert [item.name for item in plan.items if "draft" in item.name] == []
    assert plan.pool == plan_memory(setup_of(tmp_path)).pool


@pytest.mark.parametrize(
    ("speculation", "page", "expected"),
    [
        (Speculation(method="eagle3", depth=3), 1, 2 * 4),
        (Speculation(method="eagle3", tree=Tree(depth=5, branching=4, num_nodes=15)), 1, 2 * 20),
        (Speculation(method="eagle3", tree=Tree(depth=3, branching=2, num_nodes=23)), 1, 2 * 24),
        (Speculation(method="eagle3", tree=Tree(depth=5, branching=4, num_nodes=15)), 16, 2 * 32 * 4),
    ],
)
def test_sglang_reserves_for_steps_and_branches(
    speculation: Speculation, page: int, expected: int, tmp_path: Path
) -> None:
    setup = setup_of(tmp_path, "sglang", speculation, HEAD, block_size=page)
    assert plan_memory(setup).lookahead == expected
    assert setup.max_num_seqs == 48


def test_sglang_takes_draft_layers_to_be_as_large_as_the_targets(tmp_path: Path) -> None:
    plan = plan_memory(setup_of(tmp_path, "sglang", CHAIN, DRAFT))
    assert plan.pool.token_bytes == TOKEN_BYTES * (1 + 16 / 32)
    large = DRAFT | {"num_hidden_layers": 4, "num_key_value_heads": 32}
    warned = setup_of(tmp_path, "sglang", CHAIN, large)
    assert any("its pool is larger than planned" in text for text in warned.rules.warnings(warned))


def test_a_static_fraction_must_leave_room_for_passes(tmp_path: Path) -> None:
    tight = plan_memory(setup_of(tmp_path, "sglang", CHAIN, DRAFT, memory_fraction=0.99))
    assert tight.cache_bytes > 0
    assert tight.spare_bytes is not None
    assert tight.spare_bytes < 0
    assert tight.requests(1024) == 0


def test_without_a_fraction_sglang_reserves_by_its_rule(tmp_path: Path) -> None:
    plan = plan_memory(setup_of(tmp_path, "sglang", max_num_seqs=32, max_num_batched_tokens=2048))
    assert plan.items[-1].num_bytes == (512 + 3072 + 128 + 2 * 32 + 8 * 42) * 2**20, "a running batch of 32"
    assert plan.items[-1].certainty is Certainty.RULE
    large = plan_memory(setup_of(tmp_path, "sglang", wish=Wish(memory=80 * GIB)))
    assert large.items[-1].num_bytes >= 10 * GIB


# What `get_batch_defaults` of vLLM 0.33.0 and `handle_gpu_memory_settings` of SGLang 0.5.23 set on a device of so many
# GiB: requests and rows; rows, captured batches on one device and on four, and how many prefill graphs
# `generate_prefill_cuda_graph_batch_sizes` captures (counted by running it).
VLLM_DEFAULTS = [(24, 256, 2048), (69, 256, 2048), (80, 1024, 8192), (141, 1024, 8192), (192, 1024, 16384)]
SGLANG_DEFAULTS = [
    (16, 2048, 8, 8, 42), (24, 4096, 48, 160, 50), (32, 4096, 48, 160, 50), (40, 4096, 32, 160, 50),
    (80, 8192, 256, 512, 58), (141, 8192, 256, 512, 58), (192, 16384, 512, 512, 74),
]  # fmt: skip


@pytest.mark.parametrize(("gib", "requests", "rows"), VLLM_DEFAULTS)
def test_vllm_takes_requests_and_rows_by_the_devices_memory(
    gib: int, requests: int, rows: int, tmp_path: Path
) -> None:
    setup = setup_of(tmp_path, wish=Wish(memory=gib * GIB))
    assert (setup.max_num_seqs, setup.max_batched_tokens) == (requests, rows)
    assert any("A100" in text for text in setup.rules.unknowns), "its name decides, not its memory"


@pytest.mark.parametrize(("gib", "rows", "few", "many", "graphs"), SGLANG_DEFAULTS)
def test_sglang_takes_rows_and_graphs_by_the_devices_memory(
    gib: int, rows: int, few: int, many: int, graphs: int, tmp_path: Path
) -> None:
    for devices, batch in ((1, few), (4, many)):
        setup = setup_of(tmp_path, "sglang", wish=Wish(memory=gib * GIB), tensor_parallel=devices)
        assert setup.max_batched_tokens == rows
        mib = 512 + 1.5 * rows + 128 * devices + 2 * batch + 8 * graphs
        assert plan_memory(setup).items[-1].num_bytes == max(mib, 10240 if gib > 60 else 0) * 2**20


def test_prefill_graphs_of_latent_attention_are_reserved_as_one_sum(tmp_path: Path) -> None:
    latent = {
        "model_type": "deepseek_v3", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8,
        "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 64, "v_head_dim": 64, "q_lora_rank": 128,
        "intermediate_size": 512, "vocab_size": 1000, "moe_intermediate_size": 64, "n_routed_experts": 4,
        "num_experts_per_tok": 2, "n_shared_experts": 1, "first_k_dense_replace": 1, "torch_dtype": "bfloat16",
    }  # fmt: skip
    plan = plan_memory(setup_of(tmp_path, "sglang", target=latent))
    assert plan.items[-1].num_bytes == (512 + 6144 + 128 + 2 * 48 + 1536) * 2**20


@pytest.mark.parametrize(
    ("config", "reserved"),
    [
        ({}, 5),
        ({"sample_from_anchor": True}, 5),
        ({"sample_from_anchor": False}, 6),
        ({"speculators_model_type": "dspark"}, 6),
        ({"speculators_model_type": "dspark", "sample_from_anchor": True}, 5),
    ],
)
def test_a_dspark_block_reserves_a_row_more_where_it_does_not_begin_with_a_draft(
    config: dict[str, Any], reserved: int, tmp_path: Path
) -> None:
    """`VllmConfig.num_lookahead_tokens`, and what vLLM makes of the format of `speculators` (`update_dspark`)."""
    setup = setup_of(tmp_path, speculation=Speculation(method="dspark", depth=5), drafter=DRAFT | config)
    assert plan_memory(setup).lookahead == reserved


def test_trtllm_gives_the_cache_a_share_of_what_is_free(tmp_path: Path) -> None:
    plan = plan_memory(setup_of(tmp_path, "trtllm", memory_fraction=0.5))
    free = 24 * GIB - sum(item.num_bytes for item in plan.items)
    assert plan.cache_bytes == free // 2


@pytest.mark.parametrize("engine", RULES)
@pytest.mark.parametrize(("context", "requests"), [(1024, 1), (4096, 7)])
def test_the_smallest_works_and_a_little_less_does_not(
    engine: str, context: int, requests: int, tmp_path: Path
) -> None:
    setup = setup_of(tmp_path, engine, CHAIN, DRAFT, max_num_seqs=8)
    found = smallest(setup, context, requests)
    if found.fraction is not None:
        assert plan_memory(replace(setup, fraction=found.fraction)).requests(context) >= requests
        assert plan_memory(replace(setup, fraction=found.fraction - 0.02)).requests(context) < requests
    assert found.memory is not None
    assert plan_memory(setup.on(found.memory)).requests(context) >= requests
    assert plan_memory(setup.on(found.memory - 2**22)).requests(context) < requests


@pytest.mark.parametrize("engine", RULES)
@pytest.mark.parametrize("memory", [1, 8, 40, 100, 200, 640])
@pytest.mark.parametrize("speculation", [Speculation(), CHAIN])
def test_the_memory_that_is_named_would_do_whatever_was_asked_about(
    engine: str, memory: int, speculation: Speculation, tmp_path: Path
) -> None:
    """Limits and rows go by the device where nobody says them, so a larger one may have larger passes."""
    drafter = DRAFT if speculation is CHAIN else None
    setup = setup_of(tmp_path, engine, speculation, drafter, wish=Wish(memory=memory * GIB))
    for context, requests in ((1024, 1), (32768, 20)):
        found = smallest(setup, context, requests).memory
        assert found is not None
        assert plan_memory(setup.on(found)).requests(context) >= requests
        assert found == smallest(setup.on(found), context, requests).memory


def test_where_passes_have_no_room_on_any_device_no_memory_is_named(tmp_path: Path) -> None:
    setup = setup_of(tmp_path, "sglang", memory_fraction=1.0)
    assert smallest(setup, 1024, 1).memory is None


def test_what_is_missing_is_no_fraction_of_it(tmp_path: Path) -> None:
    few = setup_of(tmp_path, "trtllm", wish=Wish(memory=2 * GIB), memory_fraction=0.5)
    plan = plan_memory(few)
    assert plan.cache_bytes == 2 * GIB - sum(item.num_bytes for item in plan.items) < 0
    assert plan_memory(replace(few, fraction=0.9)).cache_bytes == plan.cache_bytes


def test_where_no_fraction_works_none_is_named(tmp_path: Path) -> None:
    setup = setup_of(tmp_path, "vllm", CHAIN, DRAFT, wish=Wish(memory=16 * GIB))
    found = smallest(setup, 8192, 1)
    assert found.fraction is None
    assert found.memory is not None
    assert found.memory > 16 * GIB
    assert not plan_memory(setup).fits


@pytest.mark.parametrize("engine", RULES)
def test_every_knob_has_a_flag_and_a_price(engine: str, tmp_path: Path) -> None:
    setup = setup_of(tmp_path, engine, replace(CHAIN, draft_sampling="probabilistic"), DRAFT, max_num_seqs=16)
    found = {knob.name: knob for knob in knobs(setup, 4096)}
    assert all(knob.price and knob.flag for knob in found.values())
    assert set(found) - {"no speculation"} <= set(memory_rules(engine).knobs)
    assert found["no speculation"].after >= found["no speculation"].before
    assert found["no speculation"].gained > 0
    assert "A price, not a gain" in found["concurrent requests"].price
    for name in ("cache dtype", "draft cache dtype", "draft weights", "draft depth"):
        if name in found:
            assert found[name].gained >= 0
            assert found[name].after >= found[name].before


def test_the_curve_compares_like_with_like(tmp_path: Path) -> None:
    setup = setup_of(tmp_path, speculation=CHAIN, drafter=DRAFT)
    lengths = contexts_up_to(131072, 3000)
    assert lengths[0] == 512
    assert 3000 in lengths
    assert lengths[-1] == 131072
    points = curve(setup, lengths)
    plain = plan_memory(without_speculation(setup))
    for point in points:
        assert point.without >= point.speculative
        assert point.without == plain.requests(point.context)
    assert [point.speculative for point in points] == sorted((p.speculative for p in points), reverse=True)


def test_charts_show_every_point(tmp_path: Path) -> None:
    points = curve(setup_of(tmp_path, speculation=CHAIN, drafter=DRAFT), (512, 4096, 131072))
    lines = text_chart(points)
    assert len(lines) == 1 + 2 * len(points)
    assert lines[1].endswith(f" {points[0].without}")
    root = ElementTree.fromstring(svg_chart(points, "a <b> & c"))
    titles = [element.text for element in root.iter("{http://www.w3.org/2000/svg}title")]
    assert titles[0] == "a <b> & c"
    assert f"512 tokens: {points[0].speculative} requests" in titles
    assert (
        sum(point.without > 0 for point in points) + sum(point.speculative > 0 for point in points)
        == len(titles) - 1
    )


@pytest.mark.parametrize("longest", [None, 256, 4096, 131_072])
def test_charts_mark_what_is_beyond_the_models_positions(longest: int | None, tmp_path: Path) -> None:
    points = curve(setup_of(tmp_path), (512, 4096, 8192, 131_072))
    beyond = [str(point.context) for point in points if longest is not None and point.context > longest]
    lines = text_chart(points, longest)
    assert [
        line.split("*")[0].strip() for line in lines if "*" in line[:9] and "beyond" not in line
    ] == beyond
    assert any("beyond the model's" in line for line in lines) == bool(beyond)
    drawn = svg_chart(points, "title", longest)
    root = ElementTree.fromstring(drawn)
    shades = [each for each in root if each.get("fill") == "#fff3e0"]
    assert len(shades) == bool(beyond)
    for shade in shades:
        assert float(shade.get("x", 0)) + float(shade.get("width", 0)) == 700
    assert (f"beyond {longest:,} positions" in drawn) if beyond else ("positions" not in drawn)


def test_charts_of_nothing_are_charts() -> None:
    from draftproof.planning.memory import Point

    nothing = (Point(512, 0, 0),)
    assert text_chart(nothing)[1].endswith(" 0")
    ElementTree.fromstring(svg_chart(nothing, "nothing"))


@pytest.mark.parametrize(
    ("speculation", "code"),
    [
        (Speculation(method="draft_model"), "DP103"),
        (Speculation(method="draft_model", depth=3), "DP103"),
        (Speculation(method="mtp", depth=1), "DP106"),
        (Speculation(method="early_exit", depth=3), "DP106"),
        (Speculation(method="cascade", parts=(CHAIN, replace(CHAIN, depth=2))), "DP104"),
    ],
)
def test_what_is_not_said_is_asked_for(speculation: Speculation, code: str, tmp_path: Path) -> None:
    with pytest.raises(DraftproofError, match=code):
        setup_of(tmp_path, speculation=speculation)


def test_of_a_cascade_the_part_with_weights_is_planned(tmp_path: Path) -> None:
    cascade = Speculation(
        method="cascade", parts=(Speculation(method="ngram", depth=9), Speculation(method="self", depth=3))
    )
    setup: Setup = setup_of(tmp_path, "draftproof", cascade)
    assert (setup.method, setup.levels) == ("self", 3)


def test_engines_and_types_that_are_not_known(tmp_path: Path) -> None:
    with pytest.raises(DraftproofError, match="DP110"):
        setup_of(tmp_path, "novel")
    with pytest.raises(DraftproofError, match="DP001"):
        setup_of(tmp_path, kv_dtype="fp3")
    with pytest.raises(DraftproofError, match="DP001"):
        setup_of(tmp_path, dtype="int")
