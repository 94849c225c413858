"""What a decision costs on this machine, beside the bare call, JSON generation and two others.

    python benchmarks/engine.py [--quick] [--json]

Guarantee: all variants run in the same rounds, in an order drawn anew for each; figures are medians; with
--json the last line of stdout is one JSON object and everything else goes to stderr; what was not
measured is null, with the reason under `missing`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

from peers import Missing, Peer, start_server, start_typed_gguf
from qwen import fetch_qwen
from rich.console import Console

from coolhead.errors import CoolheadError
from coolhead.policy import Tier
from coolhead_worker.bench.command import PLAIN_WIDTH
from coolhead_worker.bench.machine import this_machine
from coolhead_worker.bench.measuring import Done, Measured, Ratio, Rounds, Stopwatch, Variant, ratio
from coolhead_worker.bench.session import (
    ISOLATED,
    PINNED,
    TRUNK_1,
    TRUNK_10,
    WATCH,
    Figures,
    bench_model,
    title,
)  # fmt: skip
from coolhead_worker.bench.table import overhead, rendered
from coolhead_worker.bench.variants import Case
from coolhead_worker.bench.workload import asked
from coolhead_worker.engine.modelfile import ModelFile
from coolhead_worker.engine.protocol import PlanKind
from coolhead_worker.fit_command import cache_folder, prepare_models

LENGTHS = {60: 44, 600: 452}
"""Tokens of a state for the comparison with others, and about as many words (SmolLM2's tokens)."""
BESIDE = {
    (kind, tokens): Case(kind, 3, 1, words)
    for kind in (PlanKind.ISOLATED, PlanKind.PINNED)
    for tokens, words in LENGTHS.items()
}
CORE = [PINNED, ISOLATED, TRUNK_1, TRUNK_10]
MORE = [Case(kind, 3, batch) for kind in PlanKind for batch in (2, 4, 8)] + [
    Case(kind, questions) for kind in (PlanKind.PINNED, PlanKind.ISOLATED) for questions in (1, 10)
]
QUICK = Rounds(least=2, most=6, seconds=75.0)
WHOLE = Rounds(least=5, most=25, seconds=1500.0)
PEERS = ("typed-gguf", "llama-server")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit code."""
    options = _options(arguments)
    try:
        with ExitStack() as stack:
            model = _model(options)
            peers, missing = _peers(options, model.path, stack)
            figures = _measured(options, model, peers)
    except CoolheadError as error:
        sys.stderr.write(f"benchmarks/engine.py: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    stream = sys.stderr if options.json else sys.stdout
    console = Console(file=stream, width=None if stream.isatty() else PLAIN_WIDTH)
    _show(figures, options, console, missing)
    if options.json:
        more = {"model": figures.wire(), **_setting(options, peers)}
        sys.stdout.write(json.dumps(summary(figures, missing) | more) + "\n")
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer variants and rounds")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")
    parser.add_argument("--model", type=Path, help="a GGUF file; default: SmolLM2-135M-Instruct in BF16")
    parser.add_argument(
        "--fetch-qwen", action="store_true", help="fetch Qwen2.5-Coder-0.5B and measure that (491 MB)"
    )
    parser.add_argument("--threads", type=int, default=1, help="of every variant (default: 1)")
    parser.add_argument("--no-peers", action="store_true", help="leave the others out, fetch nothing")
    parser.add_argument("--llama-server", type=Path, help="a llama-server binary of b11361 or later")
    parser.add_argument("--seconds", type=float, help="begin no round that would end later than this")
    return parser.parse_args(arguments)


def _model(options: argparse.Namespace) -> ModelFile:
    if options.fetch_qwen:
        return fetch_qwen(cache_folder() / "benchmarks", lambda step, _share: _say(step))
    if options.model is not None:
        return ModelFile(options.model, None, options.model.stem)
    return prepare_models()["fast"]


def _peers(
    options: argparse.Namespace, model: Path, stack: ExitStack
) -> tuple[dict[str, Peer], dict[str, str]]:
    """Those that could be started, and why the others could not."""
    if options.no_peers:
        return {}, dict.fromkeys(PEERS, "left out: --no-peers")
    starts: dict[str, Callable[[], Peer]] = {
        "typed-gguf": lambda: start_typed_gguf(model, options.threads, cache_folder(), stack),
        "llama-server": lambda: start_server(
            model, options.threads, cache_folder(), options.llama_server, stack
        ),
    }
    peers, missing = {}, {}
    for name, start in starts.items():
        _say(f"starting {name}")
        try:
            peers[name] = start()
            peers[name].ask("Hello", asked(1))
        except Missing as error:
            peers.pop(name, None)
            missing[name] = str(error)
    return peers, missing


def _measured(options: argparse.Namespace, model: ModelFile, peers: Mapping[str, Peer]) -> Figures:
    cases = [*CORE, *BESIDE.values()] + ([] if options.quick else MORE)
    rounds = QUICK if options.quick else WHOLE
    if options.seconds is not None:
        rounds = Rounds(rounds.least, rounds.most, options.seconds)
    others = [peer_variant(peer, tokens) for peer in peers.values() for tokens in LENGTHS]
    return bench_model(
        model, options.threads, cases, rounds,
        lambda number, name: _say(f"round {number}: {name}" if number else f"warming up: {name}"),
        often=CORE, beside=others,
    )  # fmt: skip


def peer_name(peer: str, tokens: int) -> str:
    """Of a variant."""
    return f"{peer} 3q {tokens} tokens"


def peer_variant(peer: Peer, tokens: int) -> Variant:
    """A peer asked the three questions about a text of about so many tokens."""
    name = peer_name(peer.name, tokens)
    case = BESIDE[PlanKind.ISOLATED, tokens]

    def prepare(number: int) -> Callable[[], Done]:
        # A round of its own, so that the engine has not read the same text.
        (state,) = case.states(-number - 1)

        def run() -> Done:
            peer.ask(state, asked(case.questions))
            return Done()

        return run

    return Variant(name, prepare, watch=Stopwatch(peer.cpu, WATCH.wall))


def summary(figures: Figures, missing: Mapping[str, str]) -> dict[str, Any]:
    """The ratios of CPU times, each the first's over the second's; the overhead is what the engine needs
    beyond the bare call, as a share of it. `isolated_vs_typed_gguf` is the worse of both lengths."""
    found = _ratios(figures)
    known = {key: one for key, one in found.items() if one is not None}
    return {
        **{key: None if one is None else round(one.value, 4) for key, one in found.items()},
        "quartiles": {key: [round(one.low, 4), round(one.high, 4)] for key, one in known.items()},
        "missing": dict(missing),
    }


def _ratios(figures: Figures) -> dict[str, Ratio | None]:
    there = figures.measured
    found: dict[str, Ratio | None] = {
        "overhead_vs_bare_decode": overhead(there, PINNED),
        "overhead_isolated_vs_bare_decode": overhead(there, ISOLATED),
        "overhead_trunk_vs_bare_decode": overhead(there, TRUNK_1),
    }
    found |= {key: one for key, one in figures.ratios.items() if not key.startswith("overhead")}
    for kind, peer in product((PlanKind.ISOLATED, PlanKind.PINNED), PEERS):
        key = f"{kind}_vs_{peer.replace('-', '_')}"
        each = {tokens: _against(there, kind, peer, tokens) for tokens in LENGTHS}
        known = [one for one in each.values() if one is not None]
        found[key] = max(known, key=lambda one: one.value) if len(known) == len(each) else None
        found |= {f"{key}_{tokens}": one for tokens, one in each.items()}
    return found


def _against(there: Mapping[str, Measured], kind: PlanKind, peer: str, tokens: int) -> Ratio | None:
    other = there.get(peer_name(peer, tokens))
    return None if other is None else ratio(there[BESIDE[kind, tokens].name], other)


def _setting(options: argparse.Namespace, peers: Mapping[str, Peer]) -> dict[str, Any]:
    return {
        "quick": options.quick, "threads": options.threads, "machine": this_machine().wire(),
        "peers": {name: peer.what for name, peer in peers.items()},
    }  # fmt: skip


def _show(
    figures: Figures, options: argparse.Namespace, console: Console, missing: Mapping[str, str]
) -> None:
    console.print(str(this_machine()))
    console.print(rendered(title(Tier.FAST, figures, options.threads), figures.lines))
    for key, one in _ratios(figures).items():
        said = (
            "not measured" if one is None else f"{one.value:.3f}  (quartiles {one.low:.3f} to {one.high:.3f})"
        )
        console.print(f"{key}: {said}")
    for peer, why in missing.items():
        console.print(f"{peer}: {why}")


def _say(text: str) -> None:
    sys.stderr.write(f"\r\x1b[K{text}" if sys.stderr.isatty() else f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
