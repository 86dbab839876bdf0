"""The neutral description → TensorRT-LLM's YAML and, where a target is named, the command that reads it.

Called by the dialect. What its classes would refuse is not rendered.
"""

from __future__ import annotations

from typing import Any

from draftproof.configs.engines.account import changeable
from draftproof.configs.engines.base import Artifact
from draftproof.configs.engines.dialect import Writer
from draftproof.configs.engines.trtllm import keys
from draftproof.configs.reading.shell import write_command
from draftproof.configs.reading.yamltext import plain_yaml
from draftproof.configs.speculation import Tree

CONFIG_FILE = "config.yaml"
_OWN = "speculation.extras.trtllm."
_AROUND = "extras.trtllm."
_WHY_NOT = {
    "eagle": "`Eagle` is an alias of Eagle3 on the PyTorch backend; heads of EAGLE-1 and EAGLE-2 do not work with it",
    "medusa": "Medusa was for the TensorRT backend alone, up to 1.2",
    "lookahead": "Lookahead was for the TensorRT backend alone, up to 1.2",
    "p_eagle": "a head that drafts in parallel is not among its decoding types",
}


class TensorRTLLMWriter(Writer):
    """`config` is the file as it comes together, `spec` its speculative_config."""

    def write(self) -> tuple[Artifact, ...]:
        self.spec: dict[str, Any] = {}
        self._plain()
        self._cache()
        self._graphs()
        self._method()
        self._own_keys()
        return self._artifacts()

    def _artifacts(self) -> tuple[Artifact, ...]:
        top = self.config | ({"speculative_config": self.spec} if self.spec else {})
        config = Artifact(name=CONFIG_FILE, text=plain_yaml(top) if top else "{}\n")
        target = self.account.value("target")
        if target is None:
            return (config,)
        rest = self.deployment.rest if self.own else ()
        named = ["--config", CONFIG_FILE] if top else []
        own_config = self.account.value(f"{_AROUND}config")
        if own_config is not None and not top:
            named = ["--config", own_config]
        environment = self.account.value(f"{_AROUND}env") or {}
        line = write_command(["trtllm-serve", target, *named, *rest], environment.items())
        command = Artifact(name="command", text=line + "\n")
        return (command, config) if top else (command,)

    def _put(
        self, where: dict[str, Any], key: str, path: str, value: Any, shown_key: str | None = None
    ) -> None:
        where[key] = value
        self.account.kept(
            path, f"{shown_key or key}: {str(value).lower() if isinstance(value, bool) else value}"
        )

    def _plain(self) -> None:
        account = self.account
        target = account.value("target")
        if target is not None:
            if str(target).startswith("-"):
                account.impossible(
                    "target", "the command would take a name with a dash in front for an option"
                )
                return
            self.name("target", f"trtllm-serve {target}")
            if self.own and account.is_said("rest"):
                account.kept("rest", " ".join(self.deployment.rest))
            if account.is_said(f"{_AROUND}env"):
                account.kept(f"{_AROUND}env", "in front of the command")
        for key, (path, _) in keys.TOP.items():
            value = account.value(path)
            if value is None:
                continue
            if path == "dtype" and value not in keys.DTYPES:
                account.dropped(path, f"dtype takes one of: {', '.join(keys.DTYPES)}", keys.SOURCE)
            elif path == "target.revision" and target is None:
                account.dropped(path, "no target is named")
            else:
                self._put(self.config, key, path, value)

    def _cache(self) -> None:
        account, cache = self.account, dict[str, Any]()
        for key, (path, _) in keys.CACHE.items():
            value = account.value(path)
            if value is None:
                continue
            if path == "memory_fraction" and not self.own:
                if account.is_said(path):
                    account.dropped(
                        path,
                        "free_gpu_memory_fraction is of the memory that is left beside the weights, other engines' "
                        "fractions are of something else; plan it anew",
                        keys.SOURCE,
                    )
            elif path == "kv_dtype" and not self.own and value not in keys.KV_DTYPES:
                account.dropped(
                    path, f"kv_cache_config.dtype takes one of: {', '.join(keys.KV_DTYPES)}", keys.SOURCE
                )
            else:
                self._put(cache, key, path, value, f"kv_cache_config.{key}")
        more = account.value(f"{_AROUND}kv_cache_config")
        if isinstance(more, str | int | float) or more is None:
            pass
        else:
            cache |= changeable(more)
            account.kept(f"{_AROUND}kv_cache_config", "kv_cache_config")
        if cache:
            self.config["kv_cache_config"] = cache

    def _graphs(self) -> None:
        account = self.account
        eager, largest = account.value("enforce_eager"), account.value("graph_max_batch")
        more = account.value(f"{_AROUND}cuda_graph_config")
        if eager:
            self.config["cuda_graph_config"] = None
            account.converted("enforce_eager", "cuda_graph_config: null", "no graphs", keys.SOURCE)
            if largest is not None and account.is_said("graph_max_batch"):
                account.dropped("graph_max_batch", "no graphs are captured")
            return
        if account.is_said("enforce_eager"):
            account.kept("enforce_eager", "graphs by default")
        graphs: dict[str, Any] = {}
        if largest is not None:
            self._put(
                graphs, "max_batch_size", "graph_max_batch", largest, "cuda_graph_config.max_batch_size"
            )
        if hasattr(more, "items"):
            graphs |= changeable(more)
            account.kept(f"{_AROUND}cuda_graph_config", "cuda_graph_config")
            self.config["cuda_graph_config"] = graphs
        elif graphs:
            self.config["cuda_graph_config"] = graphs

    def _method(self) -> None:
        account, path = self.account, "speculation.method"
        if self.method == "none":
            account.kept(path, "no speculative_config")
            return
        name = account.value(f"{_OWN}decoding_type") or keys.WRITTEN.get(self.method)
        if name is None or name in keys.GONE_TYPES:
            reason = _WHY_NOT.get(self.method, "TensorRT-LLM has no such decoding type")
            account.impossible(path, reason, keys.SOURCE)
            return
        if name == "User_Provided":
            account.impossible(
                path, "a class of the user's own is passed in Python, not in a file", keys.SOURCE
            )
            return
        self.spec["decoding_type"] = name
        account.kept(path, f"decoding_type: {name}")
        if account.is_said(f"{_OWN}decoding_type"):
            account.kept(f"{_OWN}decoding_type", f"decoding_type: {name}")
        drafter = account.value("speculation.drafter")
        if drafter is not None and self.method not in ("ngram", "suffix", "auto", "custom"):
            self.spec["speculative_model"] = drafter
            self.name("speculation.drafter", f"speculative_model: {drafter}")
        elif self.method in keys.NEEDS_DRAFTER:
            account.impossible("speculation.drafter", f"{name} needs a drafter", keys.SOURCE)
            return
        self._shape(name)
        self._schedule()
        self._verification()
        if self.method == "ngram":
            self._look_up()

    def _shape(self, name: str) -> None:
        account, tree = self.account, self.deployment.speculation.tree
        if tree is not None and tree != Tree():
            self._tree(tree)
            return
        depth = account.value("speculation.depth")
        schedule = self.deployment.speculation.schedule
        if depth is None and schedule and not self.own:
            self.spec["max_draft_len"] = schedule[0].depth
            account.converted(
                "speculation.depth",
                f"max_draft_len: {schedule[0].depth}",
                "the length for the smallest batch",
            )
            return
        if self.method in ("auto", "custom"):
            return
        if depth is None:
            if self.method in keys.NEEDS_DEPTH:
                account.impossible(
                    "speculation.depth", f"{name} needs max_draft_len, and nobody says it", keys.SOURCE
                )
            elif not self.own and account.is_implied("speculation.depth"):
                account.impossible(
                    "speculation.depth", "say the depth: TensorRT-LLM takes it from the checkpoint"
                )
            return
        if depth < 1:
            account.impossible("speculation.depth", "max_draft_len must be above 0", keys.SOURCE)
            return
        self._put(self.spec, "max_draft_len", "speculation.depth", depth)

    def _tree(self, tree: Tree) -> None:
        account = self.account
        first = account.under("speculation.tree")[0]
        if self.method not in keys.TREES:
            account.impossible(first, "trees exist for Eagle3 and MTP alone", keys.SOURCE)
            return
        if tree.depth is None or tree.branching is None:
            account.impossible(first, "a dynamic tree needs its depth and its top-k", keys.SOURCE)
            return
        most = tree.depth * tree.branching
        if tree.num_nodes is not None and not tree.depth <= tree.num_nodes <= most:
            account.impossible(
                "speculation.tree.num_nodes",
                f"max_total_draft_tokens must be in {tree.depth} to {most}",
                keys.SOURCE,
            )
            return
        self.spec["use_dynamic_tree"] = True
        self._put(self.spec, "max_draft_len", "speculation.tree.depth", tree.depth)
        self._put(self.spec, "dynamic_tree_max_topK", "speculation.tree.branching", tree.branching)
        if tree.num_nodes is not None:
            self._put(self.spec, "max_total_draft_tokens", "speculation.tree.num_nodes", tree.num_nodes)

    def _schedule(self) -> None:
        """Ranges become upper bounds; nothing is drafted above the largest, so a tail of depth 0 is left out."""
        account, path = self.account, "speculation.schedule"
        schedule = self.deployment.speculation.schedule
        if not schedule:
            return
        if self.method not in keys.SCHEDULED:
            account.impossible(path, "draft_len_schedule does not exist for this decoding type", keys.SOURCE)
            return
        first = self.spec.get("max_draft_len")
        if first is not None and (schedule[0].depth != first or any(part.depth > first for part in schedule)):
            account.impossible(
                path,
                f"the smallest batches must have max_draft_len, {first}, and no others more than that",
                keys.SOURCE,
            )
            return
        largest = account.value("max_num_seqs") or keys.MAX_BATCH
        table = {part.high: part.depth for part in schedule if part.high is not None}
        last = schedule[-1]
        if last.depth:
            table[max(largest, last.low)] = last.depth
        elif not table or (len(schedule) > 1 and max(table) >= largest):
            account.impossible(path, "it drafts nothing, or only at batch sizes that do not occur")
            return
        self.spec["draft_len_schedule"] = table
        account.converted(
            path,
            f"draft_len_schedule: {table}",
            "a key is the largest batch size of its range; above all of them it is 0",
            keys.SOURCE,
        )

    def _verification(self) -> None:
        """Only what is said: with greedy drafts both rules accept equally often, so no default needs writing out."""
        account, path = self.account, "speculation.verification"
        if account.is_said(path):
            self._rule(account.value(path))
        path = "speculation.draft_sampling"
        greedy = account.is_said(path) and account.value(path) == "greedy"
        if greedy and self.method in keys.REJECTION:
            account.kept(path, "by default")

    def _rule(self, rule: str) -> None:
        account, path = self.account, "speculation.verification"
        relaxed = account.value(f"{_OWN}use_relaxed_acceptance_for_thinking")
        if rule == "lossy" and relaxed is True:
            account.kept(path, "use_relaxed_acceptance_for_thinking: true")
        elif rule not in ("standard", "exact_match") or self.method not in keys.REJECTION or relaxed is True:
            account.dropped(
                path, "TensorRT-LLM verifies by exact match, or by rejection sampling", keys.SOURCE
            )
        elif rule == "standard" and account.is_said(f"{_OWN}sa_config"):
            account.dropped(path, "rejection sampling is refused together with sa_config", keys.SOURCE)
        else:
            self._put(self.spec, "use_rejection_sampling", path, rule == "standard")

    def _look_up(self) -> None:
        account, path = self.account, "speculation.lookup.max_ngram"
        value = account.value(path)
        if value is not None:
            self._put(self.spec, "max_matching_ngram_size", path, value)

    def _own_keys(self) -> None:
        account = self.account
        for path in account.under("extras.trtllm"):
            key = path.removeprefix(_AROUND)
            if account.is_noted(path) or key in ("env", "image", "config", "speculative_config"):
                continue
            if key in keys.TOP or (key in ("kv_cache_config", "cuda_graph_config") and key in self.config):
                continue
            self.config[key] = changeable(account.value(path))
            account.kept(path, key)
        if (
            account.is_said(f"{_AROUND}config")
            and not self.config
            and not self.spec
            and account.is_said("target")
        ):
            account.kept(f"{_AROUND}config", f"--config {account.value(f'{_AROUND}config')}")
        name = self.spec.get("decoding_type")
        allowed = keys.keys_of(name) if name else ()
        for path in account.under("speculation.extras.trtllm"):
            key = path.removeprefix(_OWN)
            if key in allowed and key not in self.spec and not account.is_noted(path):
                self.spec[key] = changeable(account.value(path))
                account.kept(path, key)
