"""Look-up in C++ drafts what the Python references draft, token for token, and gives back what it takes."""

from __future__ import annotations

import random
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from draftproof.core.compilation import FLAGS, find_compiler
from draftproof.core.intent import NGram, Predicted, Suffix
from draftproof.core.params import SamplingParams
from draftproof.kv.budget import ByteBudget
from draftproof.proposers import pool
from draftproof.proposers.base import Proposer, SequenceView
from draftproof.proposers.cascade import CascadeProposer
from draftproof.proposers.look_up import SOURCES, LookUpIntent, LookUpProposer, library
from draftproof.proposers.ngram import NGramProposer
from draftproof.proposers.predicted import PredictedProposer
from draftproof.proposers.suffix import SuffixProposer
from draftproof.verify.types import Verdict

pytestmark = pytest.mark.skipif(library() is None, reason="look-up cannot be compiled here")

GREEDY = SamplingParams(temperature=0.0)
SCOPES = ("", "key", "Schlüssel")


def in_python(parts: list[LookUpIntent]) -> Proposer:
    """The references, in the order of `parts`."""
    made: list[Proposer] = []
    for part in parts:
        if isinstance(part, NGram):
            sizes = part.prompt_lookup_min, part.prompt_lookup_max
            made.append(NGramProposer(part.num_speculative_tokens, *sizes))
        elif isinstance(part, Suffix):
            made.append(SuffixProposer(part))
        else:
            made.append(PredictedProposer(part.num_speculative_tokens))
    return made[0] if len(made) == 1 else CascadeProposer(made)


depths = st.integers(1, 20)
ngrams = st.builds(
    lambda depth, bounds: NGram(
        num_speculative_tokens=depth, prompt_lookup_min=min(bounds), prompt_lookup_max=max(bounds)
    ),
    depths,
    st.tuples(st.integers(1, 12), st.integers(1, 12)),
)
suffixes = st.builds(
    Suffix,
    num_speculative_tokens=depths,
    suffix_decoding_max_tree_depth=st.integers(1, 40),
    suffix_decoding_max_cached_requests=st.sampled_from([0, 1, 2, 5, 1000]),
    suffix_decoding_max_spec_factor=st.floats(0.0, 8.0),
    suffix_decoding_min_token_prob=st.floats(0.0, 1.0),
)
predicteds = st.builds(Predicted, num_speculative_tokens=depths)


class Pair:
    """Both do the same, and every draft is compared."""

    def __init__(self, parts: list[LookUpIntent], rng: random.Random) -> None:
        self.both = LookUpProposer(parts, "both"), in_python(parts)
        self.rng = rng
        self.running: dict[str, tuple[SequenceView, list[int]]] = {}
        self.num_begun = self.num_drafted = 0
        self.ended: list[list[int]] = []

    def begin(self, alphabet: int, most: int) -> None:
        """Its text will repeat itself, its prediction and earlier outputs, with changes."""
        rng = self.rng
        prompt = self.text(alphabet, rng.randint(1, most))
        coming = self.text(alphabet, most)
        prediction = self.changed(coming, alphabet) if rng.random() < 0.6 else []
        self.num_begun += 1
        view = SequenceView(
            f"r{self.num_begun}",
            prompt,
            len(prompt),
            GREEDY,
            prediction=prediction,
            scope=rng.choice(SCOPES),
            depth=rng.randint(1, 20),
        )
        self.running[view.req_id] = view, coming
        for proposer in self.both:
            proposer.begin(view)

    def text(self, alphabet: int, length: int) -> list[int]:
        rng, made = self.rng, [self.rng.randrange(alphabet)]
        while len(made) < length:
            source = rng.choice(self.ended) if self.ended and rng.random() < 0.3 else made
            start = rng.randrange(len(source))
            made += source[start : start + rng.randint(1, 30)] if rng.random() < 0.7 else []
            made += [rng.randrange(alphabet) for _ in range(rng.randint(0, 4))]
        return made[:length]

    def changed(self, text: list[int], alphabet: int) -> list[int]:
        kept = [token for token in text if self.rng.random() > 0.05]
        return [token if self.rng.random() > 0.05 else self.rng.randrange(alphabet) for token in kept]

    def round(self) -> None:
        rng = self.rng
        asked = [view for view, _ in self.running.values() if rng.random() < 0.8]
        rng.shuffle(asked)
        budgets = [rng.randint(1, 24) for _ in asked]
        for view in asked:
            step = rng.choice([0.0, 0.02, 0.2, 0.6])
            view.prices = [step * drafted for drafted in range(rng.randint(0, 24))]
            if view.prices:
                view.prices[0] = -rng.choice([0.0, 0.0, 0.4, 1.5])
        drafts, expected = (
            [entry.tokens.tolist() for entry in map(batch.request, range(len(asked)))]
            for batch in [proposer.propose(asked, budgets) for proposer in self.both]
        )
        assert drafts == expected
        self.num_drafted += sum(map(len, drafts))
        for view, coming in self.running.values():
            done = len(view.token_ids) - view.num_prompt
            view.token_ids += coming[done : done + rng.randint(0, 6)]
        committed = [view for view, _ in self.running.values() if rng.random() < 0.9]
        for proposer in self.both:
            proposer.commit(committed, [Verdict((), (), 0)] * len(committed))

    def end(self, req_id: str) -> None:
        view, _ = self.running.pop(req_id)
        self.ended.append(view.token_ids)
        for proposer in self.both:
            proposer.end(view)


@given(
    parts=st.lists(ngrams | suffixes | predicteds, min_size=1, max_size=3),
    alphabet=st.sampled_from([1, 2, 3, 5, 20, 1000, 2**31 - 1]),
    most=st.sampled_from([4, 30, 200, 800]),
    seed=st.integers(0, 2**32),
)
@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
def test_any_requests_draft_what_the_references_draft(
    parts: list[LookUpIntent], alphabet: int, most: int, seed: int
) -> None:
    rng = random.Random(seed)
    pair = Pair(parts, rng)
    for _ in range(60):
        if len(pair.running) < 4 and rng.random() < 0.4:
            pair.begin(alphabet, most)
        pair.round()
        if pair.running and rng.random() < 0.2:
            pair.end(rng.choice(sorted(pair.running)))


AUTO: list[LookUpIntent] = [
    Predicted(num_speculative_tokens=16),
    Suffix(num_speculative_tokens=16, suffix_decoding_max_spec_factor=2.0),
    NGram(num_speculative_tokens=16),
]


@pytest.mark.parametrize("alphabet", [3, 50, 30_000])
def test_long_texts(alphabet: int) -> None:
    pair = Pair(AUTO, random.Random(alphabet))
    for _ in range(3):
        pair.begin(alphabet, 12_000)
    for _ in range(300):
        pair.round()
    assert pair.num_drafted > 100


@pytest.mark.parametrize(("most_tokens", "most_output"), [(100, 1000), (1000, 64), (1000, 4000)])
def test_a_pool_that_overflows_drafts_what_the_reference_drafts(
    most_tokens: int, most_output: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "MAX_POOL_TOKENS", most_tokens)
    monkeypatch.setattr(pool.Pools.__init__, "__defaults__", (most_tokens,))
    monkeypatch.setattr(pool, "MAX_OUTPUT_TOKENS", most_output)
    pair = Pair([replace(AUTO[1], suffix_decoding_max_cached_requests=40)], random.Random(most_tokens))
    for _ in range(150):
        pair.begin(8, 120)
        for _ in range(4):
            pair.round()
        pair.end(pair.rng.choice(sorted(pair.running)))
    assert pair.num_drafted > 100


def look_up() -> LookUpProposer:
    return LookUpProposer([Predicted(), Suffix(suffix_decoding_max_cached_requests=20), NGram()])


def finished(
    proposer: LookUpProposer, req_id: str, length: int, rng: random.Random, scope: str | None = None
) -> list[int]:
    """A request's text, of which all but ten tokens are its output; `scope` None: its own."""
    text = [rng.randrange(100) for _ in range(length)]
    view = SequenceView(req_id, text[:10], 10, GREEDY, prediction=text, scope=scope or req_id, depth=8)
    proposer.begin(view)
    proposer.chains([view], [8])
    view.token_ids += text[10:]
    proposer.commit([view], [Verdict((), (), 0)])
    proposer.chains([view], [8])
    proposer.end(view)
    return text


def test_ended_requests_leave_a_bounded_pool() -> None:
    """Also where every request has a scope of its own."""
    proposer, rng = look_up(), random.Random(1)
    sizes = []
    for block in range(3):
        for number in range(300):
            finished(proposer, f"{block}.{number}", 100, rng)
        sizes.append(proposer.num_bytes)
    assert 0 < sizes[2] <= 1.1 * sizes[0] < 300_000


def test_requests_without_a_pool_leave_nothing() -> None:
    proposer, rng = LookUpProposer([Predicted(), NGram()]), random.Random(1)
    assert proposer.num_bytes == 0
    finished(proposer, "r", 5000, rng)
    assert proposer.num_bytes == 0


def test_what_is_held_per_token_stays_small() -> None:
    """Of a text as long as a context, with six sizes: the reference takes more than ten times as much."""
    proposer = LookUpProposer(AUTO)
    text = [random.Random(1).randrange(30_000) for _ in range(32_768)]
    view = SequenceView("r", text, len(text), GREEDY, depth=8)
    proposer.begin(view)
    proposer.chains([view], [8])
    assert proposer.num_bytes < 80 * len(text)


def test_a_text_that_became_shorter_is_read_anew() -> None:
    proposer = LookUpProposer([NGram(prompt_lookup_min=2)])
    view = SequenceView("r", [1, 2, 3, 4, 1, 2], 4, GREEDY, depth=2)
    proposer.begin(view)
    assert proposer.chains([view], [8]) == [[3, 4]]
    view.token_ids[:] = [5, 6, 7, 5, 6]
    assert proposer.chains([view], [8]) == [[7, 5]]


def test_a_token_that_is_none_fails_its_request_alone() -> None:
    """The library is told again what it was to hear in the call that failed."""
    proposer = LookUpProposer([NGram()])
    views = [
        SequenceView("good", [1, 2, 3, 1, 2], 5, GREEDY, depth=2),
        SequenceView("bad", [2**31, 2, 2**31], 3, GREEDY, depth=2),
    ]
    for view in views:
        proposer.begin(view)
    with pytest.raises(OverflowError):
        proposer.chains(views, [8, 8])
    with pytest.raises(OverflowError):
        proposer.chains(views[1:], [8])
    assert proposer.chains(views[:1], [8]) == [[3, 1]]


def test_after_memory_ran_out_texts_are_told_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    proposer = LookUpProposer([NGram(prompt_lookup_min=2)])
    view = SequenceView("r", [1, 2, 3, 1, 2], 5, GREEDY, depth=1)
    proposer.begin(view)
    assert proposer.chains([view], [8]) == [[3]]
    view.token_ids += [7, 8, 9, 7, 8]

    class OutOfMemory:
        def __getattr__(self, name: str) -> object:
            return lambda *_: -1

    with monkeypatch.context() as patch:
        patch.setattr(proposer, "_library", OutOfMemory())
        with pytest.raises(MemoryError):
            proposer.chains([view], [8])
    assert proposer.chains([view], [8]) == [[9]]


def remembers(proposer: LookUpProposer, scope: str, text: list[int]) -> bool:
    view = SequenceView("asks", text[20:60], 40, GREEDY, scope=scope, depth=8)
    proposer.begin(view)
    [draft] = proposer.chains([view], [8])
    proposer.end(view)
    return draft == text[60:68]


def test_remembered_outputs_take_from_a_budget_and_yield() -> None:
    """What is taken is what the library holds; the newest outputs stay longest; with the proposer all goes."""
    budget, rng = ByteBudget(10_000_000), random.Random(1)
    proposer = LookUpProposer([Suffix()], budget=budget)
    texts = [
        finished(proposer, str(number), 200, rng, "old" if number < 20 else "new") for number in range(40)
    ]

    def taken() -> int:
        return budget.num_bytes - budget.num_reserved - budget.num_unclaimed

    assert taken() == proposer.num_bytes
    assert remembers(proposer, "old", texts[19])
    assert remembers(proposer, "new", texts[20])
    left = proposer.num_bytes
    for part, is_known in ((0.6, [True, True]), (0.4, [False, True]), (0.0, [False, False])):
        wanted = budget.num_bytes - int(part * left)
        assert budget.reserve(wanted)
        assert taken() == proposer.num_bytes <= part * left
        assert not remembers(proposer, "old", texts[19])
        assert [remembers(proposer, "new", texts[20]), remembers(proposer, "new", texts[39])] == is_known
        budget.unreserve(wanted)
    finished(proposer, "more", 200, rng, "new")
    assert taken() == proposer.num_bytes > 0
    del proposer
    assert taken() == 0


CHECK = Path(__file__).parents[2] / "support" / "look_up_check.cpp"
SANITIZERS = (
    "-g",
    "-w",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=undefined",
    "-D_GLIBCXX_ASSERTIONS",
)


@pytest.mark.slow
def test_any_piece_of_memory_may_be_refused(tmp_path: Path) -> None:
    """Under sanitizers: nothing is read or written astray, nothing leaks, and every call says that it had none."""
    flags = [flag for flag in FLAGS if flag not in ("-O3", "-shared", "-fPIC")]
    program = tmp_path / "check"
    command = [find_compiler().path, *flags, "-O1", *SANITIZERS, f"-I{SOURCES.directory}", str(CHECK)]
    compiled = subprocess.run([*command, "-o", str(program)], capture_output=True, text=True, check=False)
    if compiled.returncode and "san" in compiled.stderr and "cannot find" in compiled.stderr:
        pytest.skip("no sanitizers here")
    assert compiled.returncode == 0, compiled.stderr
    result = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
