"""The demo: real tickets through a real queue, worker and models. Started by scripts/demo.

Guarantee: with --json stdout holds one JSON object a decision and a last summary object, nothing
else; Ctrl-C leaves nothing running; an error is one line.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from board import ClosedReason, bar, summary_lines, table
from labelled import FOLDER, PROMPTS, SHIPPED_FIT, TICKETS, Case, held_out
from rich.console import Console
from stage import WORKER, Stage
from summary import summarise

from coolhead.answers import Decision
from coolhead.errors import CoolheadError, FitMismatch, JobFailed
from coolhead.policy import Calibration, Escalation
from coolhead_worker.engine.modelfile import ModelFile
from coolhead_worker.fit_command import cache_folder, prepare_models

#: What the fast tier says by itself: text readout, placeholder temperature, even odds.
BASELINE = {
    "escalation": Escalation.NEVER.value,
    "calibration": Calibration.PLACEHOLDER.value,
    "thresholds": {"verdict_at": 0.5},
}
ANSWER_TIMEOUT_S = 3600.0


def main() -> int:
    """Run the demo; returns the exit code."""
    options = _options()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        _demo(options)
    except KeyboardInterrupt:
        sys.stderr.write("demo: stopped\n")
        return 130
    except CoolheadError as error:
        sys.stderr.write(f"demo: {error}\n")
        return error.exit_code
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/demo", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object a line, a summary last")
    parser.add_argument("--limit", type=_count, help="so many tickets and so many prompts")
    parser.add_argument("--prompts", type=_count, help="so many prompts")
    parser.add_argument("--sensor-script", type=Path, help="a file that stands in for the sensors")
    parser.add_argument("--refit", action="store_true", help="fit on this machine, whatever is shipped")
    return parser.parse_args()


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError("give 1 or more")
    return count


def _demo(options: argparse.Namespace) -> None:
    models = prepare_models()
    cases = [
        *held_out(TICKETS, "ticket", options.limit),
        *held_out(PROMPTS, "prompt", options.prompts or options.limit),
        *held_out(PROMPTS, "baseline", options.prompts or options.limit),
    ]
    with Stage() as stage:
        _start(stage, models, options)
        started = time.monotonic()
        answered = _decide(stage, cases, as_json=options.json)
        summary = summarise(answered, time.monotonic() - started, stage.restarts)
    if options.json:
        sys.stdout.write(json.dumps(summary) + "\n")
    else:
        _print(answered, summary)


def _start(stage: Stage, models: dict[str, ModelFile], options: argparse.Namespace) -> None:
    """A worker on the shipped fit, or on one made here when this machine's plan is another."""
    arguments = ["--tasks", str(FOLDER), *_model_arguments(models)]
    if options.sensor_script is not None:
        arguments += ["--sensor-script", str(options.sensor_script)]
    if not options.refit:
        try:
            stage.start_worker([*arguments, "--fit", str(SHIPPED_FIT)])
        except FitMismatch as error:
            sys.stderr.write(f"demo: the shipped fit is for another machine ({error}): fitting here\n")
        else:
            return
    stage.start_worker([*arguments, "--fit", str(_fit_here(models))])


def _model_arguments(models: dict[str, ModelFile]) -> list[str]:
    parts: list[str] = []
    for tier, file in models.items():
        parts += [f"--{tier}", str(file.path), *([f"--{tier}-sha256", file.sha256] if file.sha256 else [])]
    return parts


def _fit_here(models: dict[str, ModelFile]) -> Path:
    """Fit the demo's task once and keep it in the user's cache folder."""
    data = TICKETS.read_bytes() + PROMPTS.read_bytes() + (FOLDER / "support.toml").read_bytes()
    out = cache_folder() / "fits" / f"demo-{hashlib.sha256(data).hexdigest()[:12]}"
    order = [
        "fit", str(FOLDER / "support.toml"), str(TICKETS), str(PROMPTS), "--heads-only",
        "--out", str(out), "--cache", str(cache_folder() / "readings"),
    ]  # fmt: skip
    done = subprocess.run([str(WORKER), *order, *_model_arguments(models)], stdout=sys.stderr, check=False)
    if done.returncode:
        raise FitMismatch("the fit on this machine failed: see above")
    return out


def _decide(stage: Stage, cases: Sequence[Case], *, as_json: bool) -> list[tuple[Case, Decision]]:
    """Hand everything in, then take (and with `as_json` print) the answers as they come.

    Returns them in the order of the cases.
    """
    requests = [_request(case) for case in cases]
    by_id = {case.job_id: case for case in cases}
    found: dict[str, Decision] = {}
    with bar() as progress:
        step = progress.add_task("deciding", total=len(cases))
        reason = ClosedReason(stage.queue, progress, step)
        reason.start()
        try:
            tickets = stage.queue.submit_many(requests)
            for job_id, answer in stage.queue.as_completed(tickets, timeout_s=ANSWER_TIMEOUT_S):
                if isinstance(answer, CoolheadError):
                    raise JobFailed(f"{by_id[job_id].id}: {answer.code}: {answer}")
                found[job_id] = answer
                progress.advance(step)
                if as_json:
                    sys.stdout.write(json.dumps(_line(by_id[job_id], answer), ensure_ascii=False) + "\n")
                    sys.stdout.flush()
        finally:
            reason.close()
    return [(case, found[case.job_id]) for case in cases]


def _request(case: Case) -> dict[str, Any]:
    task = "support" if case.kind == "ticket" else "guardrail"
    lane = "interactive" if case.kind == "ticket" else "bulk"
    request: dict[str, Any] = {"state": case.text, "task": task, "lane": lane, "job_id": case.job_id}
    return request | ({"policy": BASELINE} if case.kind == "baseline" else {})


def _print(answered: Sequence[tuple[Case, Decision]], summary: dict[str, Any]) -> None:
    Console(width=None if sys.stdout.isatty() else 150).print(
        table([(case, decision) for case, decision in answered if case.kind != "baseline"])
    )
    sys.stdout.write("\n".join(summary_lines(summary)) + "\n")


def _line(case: Case, decision: Decision) -> dict[str, Any]:
    """One decision; a noul gets its two probabilities spelt out too."""
    wire = decision.wire()
    for name, answer in decision.answers.items():
        wire["answers"][name].setdefault("probabilities", answer.probabilities)
    expected = {
        key: case.labels[key] for key in ("queue", "urgency", "refund", "injection") if key in case.labels
    }
    return {"type": "decision", "kind": case.kind, "id": case.id, "expected": expected, "decision": wire}


if __name__ == "__main__":
    sys.exit(main())
