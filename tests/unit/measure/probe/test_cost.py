"""The estimate is an upper bound on what a probe then does, in requests and in tokens."""

import pytest

from draftproof.measure.probe.client import Client
from draftproof.measure.probe.cost import Price, estimate, estimated_tokens
from draftproof.measure.probe.endpoint import parse_endpoint
from draftproof.measure.probe.parameters import PREDICTED
from draftproof.measure.probe.run import ProbePlan, run_probe
from draftproof.measure.workloads import load
from support.fake_endpoint import Planted, serving


@pytest.mark.parametrize("accepted", [True, False])
@pytest.mark.parametrize("refused", [(), ("stream_options", "max_tokens", "temperature")])
@pytest.mark.parametrize("num_prompts", [0, 1, 3])
def test_no_run_sends_more_than_was_estimated(
    accepted: bool, num_prompts: int, refused: tuple[str, ...]
) -> None:
    prompts = load("edit").prompts[:num_prompts]
    with serving(Planted(refused=refused)) as server:
        client = Client(endpoint=parse_endpoint(server.url, None, None, None))
        plan = ProbePlan(
            model=None, accepted=accepted, observed=True, prompts=prompts, max_tokens=16, server_pages=False
        )
        run_probe(client, plan, lambda done, total, what: None)
        posted = len(server.bodies)
    assert posted <= estimate(accepted, prompts, 16).requests
    assert client.spent.requests == posted


def test_tokens_and_prices_by_hand() -> None:
    assert estimated_tokens("a" * 300) == 100
    assert estimated_tokens("ä") == 1
    assert estimated_tokens("") == 0
    prompts = load("edit").prompts[:2]
    cost = estimate(False, prompts, 100)
    assert [part.requests for part in cost.parts] == [5, 2, 6]
    assert sum(part.rejected_tokens for part in cost.parts) == 400 + estimated_tokens(PREDICTED)
    completion = sum(part.completion_tokens for part in cost.parts)
    assert completion == 5 * 16 + 2 * 100 + 6 * 100
    assert cost.price(Price(prompt=0, completion=10)) == pytest.approx(
        (completion + 400 + estimated_tokens(PREDICTED)) * 10 / 1e6
    )
