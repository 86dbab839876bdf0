"""What a server tells of itself beside its answers: version, settings, metrics.

Called by the run, for endpoints of one's own; providers do not have these pages. Reads only, with the key to the same
host. TensorRT-LLM's `/metrics` forgets what it has told, so where that engine is named it is left alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from draftproof.measure.probe.client import Client
from draftproof.measure.probe.signals import Signal, metric_samples, server_signals

PAGES = ("/version", "/server_info", "/props", "/slots")
_DRAINED = "trtllm"


@dataclass(frozen=True, slots=True)
class ServerPage:
    """One page: its status, or why it was not read."""

    path: str
    status: int | None
    signals: tuple[Signal, ...]
    why_not: str | None = None


def read_pages(client: Client) -> tuple[ServerPage, ...]:
    """The pages that describe a server; those that it does not have are kept with their status."""
    pages = []
    for path in PAGES:
        answer = client.get(path)
        body = answer.body
        if body is None and answer.failure is None:
            pages.append(ServerPage(path, answer.status, ()))
            continue
        signals = server_signals(body, client) if body is not None and answer.failure is None else ()
        pages.append(
            ServerPage(path, answer.status, signals, str(answer.failure) if answer.failure else None)
        )
    return tuple(pages)


def metrics_path(provider: str | None) -> str:
    """Where counters can be read without being reset."""
    return "/prometheus/metrics" if provider == _DRAINED else "/metrics"


def read_metrics(client: Client, provider: str | None) -> dict[str, float] | None:
    """Samples that speak of speculation, or None where there is no such page."""
    answer = client.get(metrics_path(provider), accept_text=True)
    if answer.failure is not None or answer.status != 200:
        return None
    return metric_samples(answer.text)


def differences(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """What counters grew by; a counter that is new counts from 0, gauges and falling values are left out."""
    grown = {name: value - before.get(name, 0.0) for name, value in after.items() if _is_counter(name)}
    return {name: value for name, value in grown.items() if value > 0}


def _is_counter(sample: str) -> bool:
    return sample.partition("{")[0].endswith("_total")
