"""The command `coolhead-worker`: run a node, fit a task, bench, prepare models, look at the sensors.

Guarantee: data goes to stdout, everything else to stderr; no traceback reaches a user, an error is
one line; exit code 0 ok, 1 failure, 2 wrong usage or input, 130 interrupted.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from coolhead.errors import CoolheadError

app = typer.Typer(
    name="coolhead-worker",
    help="One worker a node: decisions from local models, only while the machine is cool.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Config = Annotated[Path | None, typer.Option("--config", envvar="COOLHEAD_CONFIG", help="A TOML file.")]
Fast = Annotated[Path | None, typer.Option("--fast", help="GGUF file of the fast tier.")]
FastSha = Annotated[str | None, typer.Option("--fast-sha256", help="Refuse the file if its sha256 differs.")]
Deep = Annotated[Path | None, typer.Option("--deep", help="GGUF file of the deep tier.")]
DeepSha = Annotated[str | None, typer.Option("--deep-sha256", help="Refuse the file if its sha256 differs.")]
Threads = Annotated[int | None, typer.Option("--threads", help="Threads of a model call.")]


@app.command()
def run(
    config: Config = None,
    fast: Fast = None,
    fast_sha256: FastSha = None,
    deep: Deep = None,
    deep_sha256: DeepSha = None,
    threads: Threads = None,
    redis_url: Annotated[str | None, typer.Option("--redis-url", help="Where the queue is.")] = None,
    node: Annotated[
        str | None, typer.Option("--node", help="Name of this node; default: the host's.")
    ] = None,
    tasks: Annotated[Path | None, typer.Option("--tasks", help="Folder of task files.")] = None,
    fit: Annotated[list[Path] | None, typer.Option("--fit", help="A fit, or a folder of fits.")] = None,
    mode: Annotated[str | None, typer.Option("--mode", help="standard, strict or always.")] = None,
    sensor_script: Annotated[
        Path | None, typer.Option("--sensor-script", help="A file that stands in for the sensors.")
    ] = None,
    metrics_port: Annotated[int | None, typer.Option("--metrics-port", help="0 for any free port.")] = None,
    lock_file: Annotated[Path | None, typer.Option("--lock-file", help="One worker per lock file.")] = None,
    log_json: Annotated[bool | None, typer.Option("--log-json/--log-plain", help="Form of the log.")] = None,
) -> None:
    """Take jobs and answer them until SIGTERM; the batch in hand is finished first."""
    from coolhead_worker.service import serve
    from coolhead_worker.settings import load_settings

    flags = {
        "node": node, "redis_url": redis_url, "tasks": tasks, "fits": tuple(fit) if fit else None,
        "mode": mode, "threads": threads, "metrics_port": metrics_port, "lock_file": lock_file,
        "log_json": log_json, "scripted_path": sensor_script, "fast": _model(fast, fast_sha256),
        "deep": _model(deep, deep_sha256), "sensor": "scripted" if sensor_script else None,
    }  # fmt: skip
    serve(load_settings(flags, config))


@app.command()
def fit(
    task: Annotated[Path, typer.Argument(metavar="TASK.toml")],
    labels: Annotated[list[Path], typer.Argument(metavar="LABELS.jsonl...")],
    out: Annotated[Path, typer.Option("--out", help="Folder of the artefact; replaced if it is there.")],
    config: Config = None,
    fast: Fast = None,
    fast_sha256: FastSha = None,
    deep: Deep = None,
    deep_sha256: DeepSha = None,
    threads: Threads = None,
    alpha: Annotated[float, typer.Option("--alpha", help="Allowed share of wrong accepted answers.")] = 0.10,
    delta: Annotated[float, typer.Option("--delta", help="Allowed chance of a wrong certificate.")] = 0.10,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the folds.")] = 0,
    cache: Annotated[Path | None, typer.Option("--cache", help="Keeps readings between fits.")] = None,
    heads_only: Annotated[
        bool, typer.Option("--heads-only", help="Learned heads alone: several times faster.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as one JSON object.")] = False,
) -> None:
    """Calibrate a task on labelled states: learned heads, temperatures, certified thresholds."""
    from coolhead_worker.fit_command import FitOrder, fit_files
    from coolhead_worker.settings import load_settings

    flags = {"threads": threads, "fast": _model(fast, fast_sha256), "deep": _model(deep, deep_sha256)}
    order = FitOrder(
        task, tuple(labels), out, alpha=alpha, delta=delta, seed=seed, cache=cache, heads_only=heads_only
    )
    fit_files(load_settings(flags, config), order, as_json=as_json)


@app.command()
def bench(
    config: Config = None,
    fast: Fast = None,
    fast_sha256: FastSha = None,
    deep: Deep = None,
    deep_sha256: DeepSha = None,
    threads: Threads = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer variants and rounds: minutes.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also beside a running worker.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure the configured models on this machine, beside bare calls and JSON generation."""
    from coolhead_worker.bench.command import bench as measure
    from coolhead_worker.settings import load_settings

    flags = {"threads": threads, "fast": _model(fast, fast_sha256), "deep": _model(deep, deep_sha256)}
    measure(load_settings(flags, config), quick=quick, force=force, as_json=as_json)


@app.command()
def selfcheck(
    config: Config = None,
    fast: Fast = None,
    fast_sha256: FastSha = None,
    deep: Deep = None,
    deep_sha256: DeepSha = None,
    threads: Threads = None,
    record: Annotated[
        Path | None, typer.Option("--record", help="Write the models' numbers into this golden file.")
    ] = None,
) -> None:
    """Check that the configured models are sound, or record what they say for later checks."""
    from coolhead_worker.selfcheck_command import selfcheck as check
    from coolhead_worker.settings import load_settings

    flags = {"threads": threads, "fast": _model(fast, fast_sha256), "deep": _model(deep, deep_sha256)}
    check(load_settings(flags, config), record)


@app.command()
def models(
    folder: Annotated[Path | None, typer.Option("--folder", help="Default: the user's cache folder.")] = None,
) -> None:
    """Fetch and prepare the two demo models; prints their paths."""
    from coolhead_worker.fit_command import prepare_models

    for tier, file in prepare_models(folder).items():
        typer.echo(f"{tier}\t{file.path}\t{file.sha256}")


@app.command()
def sensors(
    watch: Annotated[
        bool, typer.Option("--watch", help="Print again at every change, until Ctrl-C.")
    ] = False,
    script: Annotated[Path | None, typer.Option("--sensor-script", help="A file to read instead.")] = None,
) -> None:
    """Print what this machine's sensors say, one JSON object a line."""
    from coolhead_worker.admission.__main__ import look

    look(script, rounds=None if watch else 1)


def _model(path: Path | None, sha256: str | None) -> dict[str, object] | None:
    return None if path is None else {"path": path, "sha256": sha256}


def main() -> None:
    """Run the command; errors become one line and an exit code."""
    try:
        app()
    except CoolheadError as error:
        sys.stderr.write(f"coolhead-worker: {error}\n")
        sys.exit(error.exit_code)
    except ModuleNotFoundError as error:
        extra = "fit" if error.name in ("scipy", "threadpoolctl") else "worker"
        sys.stderr.write(f"coolhead-worker: {error.name} is missing: pip install 'coolhead[{extra}]'\n")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
