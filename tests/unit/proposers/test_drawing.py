"""Chains of a drafter that fails behind a drawn token: what was drawn stays, for its value must not decide."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from draftproof.core.params import SamplingParams
from draftproof.ops.sampling import SamplingState
from draftproof.proposers.base import SequenceView
from draftproof.proposers.drawing import Chain, Chains, TokenMap, draft_batch
from draftproof.verify.types import NoiseKey, Rule

EVEN = torch.zeros(1, 2)


def chain_of(seed: int) -> Chain:
    params = SamplingParams(temperature=1.0)
    view = SequenceView(str(seed), [0], 1, params, depth=2, noise=NoiseKey(seed, 0), rule=Rule.REJECTION)
    view.sampling = SamplingState(params, (0,), frozenset())
    return Chain(view, limit=2)


@pytest.mark.parametrize("raises", [False, True])
def test_a_fault_behind_a_drawn_token_drops_no_token(raises: bool) -> None:
    """The drafter fails behind token 0 alone, beside others: only that chain ends, with its token."""
    chains = [chain_of(seed) for seed in range(20)]

    def step(going: Sequence[Chain]) -> Tensor:
        if raises and any(chain.tokens[-1] == 0 for chain in going):
            raise RuntimeError("planted")
        return torch.cat([EVEN if chain.tokens[-1] else EVEN * torch.nan for chain in going])

    Chains(TokenMap.identity(2), draws=True).grow(chains, EVEN.repeat(20, 1), step)
    batch = draft_batch(chains)
    assert {chain.tokens[0] for chain in chains} == {0, 1}
    assert batch.q.shape[0] == batch.num_nodes
    for index, chain in enumerate(chains):
        assert batch.request(index).tokens.tolist() == chain.tokens
        failed = chain.tokens[0] == 0
        assert (chain.fault is not None) == failed
        assert failed or "planted" not in (chain.fault or "")
