"""`verify` over whole batches: rules and methods mixed, each request judged as if it were alone."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from draftproof.ops.draft_batch import DraftBatch
from draftproof.verify import NoiseKey, Rule, TargetRows, Verdict, verify
from draftproof.verify.coupled import sample

VOCAB = 6


def drawn_chain(*tokens: int) -> DraftBatch:
    generator = torch.Generator().manual_seed(sum(tokens))
    q = torch.softmax(torch.randn(len(tokens), VOCAB, dtype=torch.float64, generator=generator), -1)
    point = DraftBatch.chains([tokens])
    return dataclasses.replace(
        point,
        is_point_mass=torch.zeros(len(tokens), dtype=torch.bool),
        q_rows=torch.arange(len(tokens)),
        q=q,
    )


def tree(tokens: list[int], parents: list[int]) -> DraftBatch:
    point = DraftBatch.chains([tokens])
    return dataclasses.replace(point, parent_rows=torch.tensor(parents))


REQUESTS = [
    (Rule.MATCH, DraftBatch.chains([[1, 2, 3]])),
    (Rule.REJECTION, drawn_chain(4, 0)),
    (Rule.MATCH, DraftBatch.chains([[]])),
    (Rule.BLOCK, drawn_chain(2, 2, 5)),
    (Rule.REJECTION, tree([1, 3, 1], [0, 0, 2])),
    (Rule.BLOCK, DraftBatch.chains([[0, 1]])),
    (Rule.REJECTION, DraftBatch.chains([[]])),
    (Rule.MATCH, tree([1, 3, 1], [0, 0, 2])),
]


def target_of(draft: DraftBatch, seed: int) -> TargetRows:
    num_rows = draft.num_nodes + 1
    generator = torch.Generator().manual_seed(seed)
    probs = torch.softmax(2 * torch.randn(num_rows, VOCAB, dtype=torch.float64, generator=generator), -1)
    tokens = sample(probs, [NoiseKey(seed, row) for row in range(num_rows)])
    return TargetRows(tokens, torch.arange(num_rows), probs)


def alone(seed: int) -> list[Verdict]:
    return [
        verify(draft, target_of(draft, seed + k), [rule], [NoiseKey(seed + k, k)])[0]
        for k, (rule, draft) in enumerate(REQUESTS)
    ]


def together(seed: int) -> list[Verdict]:
    """One batch, and `probs` holds only the rows of requests that need them (as the engine does it)."""
    targets = [target_of(draft, seed + k) for k, (_, draft) in enumerate(REQUESTS)]
    probs, prob_rows, num_probs = [], [], 0
    for (rule, _), target in zip(REQUESTS, targets, strict=True):
        if rule is Rule.MATCH:
            prob_rows.append(torch.zeros_like(target.prob_rows))
        else:
            prob_rows.append(target.prob_rows + num_probs)
            probs.append(target.probs)
            num_probs += len(target.probs)
    rows = TargetRows(torch.cat([t.tokens for t in targets]), torch.cat(prob_rows), torch.cat(probs))
    draft = DraftBatch.concat([draft for _, draft in REQUESTS])
    keys = [NoiseKey(seed + k, k) for k in range(len(REQUESTS))]
    return verify(draft, rows, [rule for rule, _ in REQUESTS], keys)


@pytest.mark.parametrize("seed", range(20))
def test_a_request_in_a_batch_is_judged_as_if_it_were_alone(seed: int) -> None:
    assert together(seed) == alone(seed)


def test_requests_without_any_probabilities() -> None:
    draft = DraftBatch.chains([[1, 2], [3], []])
    tokens = torch.tensor([1, 9, 0, 3, 4, 5])
    target = TargetRows(tokens, torch.zeros(6, dtype=torch.int64), torch.zeros((0, 0), dtype=torch.float64))
    keys = [NoiseKey(0, 0)] * 3
    assert verify(draft, target, [Rule.MATCH] * 3, keys) == [
        Verdict((1,), (1,), 9),
        Verdict((1,), (3,), 4),
        Verdict((), (), 5),
    ]


def test_no_requests() -> None:
    empty = torch.zeros(0, dtype=torch.int64)
    target = TargetRows(empty, empty, torch.zeros((0, 0), dtype=torch.float64))
    assert verify(DraftBatch.chains([]), target, [], []) == []


@pytest.mark.parametrize("fault", ["rules", "keys", "tokens", "prob_rows"])
def test_sizes_that_do_not_fit_are_our_fault(fault: str) -> None:
    draft = DraftBatch.chains([[1, 2]])
    target = target_of(draft, 0)
    if fault in ("tokens", "prob_rows"):
        target = dataclasses.replace(target, **{fault: getattr(target, fault)[:-1]})
    rules = [Rule.MATCH] * (2 if fault == "rules" else 1)
    keys = [NoiseKey(0, 0)] * (2 if fault == "keys" else 1)
    with pytest.raises(AssertionError):
        verify(draft, target, rules, keys)


def test_a_q_over_another_vocabulary_is_our_fault() -> None:
    draft = drawn_chain(1, 2)
    target = target_of(draft, 0)
    with pytest.raises(AssertionError):
        verify(dataclasses.replace(draft, q=draft.q[:, :-1]), target, [Rule.REJECTION], [NoiseKey(0, 0)])


def test_the_same_input_gives_the_same_verdict() -> None:
    torch.manual_seed(1)
    first = together(3)
    torch.manual_seed(2)
    assert together(3) == first
