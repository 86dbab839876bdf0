"""Proposers for tests: always right, always wrong, random, branching, and one that crashes.

`truth` maps a request's id to its plain output, token by token. None of them keeps state, so nothing can leak.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from draftproof.ops.draft_batch import DraftBatch
from draftproof.proposers.base import ProposerNeeds, SequenceView, Source
from draftproof.verify.types import Verdict

Truth = Mapping[str, Sequence[int]]


class _Scripted:
    name = "scripted"
    needs = ProposerNeeds()
    sources = (Source(follows_prices=False),)

    def begin(self, sequence: SequenceView) -> None: ...

    def observe(self, sequence: SequenceView, hidden: Tensor | None) -> None: ...

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[int]) -> DraftBatch:
        return DraftBatch.chains(
            [self._chain(s, min(budget, s.depth)) for s, budget in zip(sequences, budgets, strict=True)]
        )

    def commit(self, sequences: Sequence[SequenceView], verdicts: Sequence[Verdict]) -> None: ...

    def end(self, sequence: SequenceView) -> None: ...

    def _chain(self, sequence: SequenceView, depth: int) -> list[int]:
        raise NotImplementedError


def _coming(truth: Truth, sequence: SequenceView) -> Sequence[int]:
    return truth[sequence.req_id][len(sequence.token_ids) - sequence.num_prompt :]


class AlwaysRight(_Scripted):
    """Drafts what comes; behind the end of the output, where nothing is known, it drafts zeros."""

    name = "always-right"

    def __init__(self, truth: Truth) -> None:
        self._truth = truth

    def _chain(self, sequence: SequenceView, depth: int) -> list[int]:
        coming = list(_coming(self._truth, sequence))[:depth]
        return coming + [0] * (depth - len(coming))


class AlwaysWrong(_Scripted):
    """Drafts full depth, never the token that comes."""

    name = "always-wrong"

    def __init__(self, truth: Truth, vocab_size: int) -> None:
        self._truth = truth
        self._vocab_size = vocab_size

    def _chain(self, sequence: SequenceView, depth: int) -> list[int]:
        coming = list(_coming(self._truth, sequence))[:depth]
        coming += [0] * (depth - len(coming))
        return [(token + 1 + index) % self._vocab_size for index, token in enumerate(coming)]


class RandomDrafts(_Scripted):
    """Random tokens of random number; a function of the text alone."""

    name = "random"

    def __init__(self, seed: int, vocab_size: int) -> None:
        self._seed = seed
        self._vocab_size = vocab_size

    def _rng(self, sequence: SequenceView) -> random.Random:
        return random.Random(f"{self._seed} {sequence.req_id} {len(sequence.token_ids)}")

    def _chain(self, sequence: SequenceView, depth: int) -> list[int]:
        rng = self._rng(sequence)
        return [rng.randrange(self._vocab_size) for _ in range(rng.randint(0, depth))]


class Branching(RandomDrafts):
    """Random trees; some nodes carry the token that comes, so that paths of every form are accepted."""

    name = "branching"

    def __init__(self, truth: Truth, seed: int, vocab_size: int) -> None:
        super().__init__(seed, vocab_size)
        self._truth = truth

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[int]) -> DraftBatch:
        return DraftBatch.concat(
            [self._tree(s, min(budget, s.depth)) for s, budget in zip(sequences, budgets, strict=True)]
        )

    def _tree(self, sequence: SequenceView, num_nodes: int) -> DraftBatch:
        rng = self._rng(sequence)
        coming = _coming(self._truth, sequence)
        depths = [0]
        tokens: list[int] = []
        parents: list[int] = []
        for node in range(num_nodes):
            parent = rng.randint(max(0, node - 3), node)
            depth = depths[parent]
            right = depth < len(coming) and rng.random() < 0.6
            tokens.append(coming[depth] if right else rng.randrange(self._vocab_size))
            parents.append(parent)
            depths.append(depth + 1)
        chain = DraftBatch.chains([tokens])
        return DraftBatch(
            tokens=chain.tokens,
            parent_rows=torch.tensor(parents, dtype=torch.int64),
            node_offsets=chain.node_offsets,
            is_point_mass=chain.is_point_mass,
            q_rows=chain.q_rows,
            q=chain.q,
        )


class Crashing(RandomDrafts):
    """Raises now and then, in any of its methods, or drafts what no vocabulary has."""

    name = "crashing"

    def begin(self, sequence: SequenceView) -> None:
        self._crash(sequence, "begin")

    def commit(self, sequences: Sequence[SequenceView], verdicts: Sequence[Verdict]) -> None:
        for sequence in sequences:
            self._crash(sequence, "commit")

    def end(self, sequence: SequenceView) -> None:
        self._crash(sequence, "end")

    def _chain(self, sequence: SequenceView, depth: int) -> list[int]:
        self._crash(sequence, "propose")
        malformed = self._rng(sequence).random()  # what `check_drafts` must see; its own tests plant the rest
        if malformed < 0.05:
            return [self._vocab_size]
        if malformed < 0.1:
            return [0] * (depth + 40)
        return super()._chain(sequence, depth)

    def _crash(self, sequence: SequenceView, where: str) -> None:
        if random.Random(f"{self._seed} {sequence.req_id} {len(sequence.token_ids)} {where}").random() < 0.1:
            raise RuntimeError(f"a planted fault in {where}")
