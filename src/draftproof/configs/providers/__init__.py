"""What providers and engines document about speculation, by deployment type and model: dated facts with their source.

Called by `probe`, by the prediction helper and by the generated page. Talks to no endpoint and concludes nothing.
"""

from draftproof.configs.providers.model import (
    NOT_DOCUMENTED,
    TOPICS,
    DeploymentType,
    Fact,
    Known,
    PredictionRule,
    Provider,
    Topic,
)
from draftproof.configs.providers.table import deployment_type, deployment_types, provider_of_host, providers

__all__ = [
    "NOT_DOCUMENTED",
    "TOPICS",
    "DeploymentType",
    "Fact",
    "Known",
    "PredictionRule",
    "Provider",
    "Topic",
    "deployment_type",
    "deployment_types",
    "provider_of_host",
    "providers",
]
