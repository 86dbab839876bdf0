"""Addresses as people give them, Azure's paths, and what is refused without being shown."""

import pytest

from draftproof.configs.providers import deployment_type
from draftproof.core.errors import DraftproofError
from draftproof.measure.probe.endpoint import Endpoint, parse_endpoint

AZURE = deployment_type("azure-openai", "deployment")
FIREWORKS = deployment_type("fireworks", "serverless")


@pytest.mark.parametrize(
    ("url", "chat_url"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/v1/chat/completions"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080/v1/chat/completions"),
        ("https://host/v1", "https://host/v1/chat/completions"),
        ("https://host/a/b/v1/", "https://host/a/b/v1/chat/completions"),
        ("https://host/v1/chat/completions", "https://host/v1/chat/completions"),
        ("http://[::1]:9/v1", "http://[::1]:9/v1/chat/completions"),
    ],
)
def test_a_host_a_base_and_the_full_address(url: str, chat_url: str) -> None:
    assert parse_endpoint(url, None, None, None).chat_url == chat_url


def test_paths_of_providers() -> None:
    assert parse_endpoint("https://api.fireworks.ai", FIREWORKS, None, None).chat_path == (
        "/inference/v1/chat/completions"
    )


def azure(url: str = "https://team.openai.azure.com", version: str | None = None) -> Endpoint:
    return parse_endpoint(url, AZURE, "my deployment", version)


def test_azure_has_the_deployment_in_its_path_and_a_version() -> None:
    found = azure()
    assert found.chat_path == (
        "/openai/deployments/my%20deployment/chat/completions?api-version=2025-01-01-preview"
    )
    assert (found.auth, found.model_in_path) == ("api-key", True)
    assert azure(version="2025-04-01-preview").chat_path.endswith("api-version=2025-04-01-preview")
    full = "https://team.openai.azure.com/openai/deployments/d/chat/completions?api-version=2024-10-21"
    assert azure(full).chat_path.endswith("/deployments/d/chat/completions?api-version=2024-10-21")


def test_azure_without_a_name_of_the_deployment_is_dp121() -> None:
    with pytest.raises(DraftproofError) as caught:
        parse_endpoint("https://team.openai.azure.com", AZURE, None, None)
    assert (caught.value.code, caught.value.field) == ("DP121", "--model")


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:8080", "ftp://host", "https://", "http://host:99999", "http://host:0", "http://[::1", "",
        "https://host/v1#part", "https://ho st/v1", "https://host/v1\nX: y",
    ],
)  # fmt: skip
def test_what_is_no_address_is_dp121(url: str) -> None:
    with pytest.raises(DraftproofError) as caught:
        parse_endpoint(url, None, None, None)
    assert caught.value.code == "DP121"


@pytest.mark.parametrize(
    "url",
    [
        "https://user:SECRET@host/v1",
        "https://SECRET@host/v1",
        "https://host/v1?key=SECRET",
        "https://h/?SECRET",
    ],
)
def test_credentials_in_an_address_are_refused_and_not_shown(url: str) -> None:
    with pytest.raises(DraftproofError) as caught:
        parse_endpoint(url, None, None, None)
    assert caught.value.code == "DP121"
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    ("host", "local"),
    [("127.0.0.1", True), ("localhost", True), ("[::1]", True), ("10.0.0.1", False), ("example.com", False)],
)
def test_what_is_this_machine(host: str, local: bool) -> None:
    assert parse_endpoint(f"http://{host}/v1", None, None, None).is_local is local
