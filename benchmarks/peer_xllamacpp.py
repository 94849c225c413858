"""llama.cpp's server as the package xllamacpp carries it, prebuilt; prints its address and stays.

Started by `peers.py` where no `llama-server` is given. Usage: MODEL THREADS SLOTS.
"""

from __future__ import annotations

import signal
import sys

# A package that is fetched for the comparison alone: no dependency, so nothing here to check it against.
import xllamacpp  # type: ignore[import-not-found]


def main() -> None:
    """Serve until stdin ends or a signal comes."""
    model, threads, slots = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.n_ctx, params.n_parallel = 8192, int(slots)
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = int(threads)
    server = xllamacpp.Server(params)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
