"""The quantities at their edges; their values over generated cases are in `tests/exactness`."""

from __future__ import annotations

import pytest
import torch

from draftproof.verify.rejection import acceptance_probability, residual, without


def dist(*masses: float) -> torch.Tensor:
    return torch.tensor(masses, dtype=torch.float64)


def test_acceptance_at_the_edges() -> None:
    assert acceptance_probability(0.0, 0.3) == 0.0
    assert acceptance_probability(0.3, 0.3) == 1.0
    assert acceptance_probability(0.5, 1e-308) == 1.0
    assert acceptance_probability(0.25, 0.5) == 0.5


def test_a_drafted_token_that_q_excludes_is_our_fault() -> None:
    with pytest.raises(AssertionError, match="probability 0"):
        acceptance_probability(0.5, 0.0)


def test_the_example_of_the_design() -> None:
    """p = (.6, .4, 0), q = (.2, .3, .5): rejecting the forbidden token leaves (.4, .1, 0), normalised."""
    assert torch.allclose(residual(dist(0.6, 0.4, 0.0), dist(0.2, 0.3, 0.5)), dist(0.8, 0.2, 0.0))


def test_a_residual_without_mass_is_p_to_within_rounding() -> None:
    p = dist(0.1, 0.2, 0.7)
    assert torch.equal(residual(p, p), p)
    assert torch.equal(residual(p, p.nextafter(dist(1.0, 1.0, 1.0))), p)


def test_removing_the_only_token_leaves_the_distribution() -> None:
    assert torch.equal(without(dist(0.0, 1.0), 1), dist(0.0, 1.0))
    assert torch.equal(without(dist(1.0), 0), dist(1.0))


def test_a_tiny_rest_is_renormalised_without_cancellation() -> None:
    """1 - p(x) would be 0 here; the sum of the others is not."""
    assert torch.equal(without(dist(1.0, 2.0**-70, 3 * 2.0**-70), 0), dist(0.0, 0.25, 0.75))


def test_inputs_are_left_alone() -> None:
    p, q = dist(0.6, 0.4), dist(0.2, 0.8)
    residual(p, q)
    without(p, 0)
    assert torch.equal(p, dist(0.6, 0.4))
    assert torch.equal(q, dist(0.2, 0.8))


def test_different_vocabularies_are_our_fault() -> None:
    with pytest.raises(AssertionError):
        residual(dist(1.0), dist(0.5, 0.5))
