"""The quantities of rejection sampling: how likely a drafted token is accepted and what is left after it
was not.

Source: Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1 and its appendix. Used by `tree` (which is
also the chain) and compared with `oracle` to 1e-12. Pure functions of one row; they know no drafts and no
noise. A point mass is q = 1 for its token: accepted with p(token), and what is left is p without that
token.
"""

from __future__ import annotations

from torch import Tensor


def acceptance_probability(p_token: float, q_token: float) -> float:
    """min(1, p / q) of a token that was drawn from q; `q_token` is 1 for a point mass.

    A token drawn from q has q > 0; anything else is a drafter that claims another q than it drew from.
    """
    assert q_token > 0.0, "a drafted token has probability 0 under the q it is said to be drawn from"
    return min(1.0, p_token / q_token)


def residual(p: Tensor, q: Tensor) -> Tensor:
    """norm(max(p - q, 0)), float64 [vocab]: the target's distribution after a token drawn from q was
    rejected.

    A rejection implies p(x) < q(x), so the mass is positive except by rounding (p equal to q within the last
    bits; probability about 1e-16). Then p itself is the residual to within rounding, and is returned.
    """
    assert p.shape == q.shape, (p.shape, q.shape)
    return _normalised((p - q).clamp_(min=0.0), otherwise=p)


def without(distribution: Tensor, token: int) -> Tensor:
    """The distribution given that it is not `token`, float64 [vocab].

    It is p after a rejected point mass, and q after a sibling was drawn without replacement. If nothing but
    `token` has mass (then it is accepted, or was the last sibling that could be drawn, except by rounding),
    the distribution comes back as it was.
    """
    rest = distribution.clone()
    rest[token] = 0.0
    return _normalised(rest, otherwise=distribution)


def _normalised(weights: Tensor, otherwise: Tensor) -> Tensor:
    mass = weights.sum()
    return weights.div_(mass) if float(mass) > 0.0 else otherwise
