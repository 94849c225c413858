"""typed-gguf in a process of its own: requests on stdin, one JSON object a line, answers on stdout.

Started by `peers.py` with the package on its path and the libraries of llama.cpp named in its
environment. It takes the way of typed-gguf's own resident host: the model is loaded once, then every
request is decided on it.
"""

from __future__ import annotations

import json
import sys
from typing import Any

# A package that is fetched for the comparison alone: no dependency, so nothing here to check it against.
from typed_gguf import cli  # type: ignore[import-not-found]
from typed_gguf.engine.session import open_model  # type: ignore[import-not-found]


def main() -> None:
    """Load the model that the first request names, answer until stdin ends."""
    first = json.loads(sys.stdin.readline())
    prepared = cli.prepare_decision(first, fit_enabled=False)
    with open_model(prepared.model_path, fit_disabled=True) as handle:
        _answer(cli.decide_on_handle(prepared, first, handle))
        for line in sys.stdin:
            _answer(cli.decide_on_handle(prepared, json.loads(line), handle))


def _answer(body: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(body) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
