"""One view of a checkpoint for everything that judges without loading: configuration, tokenizer, tensor shapes.

Called by rules, the planner, advice and the deployment record. Local directory, GGUF file or hub id; nothing is read
before it is asked for, no tensor data beyond small index tensors, everything bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from draftproof.checkpoints.hub_settings import HubSettings
    from draftproof.checkpoints.vocabulary import Vocabulary

Kind = Literal["safetensors", "gguf", "config"]


class TensorInfo(NamedTuple):
    """dtype by the format's own name (BF16, F8_E4M3, Q4_K …), shape with rows first, bytes in the file `where`."""

    dtype: str
    shape: tuple[int, ...]
    num_bytes: int
    where: str


Header = dict[str, tuple[TensorInfo, int]]
"""Of one file: tensor name → what it is, and the place of its first byte. Tensors alike share one `TensorInfo`: there
may be hundreds of thousands."""


class CheckpointView(Protocol):
    """What is known of one checkpoint. Absent parts are None or empty, broken ones raise DP402, never guessed.

    Values inside configurations come as the file has them, of any JSON type: judge their types before use.
    """

    @property
    def reference(self) -> str:
        """As the user named it."""
        ...

    @property
    def source(self) -> str:
        """In words, where it was read from: a directory, a file, the hub cache, a hub."""
        ...

    @property
    def kind(self) -> Kind:
        """config: a directory or repository with a config.json and no readable weights."""
        ...

    @property
    def revision(self) -> str | None:
        """The commit of the hub's repository, where that is known."""
        ...

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a reader of findings should know: shards that are missing, pickled weights that were not read."""
        ...

    @property
    def config(self) -> Mapping[str, Any]:
        """config.json; for GGUF its metadata without the vocabulary's arrays, keys as in the file."""
        ...

    @property
    def language_config(self) -> Mapping[str, Any]:
        """The language model's configuration by Transformers' names, flat.

        A nested one (text_config, thinker_config, transformer_layer_config …) comes with the outer keys that it does
        not have itself; GGUF metadata is renamed (`gguf_names`), and what has no such name is left out.
        """
        ...

    @property
    def quantization_config(self) -> Mapping[str, Any]:
        """quantization_config of config.json, else ModelOpt's hf_quant_config.json (its `quantization` object)."""
        ...

    @property
    def generation_config(self) -> Mapping[str, Any]: ...

    @property
    def tokenizer_config(self) -> Mapping[str, Any]: ...

    @property
    def chat_template(self) -> str | None:
        """The default one."""
        ...

    @property
    def files(self) -> frozenset[str]:
        """Names of the files at hand; for a hub, of the repository's."""
        ...

    @property
    def tensor_names(self) -> frozenset[str] | None:
        """All names, from the index where there is one: known even where shards are missing. None without weights."""
        ...

    @property
    def tensors(self) -> Mapping[str, TensorInfo] | None:
        """By name in the file; None where not every header is at hand."""
        ...

    @property
    def tokenizer(self) -> str:
        """In words: what the vocabulary is read from, or why none is."""
        ...

    def tokenizer_digest(self) -> str | None:
        """SHA-256 of what the vocabulary is made of (tokenizer files, or a GGUF file's tokens with their kinds): two
        checkpoints with equal ones need not be compared. None where there is none."""
        ...

    def vocabulary(self) -> Vocabulary | None:
        """None where there is no tokenizer that is read; `tokenizer` says which there is."""
        ...

    def integers(self, tensor: str, limit: int = 1 << 20) -> list[int] | None:
        """Values of a small integer or boolean tensor (d2t, t2d).

        None where it is absent, is larger than `limit`, or its file is not at hand.
        """
        ...

    def hashes(self, progress: Callable[[str], None] = lambda name: None) -> Mapping[str, str]:
        """File name → sha256 of each file that decides what the model computes; `progress` is told each name.

        A local directory is read whole, however large. What a hub or its cache names by sha256 is taken from there.
        """
        ...


def open_view(
    reference: str,
    *,
    revision: str | None = None,
    hub: HubSettings | None = None,
    preferred: tuple[str, ...] = (),
) -> CheckpointView:
    """The checkpoint that `reference` names: a directory, a GGUF file, or `org/name[@revision]` of a hub.

    Of a repository's GGUF models, `org/name:Q4_K_M` or `org/name/file.gguf` names one. Where none is named and there
    are several, the first of the quantisations `preferred` is taken, else the first model; without `preferred` that is
    refused with the list.

    What exists on this machine goes before the hub's; `source` says which it was. `hub` None: as the environment
    says (HF_ENDPOINT, HF_TOKEN, HF_HUB_CACHE, HF_HOME, HF_HUB_OFFLINE). A hub's local cache is looked up first, and
    the hub is asked only for what that lacks. Opening lists files; everything else is read when it is asked for.

    Raises DP401 where there is nothing, DP402 for a broken file, DP407 for a pickled one, DP411 to DP414 for what a
    hub does not give.
    """
    from draftproof.checkpoints.opening import open_reference

    return open_reference(reference, revision, hub, preferred)
