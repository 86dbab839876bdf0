"""Checkpoints by hub id: what is fetched, what the local cache gives, and what a hub's faults get."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from draftproof.checkpoints.hub_client import MAX_SKIPPED_BYTES
from draftproof.checkpoints.hub_settings import HubSettings, parse_hub_id, settings_from_environment
from draftproof.checkpoints.view import CheckpointView, open_view
from draftproof.core.errors import DraftproofError
from support.checkpoints import write_checkpoint
from support.fake_hub import COMMIT, Answer, FakeHub, drip, fake_hub

NAME = "some-org/tiny-llama"
TOKEN = "hf_secret_of_the_test"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("repository"), num_shards=3, layers=2, vocab=320)


@pytest.fixture
def hub(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    with fake_hub({NAME: repository}) as server:
        yield server


def look(hub: FakeHub, reference: str = NAME, **changes: object) -> CheckpointView:
    settings = {"endpoint": hub.endpoint, "timeout_s": 20.0, "deadline_s": 60.0, **changes}
    return open_view(reference, hub=HubSettings(**settings))  # type: ignore[arg-type]  # values of a test


def read_all(view: CheckpointView) -> list[object]:
    return [
        view.config, view.generation_config, view.tokenizer_config, view.chat_template, view.remarks,
        view.tensor_names, view.vocabulary(), view.language_config, view.quantization_config,
    ]  # fmt: skip


def refused(hub: FakeHub, **changes: object) -> DraftproofError:
    def look_at_everything() -> None:
        view = look(hub, **changes)
        read_all(view)
        assert view.tensors
        view.hashes()

    with pytest.raises(DraftproofError) as caught:
        look_at_everything()
    assert TOKEN not in str(caught.value)
    return caught.value


def test_a_repository_reads_as_the_directory_does(hub: FakeHub, repository: Path) -> None:
    remote, local = look(hub), open_view(str(repository))
    assert read_all(remote) == read_all(local)
    assert remote.tensors == local.tensors
    assert remote.hashes() == local.hashes()
    assert (remote.kind, remote.revision) == ("safetensors", COMMIT)
    assert hub.endpoint in remote.source
    assert COMMIT in remote.source


def test_weights_are_never_fetched(hub: FakeHub, repository: Path) -> None:
    view = look(hub)
    assert view.tensors
    view.hashes()
    for seen in hub.seen:
        if seen.path.endswith(".safetensors"):
            assert "range" in seen.headers
    fetched = [seen.path for seen in hub.seen if seen.path.endswith("tokenizer.json")]
    assert fetched == []


def test_names_need_the_index_alone(hub: FakeHub) -> None:
    view = look(hub)
    assert view.tensor_names
    assert not any(path.endswith(".safetensors") for path in hub.paths())
    assert view.integers("absent") is None


def test_each_file_is_fetched_once(hub: FakeHub) -> None:
    view = look(hub)
    read_all(view)
    read_all(view)
    paths = hub.paths()
    assert len(paths) == len(set(paths))


def test_a_hub_that_lists_no_sizes_is_asked_for_them(hub: FakeHub, repository: Path) -> None:
    hub.lists_blobs = False
    view, local = look(hub), open_view(str(repository))
    assert view.tensors == local.tensors
    assert view.hashes() == local.hashes()


def test_revisions(hub: FakeHub) -> None:
    assert look(hub, f"{NAME}@{COMMIT}").revision == COMMIT
    assert open_view(NAME, revision="main", hub=HubSettings(endpoint=hub.endpoint)).revision == COMMIT
    with pytest.raises(DraftproofError) as caught:
        look(hub, f"{NAME}@other")
    assert (caught.value.code, "RevisionNotFound" in caught.value.found) == ("DP401", True)


def test_the_token_goes_to_the_hub_and_nowhere_else(hub: FakeHub, repository: Path) -> None:
    with fake_hub({NAME: repository}) as storage:
        other_host = storage.endpoint.replace("127.0.0.1", "localhost")

        def redirect(answer: Answer) -> None:
            answer.refuse(302, "", {"Location": other_host + answer.path})

        hub.fault = redirect
        view = look(hub, token=TOKEN)
        assert view.tensors
        assert all(seen.headers["authorization"] == f"Bearer {TOKEN}" for seen in hub.seen)
        assert storage.seen
        assert all("authorization" not in seen.headers for seen in storage.seen)
    assert TOKEN not in repr(HubSettings(token=TOKEN))


# What hubs answer instead


@pytest.mark.parametrize(
    ("status", "reason", "code", "remedy"),
    [
        (401, "RepoNotFound", "DP401", "spelling"),
        (401, "GatedRepo", "DP412", "HF_TOKEN"),
        (403, "GatedRepo", "DP412", "conditions"),
        (404, "RepoNotFound", "DP401", "spelling"),
        (410, "", "DP401", "spelling"),
        (429, "", "DP412", "Wait"),
        (418, "", "DP411", "HF_ENDPOINT"),
        (500, "", "DP411", "HF_HUB_OFFLINE"),
        (503, "", "DP411", "network"),
        (204, "", "DP402", ""),
    ],
)
def test_refusals_have_remedies(hub: FakeHub, status: int, reason: str, code: str, remedy: str) -> None:
    hub.faulty, hub.fault = "/api/", lambda answer: answer.refuse(status, reason)
    error = refused(hub)
    assert (error.code, remedy in error.remedy) == (code, True)


def test_a_refused_token_is_told_apart(hub: FakeHub) -> None:
    hub.faulty, hub.fault = "/api/", lambda answer: answer.refuse(401, "")
    error = refused(hub, token=TOKEN)
    assert (error.code, "valid" in error.remedy) == ("DP412", True)


def test_how_long_to_wait_is_passed_on(hub: FakeHub) -> None:
    hub.fault = lambda answer: answer.refuse(429, "", {"Retry-After": "37"})
    assert "Wait 37 seconds" in refused(hub).remedy


def test_a_fault_that_passes_is_asked_again(hub: FakeHub) -> None:
    def once(answer: Answer) -> None:
        hub.fault = None
        answer.refuse(503, "")

    hub.faulty, hub.fault = "/api/", once
    assert look(hub).revision == COMMIT


def ignore_ranges(answer: Answer) -> None:
    answer.send(200, answer.content() or b"")


def test_a_server_that_ignores_ranges_is_read_to_the_header_only(hub: FakeHub, repository: Path) -> None:
    hub.faulty, hub.fault = r"\.safetensors$", ignore_ranges
    assert look(hub).tensors == open_view(str(repository)).tensors


def test_gigabytes_are_not_fetched_from_a_server_that_ignores_ranges(hub: FakeHub) -> None:
    def endless(answer: Answer) -> None:
        answer.start(200, {"Content-Length": str(1 << 40)})
        while True:
            answer.write(bytes(1 << 16))

    hub.faulty, hub.fault = r"\.safetensors$", endless
    assert refused(hub).code in ("DP402", "DP413")
    sent = max(seen.num_bytes for seen in hub.seen)
    assert sent < MAX_SKIPPED_BYTES


FAULTS: Mapping[str, tuple[object, str]] = {
    "a page instead of the file": (lambda a: a.send(200, b"<html>sign in</html>"), "DP413"),
    "compressed": (lambda a: a.send(200, b"\x1f\x8b", {"Content-Encoding": "gzip"}), "DP413"),
    "another range": (lambda a: a.send(206, bytes(64), {"Content-Range": "bytes 9-72/100"}), "DP413"),
    "no range": (lambda a: a.send(206, bytes(64)), "DP413"),
    "a range of words": (lambda a: a.send(206, bytes(64), {"Content-Range": "bytes all"}), "DP413"),
    "too short a range": (lambda a: a.send(206, b"1", {"Content-Range": "bytes 0-99/9999"}), "DP413"),
    "another size": (lambda a: a.send(206, bytes(64), {"Content-Range": "bytes 0-63/64"}), "DP413"),
    "a length that is too long": (lambda a: a.send(200, b"{}", {"Content-Length": "500"}), "DP411"),
    "redirects in a circle": (lambda a: a.refuse(302, "", {"Location": a.path}), "DP411"),
    "a redirect to a file": (lambda a: a.refuse(302, "", {"Location": "file:///etc/passwd"}), "DP411"),
    "a redirect to nowhere": (lambda a: a.refuse(302, "", {"Location": "http://:x/"}), "DP411"),
    "no answer": (lambda a: time.sleep(3), "DP411"),
    "not HTTP": (lambda a: a.wfile.write(b"SSH-2.0-OpenSSH\r\n"), "DP411"),
    "headers without end": (drip, "DP411"),
}


SLOW = ("no answer", "not HTTP", "headers without end", "a length that is too long")
"""Ended by our own limits."""


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("faulty", ["/api/", "/config.json", r"\.safetensors$"])
def test_faults_of_hubs(hub: FakeHub, faulty: str, fault: str) -> None:
    answer, code = FAULTS[fault]
    hub.faulty, hub.fault = faulty, answer  # type: ignore[assignment]  # one of the functions above
    limits = {"timeout_s": 0.4, "deadline_s": 0.8} if fault in SLOW else {}
    error = refused(hub, **limits)
    assert error.code in (code, "DP402", "DP413"), error


def test_a_listing_of_anything_else(hub: FakeHub) -> None:
    for document in ([], {}, {"sha": 1}, {"sha": COMMIT, "siblings": 3}, {"sha": "x", "siblings": []}):
        body = json.dumps(document).encode()
        hub.faulty, hub.fault = "/api/", lambda answer, body=body: answer.send(200, body)
        assert refused(hub).code in ("DP402", "DP413")
    for siblings in ([1, None, {}], [{"rfilename": 5}], [{"rfilename": "../config.json"}]):
        body = json.dumps({"sha": COMMIT, "siblings": siblings}).encode()
        hub.faulty, hub.fault = "/api/", lambda answer, body=body: answer.send(200, body)
        assert refused(hub).code == "DP401"


def test_a_hub_that_is_not_there(hub: FakeHub) -> None:
    assert refused(hub, endpoint="http://127.0.0.1:1").code == "DP411"
    secret = refused(hub, endpoint="http://user:password@127.0.0.1:1")
    assert "password" not in str(secret)


# The local cache


def fill_cache(
    cache: Path, repository: Path, names: list[str] | None = None, reference: str = "main"
) -> None:
    folder = cache / ("models--" + NAME.replace("/", "--"))
    snapshot = folder / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (folder / "blobs").mkdir()
    (folder / "refs").mkdir()
    (folder / "refs" / reference).parent.mkdir(parents=True, exist_ok=True)
    (folder / "refs" / reference).write_text(COMMIT)
    for path in repository.iterdir():
        if names is None or path.name in names:
            content = path.read_bytes()
            blob = folder / "blobs" / hashlib.sha256(content).hexdigest()
            blob.write_bytes(content)
            (snapshot / path.name).symlink_to(blob)


def test_a_cached_repository_needs_no_network(hub: FakeHub, repository: Path, tmp_path: Path) -> None:
    fill_cache(tmp_path, repository)
    view, local = look(hub, cache=tmp_path), open_view(str(repository))
    assert read_all(view) == read_all(local)
    assert view.tensors == local.tensors
    assert view.hashes() == local.hashes()
    assert view.revision == COMMIT
    assert "cache" in view.source
    assert look(hub, f"{NAME}@{COMMIT}", cache=tmp_path).revision == COMMIT
    assert hub.seen == []


def test_what_the_cache_lacks_comes_from_the_same_commit(
    hub: FakeHub, repository: Path, tmp_path: Path
) -> None:
    fill_cache(tmp_path, repository, ["config.json"])
    view = look(hub, cache=tmp_path)
    assert view.tensors == open_view(str(repository)).tensors
    assert view.config["vocab_size"] == 320
    assert not any("config.json" in path for path in hub.paths() if "generation" not in path)
    assert all(COMMIT in path for path in hub.paths())


def test_other_revisions_and_references(hub: FakeHub, repository: Path, tmp_path: Path) -> None:
    fill_cache(tmp_path, repository, reference="refs/pr/1")
    assert look(hub, f"{NAME}@refs/pr/1", cache=tmp_path).revision == COMMIT
    assert hub.seen == []


def test_offline(hub: FakeHub, repository: Path, tmp_path: Path) -> None:
    error = refused(hub, cache=tmp_path, is_offline=True)
    assert (error.code, "HF_HUB_OFFLINE" in error.remedy) == ("DP414", True)
    fill_cache(tmp_path, repository, ["config.json"])
    view = look(hub, cache=tmp_path, is_offline=True)
    assert (view.kind, view.tensors) == ("config", None)
    assert hub.seen == []


def test_caches_that_are_broken_are_no_caches(hub: FakeHub, repository: Path, tmp_path: Path) -> None:
    fill_cache(tmp_path, repository)
    reference = tmp_path / ("models--" + NAME.replace("/", "--")) / "refs" / "main"
    for content in (b"", b"../../..", b"\xff" * 40, b"main"):
        reference.write_bytes(content)
        assert "hub " + hub.endpoint in look(hub, cache=tmp_path).source


def test_what_lies_here_goes_before_the_hub(
    hub: FakeHub, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "hub" in look(hub).source
    (tmp_path / NAME).mkdir(parents=True)
    (tmp_path / NAME / "config.json").write_text('{"here": true}')
    view = look(hub)
    assert view.config == {"here": True}
    assert "directory" in view.source


@pytest.mark.parametrize(
    "reference",
    [
        "name",
        "a/b/c",
        "./a/b",
        "/a/b",
        "a/..",
        "a/b@",
        "a/b@../c",
        "a b/c",
        "a/b--c",
        "a/b\n",
        "ä/b",
        "a/b@-x",
        "",
    ],
)
def test_what_is_no_hub_id(reference: str) -> None:
    assert parse_hub_id(reference) is None
    with pytest.raises(DraftproofError) as caught:
        open_view(reference, hub=HubSettings(endpoint="http://127.0.0.1:1"))
    assert caught.value.code == "DP401"


def test_revisions_that_contradict_or_cannot_be() -> None:
    for reference, revision in (("a/b@x", "y"), ("a/b", "../x"), ("a/b", "x y")):
        with pytest.raises(DraftproofError) as caught:
            parse_hub_id(reference, revision)
        assert caught.value.code == "DP401"


def test_the_environment_decides(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("of the file\n")
    plain = settings_from_environment({"HF_HOME": str(tmp_path)})
    assert plain.endpoint == "https://huggingface.co"
    assert (plain.token, plain.cache, plain.is_offline) == ("of the file", tmp_path / "hub", False)
    given = settings_from_environment(
        {
            "HF_HOME": str(tmp_path),
            "HF_TOKEN": TOKEN,
            "HF_HUB_CACHE": "/cache",
            "HF_ENDPOINT": "https://mirror.example/hub/",
            "HF_HUB_OFFLINE": "true",
        }
    )
    assert (given.endpoint, given.token) == ("https://mirror.example/hub", TOKEN)
    assert (given.cache, given.is_offline) == (Path("/cache"), True)
    with pytest.raises(DraftproofError) as caught:
        settings_from_environment({"HF_ENDPOINT": "ftp://me:secret@host"})
    assert (caught.value.code, "secret" in str(caught.value)) == ("DP411", False)
