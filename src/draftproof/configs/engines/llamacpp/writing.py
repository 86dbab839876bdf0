"""Writes a deployment for `llama-server`.

Called by the dialect. Several types in one list are a cascade for llama.cpp, in an order of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from draftproof.configs.engines.account import shown
from draftproof.configs.engines.base import Artifact
from draftproof.configs.engines.dialect import Writer
from draftproof.configs.engines.llamacpp import words
from draftproof.configs.engines.llamacpp.names import is_file
from draftproof.configs.reading.options import Option
from draftproof.configs.reading.shell import write_command
from draftproof.configs.speculation import Speculation

_S = "speculation."
_EXTRAS = "speculation.extras.llamacpp."
_TYPES = {method: kind for kind, method in words.DRAFT_TYPES.items()}
_OWN = {option.name.removeprefix("--"): option for option in (*words.OWN, *words.SYNTHETIC)}
_WHY_NOT: Mapping[str, str] = {
    "suffix": "llama.cpp has no suffix tree; ngram-mod, with a pool that requests share, and ngram-map-k4v are nearest",
    "predicted": "llama-server has no predicted outputs; the ngram types draft from the request's own text",
    "self": "llama.cpp does not draft with the target's own weights at fewer bits: name a smaller file as drafter",
    "eagle": "llama.cpp has EAGLE-3 heads, not those of the first two generations",
    "auto": "llama.cpp takes named types: name one of " + ", ".join(words.PRIORITY),
}
_DROPPED: Mapping[str, str] = {
    "standard": "a draft that is not drawn is accepted while it is what the target samples, which happens as often; "
    "--spec-draft-sampling probabilistic verifies drawn ones by rejection sampling",
    "block": "llama.cpp verifies token by token",
    "coupled": "the target's own sample decides here, too, but not under a noise that plain decoding shares",
    "lossy": "the other engine's rule, which changes the text, is not one of llama.cpp's: verification is exact again",
    "exact_match": "with drawn drafts llama.cpp verifies by rejection sampling",
}
_UNSAID: Mapping[str, str] = {
    "tree": "llama.cpp drafts chains: fewer candidates per position are tried",
    "schedule": "llama.cpp drafts alike at every batch size",
    "draft_weights": "a drafter's file has its own types",
    "draft_tensor_parallel": "a drafter's devices are chosen with --spec-draft-device",
    "draft_max_model_len": "a drafter gets the target's context",
}


class LlamaCppWriter(Writer):
    why_not_here = _UNSAID

    def write(self) -> tuple[Artifact, ...]:
        account = self.account
        self._deployment()
        self._speculation()
        self._around()
        said = account.said.get("extras.llamacpp.launcher", "llama-server")
        launcher = said if isinstance(said, tuple) else (said,)
        environment = dict(account.said.get("extras.llamacpp.env", {})).items()
        return (
            Artifact(name="command", text=write_command([*map(str, launcher), *self.words], environment)),
        )

    def _deployment(self) -> None:
        account = self.account
        if account.is_said("target"):
            self._model("target", words.MODEL, words.HUB)
        length, slots = account.value("max_model_len"), account.said.get("max_num_seqs")
        unified = account.said.get("extras.llamacpp.kv-unified")
        if slots is not None and length is None and not self.own:
            self.words += [words.PARALLEL.name, str(slots)]
            reason = f"each slot gets an equal part of the context: give {words.CONTEXT.name} for all of them"
            account.converted("max_num_seqs", f"{words.PARALLEL.name} {slots}", reason, words.SOURCE)
        elif slots is not None:
            self._write("max_num_seqs", words.PARALLEL.name, slots)
        if length is not None:
            whole = length * slots if slots is not None and unified is not True else length
            self.words += [words.CONTEXT.name, str(whole)]
            after = f"{words.CONTEXT.name} {whole}"
            if whole == length:
                account.kept("max_model_len", after, "the length that one request may reach")
            else:
                account.converted("max_model_len", after, "the sum over all slots", words.SOURCE)
        caches = account.value("prefix_caching")
        if caches is not None:
            flag = words.CACHES.name if caches else words.CACHES_NOT.name
            self.words.append(flag)
            account.kept("prefix_caching", flag)
        self._cache("kv_dtype", words.CACHE_K, words.CACHE_V)

    def _cache(self, path: str, keys: Option, values: Option) -> None:
        dtype = self.account.value(path)
        if dtype is None:
            return
        word = _CACHE_WORDS.get(dtype, dtype if dtype in words.QUANTISED_CACHES else None)
        if word is None:
            known = ", ".join([*words.CACHE_TYPES.values(), *sorted(words.QUANTISED_CACHES)])
            self.account.dropped(path, f"llama.cpp's caches are {known}", words.SOURCE)
            return
        self.words += [keys.name, word, values.name, word]
        self.account.kept(path, f"{keys.name} {word} {values.name} {word}")

    def _model(self, path: str, file: Option, hub: Option) -> None:
        """The model's flag, as a file or a repository; another engine's repository holds no GGUF file as a rule."""
        account, name = self.account, str(self.account.said[path])
        quantization, revision = (
            account.said.get(f"{path}.quantization"),
            account.said.get(f"{path}.revision"),
        )
        mark = f"extras.llamacpp.{path.removeprefix(_S)}-is"
        mark = mark if path == "target" else f"{_S}{mark}"
        as_file = account.said[mark] == "file" if mark in account.said else is_file(name)
        if name.startswith("-"):
            account.impossible(path, "a name that begins with a dash is taken for a flag", words.SOURCE)
            return
        if mark in account.said:
            account.kept(mark, "a file" if as_file else "a repository")
        if revision is not None:
            account.dropped(f"{path}.revision", "llama.cpp takes the newest revision")
        if as_file:
            if quantization is not None:
                account.dropped(f"{path}.quantization", "a file has its own types")
            self._write(path, file.name, name)
            return
        fits = quantization is not None and self.own and mark not in account.said
        whole = f"{name}:{quantization}" if fits else name
        if quantization is not None:
            if fits:
                account.kept(f"{path}.quantization", whole)
            else:
                account.dropped(
                    f"{path}.quantization", "a word of the other engine's; name a GGUF type behind a colon"
                )
        self.words += [hub.name, whole]
        after = f"{hub.name} {whole}"
        if self.own:
            account.kept(path, after)
        else:
            reason = "llama.cpp reads GGUF: where the repository has no such file, name a conversion of it"
            account.converted(path, after, reason, words.SOURCE)

    def _write(self, path: str, flag: str, value: object) -> None:
        self.words += [flag, str(value)]
        self.account.kept(path, f"{flag} {value}")

    def _speculation(self) -> None:
        account, method = self.account, self.account.said["speculation.method"]
        if method == "none":
            account.kept(
                "speculation.method", "no --spec-type", "llama.cpp does not draft unless it is told to"
            )
        elif method == "cascade":
            self._cascade()
        else:
            kind = self.type()
            if kind is not None:
                self.words += [words.TYPE.name, kind]
                self.part(kind)
                self.own_flags()

    def type(self) -> str | None:
        """llama.cpp's type, noted; None where it has none."""
        account, method = self.account, self.account.said["speculation.method"]
        own = account.said.get(f"{_EXTRAS}type")
        if method == "ngram" and own in words.NGRAM_TYPES:
            account.kept("speculation.method", f"{words.TYPE.name} {own}")
            account.kept(f"{_EXTRAS}type", str(own))
            return str(own)
        if method == "ngram" or method in _TYPES:
            kind = _TYPES.get(method, words.PLAIN_NGRAM)
            account.kept("speculation.method", f"{words.TYPE.name} {kind}")
            return kind
        reason = _WHY_NOT.get(method, f"llama.cpp has no type for {method}")
        account.impossible("speculation.method", reason, words.SOURCE)
        return None

    def part(self, kind: str) -> None:
        """The flags of one type."""
        account = self.account
        if kind in words.DRAFT_TYPES:
            if account.is_said("speculation.drafter"):
                self._model("speculation.drafter", words.DRAFTER, words.DRAFTER_HUB)
            elif kind != "draft-mtp":
                account.impossible(
                    "speculation.drafter", f"{kind} needs a drafter's file or repository", words.SOURCE
                )
            self._cache("speculation.draft_kv_dtype", words.DRAFT_CACHE_K, words.DRAFT_CACHE_V)
        self._length_of_ngram(kind)
        for flag in words.FLAGS[kind]:
            value = account.value(_S + flag.path)
            if value is None or account.is_noted(_S + flag.path):
                continue
            if (flag.low is not None and value < flag.low) or (flag.high is not None and value > flag.high):
                limits = (
                    f"from {flag.low} to {flag.high}" if flag.high is not None else f"at least {flag.low}"
                )
                account.impossible(_S + flag.path, f"{flag.name} takes {limits}", words.SOURCE)
            else:
                self._write(_S + flag.path, flag.name, value)
        if account.value("speculation.depth") is None and not self.own:
            self._derived_depth(kind)
        self._rules(kind)

    def _length_of_ngram(self, kind: str) -> None:
        """llama.cpp looks up n-grams of one length: the shortest that is asked for finds every place."""
        account = self.account
        least, most = account.value(f"{_S}lookup.min_ngram"), account.value(f"{_S}lookup.max_ngram")
        flag = next((flag for flag in words.FLAGS[kind] if flag.path == "lookup.max_ngram"), None)
        if flag is None or least is None or least == most:
            if least is not None and flag is not None and self.own:
                account.dropped(f"{_S}lookup.min_ngram", "one length only: that of the longest")
            elif least is not None and flag is not None:
                account.kept(f"{_S}lookup.min_ngram", f"{flag.name} {least}", "one length only")
            return
        if self.own and most is None:
            account.dropped(f"{_S}lookup.min_ngram", "one length only: that of the longest")
            return
        if not 1 <= least <= 1024:
            account.impossible(f"{_S}lookup.min_ngram", f"{flag.name} takes from 1 to 1024", words.SOURCE)
            return
        self.words += [flag.name, str(least)]
        account.kept(f"{_S}lookup.min_ngram", f"{flag.name} {least}", "one length only")
        if most is not None:
            account.dropped(
                f"{_S}lookup.max_ngram",
                f"llama.cpp looks up one length: {least} finds every place, but does not prefer longer matches",
                words.SOURCE,
            )

    def _derived_depth(self, kind: str) -> None:
        """K where another engine's configuration says it in another way."""
        flag = next((flag for flag in words.FLAGS[kind] if flag.path == "depth"), None)
        levels = self.account.value(f"{_S}tree.depth")
        schedule = self.account.value(f"{_S}schedule") or ()
        depth = levels or max((part.depth for part in schedule), default=0)
        if flag is None or not depth:
            return
        self.words += [flag.name, str(depth)]
        reason = "the levels of the tree as a chain" if levels else "the largest K of the schedule"
        self.account.converted("speculation.depth", f"{flag.name} {depth}", reason, words.SOURCE)

    def _rules(self, kind: str) -> None:
        account, path = self.account, "speculation.verification"
        rule = account.said.get(path)
        drawn = kind in words.DRAFT_TYPES and account.value("speculation.draft_sampling") == "probabilistic"
        if rule is None:
            pass
        elif rule == "lossy" and any(
            f"{_EXTRAS}{option.name[2:]}" in account.said for option in words.SYNTHETIC
        ):
            account.kept(path, "synthetic acceptance")
        elif rule == ("standard" if drawn else "exact_match"):
            account.kept(
                path, "as drafts are drawn" if drawn else "as drafts are not drawn", "no flag of its own"
            )
        else:
            account.dropped(path, _DROPPED[rule], words.SOURCE)
        adaptive = account.value("speculation.adaptive")
        if adaptive is False:
            account.kept("speculation.adaptive", "a fixed length", "llama.cpp does not tune it")
        elif adaptive is True:
            account.dropped(
                "speculation.adaptive", "llama.cpp does not tune the length of drafts", words.SOURCE
            )

    def own_flags(self) -> None:
        account = self.account
        for path in account.under("speculation.extras"):
            key = path.removeprefix(_EXTRAS)
            if account.is_noted(path) or key == path:
                continue
            flag = f"--{key}"
            value = account.said[path]
            if value is True and key in _OWN and _OWN[key].kind == "flag":
                self.words.append(flag)
                account.kept(path, flag)
            elif flag in _SINGLE and isinstance(value, str | int | float) and not isinstance(value, bool):
                self._write(path, flag, value)

    def _cascade(self) -> None:
        account, path = self.account, "speculation.parts"
        parts: tuple[Speculation, ...] = account.value(path) or ()
        writers = [self.alone(part) for part in parts]
        kinds = [writer.type() for writer in writers]
        for kind, writer in zip(kinds, writers, strict=True):
            if kind is not None:
                writer.part(kind)
                writer.own_flags()
        changes = [change for number, writer in enumerate(writers, 1) for change in writer.changes(number)]
        order = [words.PRIORITY.index(kind) for kind in kinds if kind is not None]
        several = sum(kind in words.DRAFT_TYPES for kind in kinds) > 1
        if not parts or any(writer.account.has_impossible for writer in writers):
            account.impossible(path, "; ".join(changes) or "a cascade without parts", words.SOURCE)
        elif order != sorted(set(order)) or several:
            fixed = ", ".join(words.PRIORITY)
            reason = f"llama.cpp asks each type once, in an order of its own ({fixed}), and takes one drafter"
            account.impossible(path, reason, words.SOURCE)
        else:
            flags = [words.TYPE.name, ",".join(kind for kind in kinds if kind is not None)]
            flags += [word for writer in writers for word in writer.words]
            self.words += flags
            account.kept("speculation.method", "several types", "the first that has a draft")
            if changes and not self.own:
                account.converted(path, " ".join(flags), "; ".join(changes), words.SOURCE)
            else:
                account.kept(path, " ".join(flags))
            self.own_flags()
            self._rules(str(kinds[-1]))
        if not account.is_noted("speculation.method"):
            account.impossible("speculation.method", "its parts cannot be said", words.SOURCE)

    def _around(self) -> None:
        account = self.account
        for key in ("env", "launcher"):
            if f"extras.llamacpp.{key}" in account.said:
                account.kept(f"extras.llamacpp.{key}", shown(account.said[f"extras.llamacpp.{key}"]))
        unified = account.said.get("extras.llamacpp.kv-unified")
        if isinstance(unified, bool):
            flag = words.UNIFIED.name if unified else words.NOT_UNIFIED.name
            self.words.append(flag)
            account.kept("extras.llamacpp.kv-unified", flag)
        for option in (words.CONTEXT, words.PARALLEL, words.CACHE_K, words.CACHE_V, words.HUB):
            path = f"extras.llamacpp.{option.name.removeprefix('--')}"
            if path in account.said:
                self._write(path, option.name, account.said[path])
        if self.own and self.deployment.rest:
            self.words += self.deployment.rest
            account.kept("rest", " ".join(self.deployment.rest), "carried along unread")
        for path in ("memory_fraction", "dtype", "tensor_parallel"):
            if account.is_said(path) and not account.is_noted(path):
                account.dropped(path, _AROUND[path])


_AROUND = {
    "memory_fraction": "llama.cpp fits what it loads to the free memory (--fit, --gpu-layers)",
    "dtype": "a GGUF file has its own types",
    "tensor_parallel": "llama.cpp divides a model with --split-mode and --tensor-split",
}
_CACHE_WORDS = {neutral: word for word, neutral in words.CACHE_TYPES.items()}
_SINGLE = frozenset(
    (
        *(option.name for option in (*words.OWN, *words.SYNTHETIC) if option.kind != "flag"),
        *(flag.name for flags in words.FLAGS.values() for flag in flags),
        words.DRAFT_CACHE_K.name,
        words.DRAFT_CACHE_V.name,
        words.DRAFTER_HUB.name,
    )
)
