"""The neutral description → a few lines of Python around `generate`. Called by the dialect.

An assistant's own settings are written to its generation config, where Transformers reads them.
"""

from __future__ import annotations

from draftproof.configs.engines.account import changeable
from draftproof.configs.engines.base import Artifact
from draftproof.configs.engines.dialect import Writer
from draftproof.configs.engines.library import chain, literal
from draftproof.configs.engines.transformers import words

_WHY_NOT = {
    "eagle": "Transformers has no EAGLE heads", "eagle3": "Transformers has no EAGLE heads",
    "early_exit": "the layer to leave at is not said",
    "suffix": "Transformers drafts from text by prompt look-up alone: method ngram",
}  # fmt: skip


class TransformersWriter(Writer):
    """`before` are the lines in front of the call, `arguments` those of the call."""

    maps_vocabularies = True

    def write(self) -> tuple[Artifact, ...]:
        self.before: list[str] = []
        self.imports: list[str] = []
        self.arguments: dict[str, str] = {}
        self._target()
        self._method()
        self._own_arguments()
        return (Artifact(name="generate.py", text=self._text()),)

    def _text(self) -> str:
        imports = (
            [f"from transformers import {', '.join(sorted(set(self.imports)))}", ""] if self.imports else []
        )
        inner = ", ".join(["**inputs", *(f"{name}={value}" for name, value in self.arguments.items())])
        return "\n".join([*imports, *self.before, f"outputs = model.generate({inner})"]) + "\n"

    def _model(self, variable: str, path: str, kind: str = "AutoModelForCausalLM", extra: str = "") -> None:
        revision = self.account.value(f"{path}.revision")
        more = f", revision={literal(revision)}" if revision is not None else ""
        self.imports.append(kind)
        self.before.append(
            f"{variable} = {kind}.from_pretrained({literal(self.account.value(path))}{more}{extra})"
        )

    def _target(self) -> None:
        account = self.account
        dtype = account.value("dtype")
        if account.value("target") is None:
            if dtype is not None:
                account.dropped("dtype", "no target is named")
            return
        extra = ""
        if dtype is not None and dtype in words.DTYPES:
            extra = f", dtype={literal(dtype)}"
            account.kept("dtype", f"dtype={literal(dtype)}")
        elif dtype is not None:
            account.dropped("dtype", f"here it is one of: {', '.join(words.DTYPES)}")
        self._model("model", "target", extra=extra)
        self.name("target", "from_pretrained")
        if account.is_said("target.revision"):
            account.kept("target.revision", "from_pretrained(…, revision=…)")

    def _argument(self, name: str, path: str, value: object) -> None:
        self.arguments[name] = literal(value)
        self.account.kept(path, f"{name}={literal(value)}")

    def _method(self) -> None:
        account, path = self.account, "speculation.method"
        drafter = account.value("speculation.drafter")
        early = account.value("speculation.extras.transformers.assistant_early_exit")
        if self.method == "none":
            account.kept(path, "generate without an assistant")
            self._fixed_depth()
            return
        elif self.method in ("draft_model", "dflash"):
            if drafter is None:
                account.impossible(path, "an assistant must be named", words.SOURCE)
                return
            self._assistant()
            account.kept(
                path, "assistant_model=…" if self.method == "draft_model" else 'speculation_type="dflash"'
            )
        elif self.method == "ngram":
            self._look_up()
        elif self.method == "mtp":
            self.arguments["use_mtp"] = "True"
            account.kept(path, "use_mtp=True")
        elif self.method == "early_exit" and isinstance(early, int) and not isinstance(early, bool) and early:
            account.kept(path, "assistant_early_exit=…")
            self._settings("model")
        else:
            reason = (
                "the layer to leave at is not said"
                if self.method == "early_exit"
                else "Transformers has no such method"
            )
            account.impossible(path, _WHY_NOT.get(self.method, reason), words.SOURCE)
            return
        self._fixed_depth()
        self._verification()

    def _fixed_depth(self) -> None:
        """Heads and DFlash draft what their checkpoint says; nothing drafts for many requests at once."""
        if self.account.value("speculation.depth") and not self.account.is_noted("speculation.depth"):
            self.account.dropped(
                "speculation.depth", "the checkpoint decides how many are drafted", words.SOURCE
            )
        if self.account.is_said("speculation.adaptive") and not self.account.is_noted("speculation.adaptive"):
            if self.account.value("speculation.adaptive") is False:
                self.account.kept("speculation.adaptive", "nothing adapts by default")
            else:
                self.account.dropped(
                    "speculation.adaptive", "this method does not adapt its depth", words.SOURCE
                )

    def _look_up(self) -> None:
        account = self.account
        depth = chain(account, self.deployment, self.own)
        if depth is None or depth < 1:
            account.impossible(
                "speculation.method",
                "prompt_lookup_num_tokens, the depth, must be said, above 0",
                words.SOURCE,
            )
            return
        self.arguments["prompt_lookup_num_tokens"] = literal(depth)
        account.kept("speculation.method", f"prompt_lookup_num_tokens={depth}")
        if not account.is_noted("speculation.depth"):
            account.kept("speculation.depth", f"prompt_lookup_num_tokens={depth}")
        longest = account.value("speculation.lookup.max_ngram")
        if longest is not None:
            self._argument("max_matching_ngram_size", "speculation.lookup.max_ngram", longest)

    def _assistant(self) -> None:
        account = self.account
        self._model("assistant_model", "speculation.drafter")
        self.name("speculation.drafter", "from_pretrained")
        if account.is_said("speculation.drafter.revision"):
            account.kept("speculation.drafter.revision", "from_pretrained(…, revision=…)")
        self.arguments["assistant_model"] = "assistant_model"
        if self.method == "dflash":
            self.arguments["speculation_type"] = literal("dflash")
            return
        self._settings("assistant_model")
        path = "speculation.different_vocabulary"
        if account.value(path) is True:
            if account.value("target") is not None:
                self._model("tokenizer", "target", "AutoTokenizer")
            self._model("assistant_tokenizer", "speculation.drafter", "AutoTokenizer")
            self.arguments |= {"tokenizer": "tokenizer", "assistant_tokenizer": "assistant_tokenizer"}
            account.kept(path, "tokenizer=…, assistant_tokenizer=…")
        elif account.is_said(path):
            account.kept(path, "no tokenizers are passed")

    def _settings(self, holder: str) -> None:
        """What the drafter reads from the generation config of `holder`."""
        account = self.account

        def setting(name: str, path: str, after: object) -> None:
            self.before.append(f"{holder}.generation_config.{name} = {literal(after)}")
            if not account.is_noted(path):
                account.kept(path, f"{holder}.generation_config.{name} = {literal(after)}")

        depth = chain(account, self.deployment, self.own)
        if depth is not None and depth >= 1:
            setting("num_assistant_tokens", "speculation.depth", depth)
        elif depth is not None and account.is_said("speculation.depth"):
            account.impossible("speculation.depth", "num_assistant_tokens must be above 0")
        adaptive = account.value("speculation.adaptive")
        own = account.value("speculation.extras.transformers.num_assistant_tokens_schedule")
        if adaptive is not None:
            word = (
                "constant"
                if not adaptive
                else "heuristic_transient"
                if own == "heuristic_transient"
                else "heuristic"
            )
            setting("num_assistant_tokens_schedule", "speculation.adaptive", word)
            if word == own:
                account.kept("speculation.extras.transformers.num_assistant_tokens_schedule", str(own))
        confidence = account.value("speculation.min_confidence")
        if confidence is None and not self.own:
            self.before.append(f"{holder}.generation_config.assistant_confidence_threshold = 0.0")
            account.converted(
                "speculation.min_confidence",
                f"{holder}.generation_config.assistant_confidence_threshold = 0.0",
                "Transformers would stop a draft below 0.4 by itself, the other engine does not",
                words.SOURCE,
            )
        if confidence is not None:
            setting("assistant_confidence_threshold", "speculation.min_confidence", confidence)

    def _verification(self) -> None:
        account, path = self.account, "speculation.verification"
        rule = account.value(path) if account.is_said(path) else None
        if rule == "standard":
            account.kept(path, "speculative sampling by default")
        weight = account.is_said("speculation.extras.transformers.assistant_ensemble_weight")
        if rule == "lossy" and self.method == "draft_model" and weight:
            account.kept(path, "assistant_ensemble_weight=…")

    def _own_arguments(self) -> None:
        account = self.account
        for path in (
            *account.under("speculation.extras.transformers"),
            *account.under("extras.transformers"),
        ):
            name = path.partition("transformers.")[2]
            if account.is_noted(path) or name in self.arguments or not name.isidentifier():
                continue
            about = path.startswith("speculation.")
            if (about and self.method == "none") or name in words.OF_ASSISTANT:
                account.dropped(
                    path, "it acts on an assistant alone, and nothing drafts with one", words.SOURCE
                )
                continue
            if about and name not in words.OWN:
                continue
            self.arguments[name] = literal(changeable(account.value(path)))
            account.kept(path, f"{name}={self.arguments[name]}")
