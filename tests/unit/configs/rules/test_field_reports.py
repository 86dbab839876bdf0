"""What users ran into, case by case: the rules that show it before a start, or why files cannot show it.

Each row is one kind of fault that was reported in public trackers; `rules` are those that speak, `unseen` says what is
needed where no file, header, command or traffic sample can tell.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from draftproof.configs.rules.registry import rules_of


@dataclass(frozen=True)
class Row:
    fault: str
    rules: tuple[str, ...] = ()
    unseen: str = ""


ROWS = (
    Row("vocab_size differs by padding alone", ("VOCAB-01", "VOCAB-02")),
    Row("an EAGLE-3 head under SGLang's EAGLE: accept length of exactly 1.00", ("EAGLE-01", "EAGLE-05")),
    Row(
        "captured layers off by one in the engine's code",
        ("EAGLE-12",),
        "the head's list is right: acceptance of the first token against the card shows it",
    ),
    Row("each head generation needs other captured layers and norms", ("EAGLE-11", "EAGLE-12", "EAGLE-13")),
    Row("a dictionary override of rope does not reach the drafter", ("CONTEXT-02",)),
    Row("a head with 2048 positions under longer prompts", ("CONTEXT-01",)),
    Row("MTP weights in 16 bits under the target's quantisation", ("MTP-03",)),
    Row("MTP tensors dropped by merging or quantising", ("MTP-01", "MTP-02")),
    Row("no reason why a pair is rejected; first differing token", ("VOCAB-03", "VOCAB-05", "COMBO-05")),
    Row("MTP written for EAGLE; Eagle3 served as Eagle", ("EAGLE-02", "EAGLE-03")),
    Row("a schedule that the scheduler alone reads", ("FLAG-09",)),
    Row("different vocabularies: acceptance falls with the overlap; no unknown token", ("VOCAB-04", "VOCAB-08")),
    Row("greedy text differs in the last bits of logits", unseen="numerics of kernels: an audit with the target's gap"),
    Row("caches that cannot be trimmed", ("CACHE-01", "CACHE-02")),
    Row("min_p and logit_bias answered with 400", ("REQUEST-01",)),
    Row("penalties ignored", ("REQUEST-01", "REQUEST-02", "REQUEST-03")),
    Row("temperature ignored", ("REQUEST-02",)),
    Row("seeds ignored", ("REQUEST-03",)),
    Row("stop strings inside an accepted run", ("REQUEST-03",)),
    Row("usage counts more tokens than were sent", unseen="a running server: invariants of usage in an audit"),
    Row("structured output breaks when thinking ends inside a draft", ("REQUEST-03",)),
    Row("streaming parsers lose tool arguments", ("REQUEST-03",)),
    Row("logprobs crash or cover the first token of a run", ("REQUEST-01", "REQUEST-03")),
    Row("degenerate text: quantised cache, short look-ups with tools", ("CACHE-03", "REQUEST-05")),
    Row("positions of the cache after a rejection", unseen="a fault in the engine's code: compare with plain decoding"),
    Row("speculation loses at large batches", ("ECON-04",)),
    Row("a drafter as large as the active parameters; experts per verification", ("ECON-01", "ECON-02", "ECON-03")),
    Row("slower than plainly at batch 32", ("ECON-04", "CONFIG-04")),
    Row("acceptance falls and verification rises with context", ("CONTEXT-01",)),
    Row("a fixed cost per step of the backend", unseen="time: draft, verify and coordination have to be measured"),
    Row("fewer hits in the cache of prefixes", ("CACHE-04",)),
    Row("drift over hours, regressions between releases", ("VERSION-01",), "a stored baseline shows it"),
    Row("memory at launch: drafter not budgeted", ("MEMORY-04",), "bytes against a device are `plan`'s"),
    Row("fewer cache blocks beside a drafter", unseen="bytes against a device: `plan` tells the lost requests"),
    Row("misleading failures when the draft cache does not fit", unseen="bytes against a device: `plan`"),
    Row("buffers of a method", ("MEMORY-01", "MEMORY-03"), "the rest are bytes against a device: `plan`"),
    Row("measured on random tokens, graphs off above batch 2, overload", ("MEMORY-02",), "a workload has to be run"),
    Row("tokens counted that were cut", unseen="a running server: emitted tokens from usage"),
    Row("trained for one template or thinking mode", ("VOCAB-07",)),
    Row("events of a stream counted as tokens", unseen="a fault of the measurement"),
    Row("a paper's figure not reached: other depth, host-bound", unseen="time has to be measured"),
    Row("noise between prompts taken for an effect", unseen="statistics of a measurement"),
    Row("validation good, serving at 1.0: partial rotary ignored", ("CONTEXT-03",), "parity is the gate"),
    Row("a smaller draft vocabulary without its maps", ("EAGLE-07", "EAGLE-08", "EAGLE-09")),
)  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=[f"{number}" for number in range(1, len(ROWS) + 1)])
def test_every_report_is_seen_or_says_why_not(row: Row) -> None:
    codes = {rule.code for rule in rules_of()}
    assert row.rules or row.unseen
    assert set(row.rules) <= codes


def test_all_reports_are_here() -> None:
    assert len(ROWS) == 44
    assert sum(bool(row.rules) for row in ROWS) >= 30
