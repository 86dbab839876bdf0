"""The neutral description → a Fireworks deployment. Called by the dialect."""

from __future__ import annotations

import json
from collections.abc import Container
from typing import Any

from draftproof.configs.engines.account import changeable
from draftproof.configs.engines.base import Artifact
from draftproof.configs.engines.dialect import Writer
from draftproof.configs.engines.fireworks import words
from draftproof.configs.engines.library import chain
from draftproof.configs.reading.shell import write_command
from draftproof.configs.speculation import HEADS

_AROUND = "extras.fireworks."


class FireworksWriter(Writer):
    """`config` holds the fields of the deployment. A command is written where the text was one."""

    def write(self) -> tuple[Artifact, ...]:
        account = self.account
        launcher = account.value(f"{_AROUND}launcher")
        command = isinstance(launcher, str) and tuple(launcher.split()[1:]) in words.COMMANDS
        command = command and str(launcher).split()[0].endswith("firectl")
        target = account.value("target")
        command = command and target is not None and not str(target).startswith("-")
        self._put("baseModel")
        self._put("maxContextLength")
        self._put("enableAddons")
        self._precision()
        self._method(command)
        self._own_fields(words.FLAGS if command else None)
        if command:
            assert isinstance(launcher, str)
            account.kept(f"{_AROUND}launcher", launcher)
            return (self._command(launcher),)
        text = json.dumps(self.config, indent=2, ensure_ascii=False) + "\n"
        return (Artifact(name="deployment.json", text=text),)

    def _put(self, field: str, value: Any = None) -> None:
        path = words.PLAIN[field][0]
        found = self.account.value(path) if value is None else value
        if found is None:
            return
        if field != "enableAddons" and found in ("", 0):
            self.account.dropped(path, "an empty value is taken for none")
            return
        self.config[field] = found
        if not self.account.is_noted(path):
            after = f"{field}: {json.dumps(found, ensure_ascii=False)}"
            if isinstance(found, str):
                self.name(path, after)
            else:
                self.account.kept(path, after)

    def about_name(self, name: str) -> str | None:
        if name.startswith("accounts/"):
            return None
        return "Fireworks serves its own models and uploaded ones: accounts/…/models/…"

    def _precision(self) -> None:
        value = self.account.value("dtype")
        names = {dtype: name for name, dtype in words.PRECISIONS.items()}
        if value is None or self.account.is_said(f"{_AROUND}{words.PRECISION}"):
            return
        if value in names:
            self.config[words.PRECISION] = names[value]
            self.account.kept("dtype", f"{words.PRECISION}: {names[value]}")
        else:
            self.account.dropped("dtype", f"precision has {' and '.join(names)} of these", words.SOURCE)

    def _method(self, command: bool) -> None:
        account, path = self.account, "speculation.method"
        if self.method == "none":
            self.config[words.OFF] = True
            if command:
                account.kept(path, words.FLAGS[words.OFF].name)
            else:
                account.kept(
                    path, f"{words.OFF}: true", "a parameter of the creating call, beside the fields"
                )
        elif self.method == "auto" and self.own:
            account.kept(path, "left to the base model")
        elif self.method == "draft_model" and account.value("speculation.drafter"):
            self._counted("draft_model")
            self._put("draftModel")
        elif self.method == "ngram" and account.value("speculation.lookup.max_ngram"):
            self._counted("ngram")
            self._put("ngramSpeculationLength")
        elif self.method == "mtp" and not command:
            self.config[words.MTP] = True
            account.kept(path, f"{words.MTP}: true")
            depth = chain(account, self.deployment, self.own)
            if depth:
                self._put("draftTokenCount", depth)
        else:
            account.impossible(path, self._why_not(), words.SOURCE)

    def _why_not(self) -> str:
        if self.method in HEADS or self.method == "medusa":
            return "heads are draft addons, prepared with Fireworks for the target: the base model's default acts"
        return {
            "draft_model": "draftModel must be named",
            "ngram": "ngramSpeculationLength must be said",
            "mtp": f"{words.MTP} has no flag: give the deployment's fields",
            "auto": "a deployment has one method: name draft_model, ngram or mtp",
        }.get(self.method, "a deployment has a draft model, look-up, or MTP")

    def _counted(self, method: str) -> None:
        """Both methods need the count."""
        account = self.account
        depth = chain(account, self.deployment, self.own)
        if not depth:
            account.impossible(
                "speculation.method", "draftTokenCount must be said, and be above 0", words.SOURCE
            )
            return
        account.kept(
            "speculation.method", "draftModel" if method == "draft_model" else "ngramSpeculationLength"
        )
        self._put("draftTokenCount", depth)

    def _command(self, launcher: str) -> Artifact:
        account = self.account
        line = [*launcher.split(), str(self.config["baseModel"])]
        for field, option in words.FLAGS.items():
            if field in self.config:
                value = self.config[field]
                if option.kind == "flag":
                    line += [option.name] if value else []
                else:
                    line += (
                        [f"{option.name}={value}"]
                        if str(value).startswith("-")
                        else [option.name, str(value)]
                    )
        if self.own and account.is_said("rest"):
            line += self.deployment.rest
            account.kept("rest", " ".join(self.deployment.rest))
        environment = account.value(f"{_AROUND}env") or {}
        if environment:
            account.kept(f"{_AROUND}env", "in front of the command")
        return Artifact(name="command", text=write_command(line, environment.items()) + "\n")

    def _own_fields(self, only: Container[str] | None) -> None:
        account = self.account
        for path in (*account.under("extras.fireworks"), *account.under("speculation.extras.fireworks")):
            field = path.partition("fireworks.")[2]
            if account.is_noted(path) or field in self.config or field in ("launcher", "env"):
                continue
            if only is not None and field not in only:
                account.dropped(path, "no flag says it: give the deployment's fields")
                continue
            about = path.startswith("speculation.")
            if (about and field != words.MTP) or (
                not about and field in words.SPELLINGS and field != words.PRECISION
            ):
                continue
            self.config[field] = changeable(account.value(path))
            account.kept(path, field)
