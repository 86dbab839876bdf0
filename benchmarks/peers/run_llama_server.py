"""Greedy generation with llama.cpp's llama-server, started and stopped here on the loopback address.

Whatever follows `--` goes to the server unchanged, for example
  -- --spec-type ngram-simple --spec-ngram-simple-size-n 3 --spec-ngram-simple-size-m 8
"""

import concurrent.futures
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

from common import measure, most_at_once, parser

HOST = "127.0.0.1"


def free_port():
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


def call(url, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=1800) as reply:
        return json.load(reply)


def wait_until_ready(url, server, log, seconds=600):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if server.poll() is not None:
            log.seek(0)
            raise SystemExit(f"llama-server ended with {server.returncode}:\n{log.read()[-4000:]}")
        try:
            if call(f"{url}/health").get("status") == "ok":
                return
        except (urllib.error.URLError, ConnectionError):
            pass
        time.sleep(0.2)
    raise SystemExit("llama-server was not ready in time")


def main():
    own, _, extra = (list(part) for part in split(sys.argv[1:]))
    arguments = parser(__doc__)
    arguments.add_argument("--server", required=True, help="path of llama-server")
    arguments.add_argument("--context", type=int, default=2048)
    args = arguments.parse_args(own)

    version = subprocess.run([args.server, "--version"], capture_output=True, text=True, check=True)
    version = (version.stdout + version.stderr).strip().splitlines()[0]
    port = free_port()
    url = f"http://{HOST}:{port}"
    command = [
        args.server,
        "--model",
        args.model,
        "--host",
        HOST,
        "--port",
        str(port),
        "--threads",
        str(args.threads),
        "--ctx-size",
        str(args.context * most_at_once(args)),
        "--parallel",
        str(most_at_once(args)),
        *extra,
    ]

    def generate(ids, max_new_tokens):
        reply = call(
            f"{url}/completion",
            {
                "prompt": ids,
                "n_predict": max_new_tokens,
                "temperature": 0,
                "cache_prompt": False,
                "return_tokens": True,
            },
        )
        timings = reply["timings"]
        result = {
            "output_ids": reply["tokens"],
            "prefill_s": timings["prompt_ms"] / 1e3,
            "decode_s": timings["predicted_ms"] / 1e3,
        }  # predicted_ms starts at the first token
        if "draft_n" in timings:
            result["drafted"] = timings["draft_n"]
            result["accepted"] = timings["draft_n_accepted"]
        return result

    def generate_many(prompts, max_new_tokens):
        with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
            answers = pool.map(lambda ids: generate(ids, max_new_tokens), prompts)
            return [answer["output_ids"] for answer in answers]

    with tempfile.TemporaryFile("w+") as log:
        start = time.perf_counter()
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, text=True)
        try:
            wait_until_ready(url, server, log)
            measure(
                args,
                generate,
                generate_many,
                peer="llama.cpp",
                mode=" ".join(extra) or "plain",
                version=version,
                dtype=pathlib.Path(args.model).stem,
                start_s=round(time.perf_counter() - start, 2),
            )
        finally:
            server.terminate()
            server.wait()


def split(words):
    """The words before and after the first `--`."""
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at : at + 1], words[at + 1 :]


if __name__ == "__main__":
    main()
