"""The replay of prompt look-up: against a slow one that is obviously right, and on texts whose result is known."""

from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.planning.advice import copying
from draftproof.planning.advice.copying import LookUpSettings, Recorded, pieces, replay

WORDS = st.lists(st.sampled_from([" a", " b", " c", "."]), max_size=40).map("".join)


def _slow(request: Recorded, look_up: LookUpSettings) -> tuple[int, int, int]:
    """Rounds, proposed, accepted by scanning the whole text for each round."""
    text, answer = pieces(request.prompt), pieces(request.answer)
    rounds = proposed = accepted = 0
    while answer:
        draft: list[str] = []
        for size in range(look_up.max_ngram, look_up.min_ngram - 1, -1):
            ends = [
                end for end in range(size, len(text)) if text[end - size : end] == text[len(text) - size :]
            ]
            if ends and len(text) >= size:
                draft = text[ends[-1] : ends[-1] + look_up.depth][: len(answer)]
                break
        matched = 0
        while matched < len(draft) and draft[matched] == answer[matched]:
            matched += 1
        rounds, proposed, accepted = rounds + 1, proposed + len(draft), accepted + matched
        text, answer = text + answer[: matched + 1], answer[matched + 1 :]
    return rounds, proposed, accepted


@given(WORDS, WORDS, st.integers(1, 3), st.integers(0, 2), st.integers(1, 6))
@settings(max_examples=120, deadline=None)
def test_equals_the_slow_replay(prompt: str, answer: str, least: int, more: int, depth: int) -> None:
    look_up = LookUpSettings(least, least + more, depth)
    request = Recorded(prompt, answer)
    found = replay([request], look_up)
    assert (found.rounds, found.proposed, found.accepted) == _slow(request, look_up)
    assert found.num_pieces == len(pieces(answer))
    assert found.num_pieces - found.accepted <= found.rounds <= found.num_pieces


@given(st.text(max_size=200))
@settings(max_examples=100, deadline=None)
def test_pieces_lose_nothing(text: str) -> None:
    assert "".join(pieces(text)) == text


def test_a_repeated_file_is_copied_and_a_new_text_is_not() -> None:
    source = "".join(f"def function_{index}(value):\n    return value + {index}\n\n" for index in range(30))
    copied = replay([Recorded(f"Answer with the file.\n{source}", source)])
    assert copied.copied_share > 0.8
    assert copied.emitted_per_round > 5
    fresh = replay([Recorded("Name a river.", "The Rhine runs through Cologne, and then into the sea.")])
    assert fresh.accepted == 0
    assert fresh.emitted_per_round == 1


def test_requests_without_answers_do_not_count() -> None:
    found = replay([Recorded("a b c", ""), Recorded("a b c", " a b c")])
    assert (found.num_requests, found.num_replayed) == (1, 1)
    nothing = replay([])
    assert (nothing.num_requests, nothing.copied_share, nothing.emitted_per_round) == (0, 0.0, 0.0)


def test_large_workloads_are_thinned_evenly_and_say_so() -> None:
    answer = "word " * 2000
    found = replay([Recorded(str(index), answer) for index in range(400)])
    assert found.num_requests == 400
    assert found.num_replayed < 400
    assert found.num_pieces <= 2 * copying.MAX_PIECES
