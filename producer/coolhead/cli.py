"""The command `coolhead`: hand in, wait, look.

Guarantee: data goes to stdout and everything else to stderr; no traceback reaches a user, an error
is one line; exit code 0 ok, 1 failure, 2 wrong usage or input, 130 interrupted. What is heavy is
imported by the command that needs it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from coolhead.client import DecisionQueue
    from coolhead.enqueue import Wanted

app = typer.Typer(
    name="coolhead",
    help="Typed decisions from local models: hand in a text, get probabilities.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
queue_app = typer.Typer(help="The lanes and what waits in them.", no_args_is_help=True)
tasks_app = typer.Typer(help="Task files.", no_args_is_help=True)
app.add_typer(queue_app, name="queue")
app.add_typer(tasks_app, name="tasks")

Text = Annotated[str, typer.Argument(metavar="TEXT|-", help="The text to decide on; - reads stdin.")]
TaskOption = Annotated[
    str, typer.Option("--task", metavar="NAME|FILE.toml", help="A task that the nodes know, or a task file.")
]
Lane = Annotated[str, typer.Option("--lane", help="interactive or bulk.")]
Deadline = Annotated[float | None, typer.Option("--deadline", help="Seconds until the job expires.")]
JobId = Annotated[str | None, typer.Option("--id", help="Your own job id; default: a hash of the content.")]
Timeout = Annotated[float, typer.Option("--timeout", help="Seconds to wait for the answer.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]
Url = Annotated[
    str | None,
    typer.Option(
        "--url", envvar="COOLHEAD_REDIS_URL", help="redis://, rediss:// or unix://; default: this machine."
    ),
]


@app.command()
def submit(
    text: Text,
    task: TaskOption,
    lane: Lane = "interactive",
    deadline: Deadline = None,
    job_id: JobId = None,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Queue a text and print the id of its job."""
    with _queue(url) as queue:
        ticket = queue.submit(_state(text), **_wanted(task, lane, deadline, job_id))
    if as_json:
        _print_json({"id": ticket.id, "lane": ticket.lane, "new": ticket.new})
    else:
        typer.echo(ticket.id)


@app.command()
def decide(
    text: Text,
    task: TaskOption,
    lane: Lane = "interactive",
    deadline: Deadline = None,
    job_id: JobId = None,
    timeout: Timeout = 30.0,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Queue a text, wait, and print the decision."""
    from coolhead import display

    wanted = _wanted(task, lane, deadline, job_id)
    state = _state(text)
    with _queue(url) as queue, display.busy("waiting for a node"):
        decision = queue.decide(state, timeout_s=timeout, **wanted)
    if as_json:
        _print_json(decision.wire())
    else:
        display.decision(decision)


@app.command()
def wait(
    job_id: Annotated[str, typer.Argument(metavar="ID", help="A job id, as printed by submit.")],
    timeout: Timeout = 30.0,
    as_json: AsJson = False,
    url: Url = None,
) -> None:
    """Wait for a job that was handed in before, and print its decision."""
    from coolhead import display

    with _queue(url) as queue, display.busy("waiting for a node"):
        decision = queue.wait(job_id, timeout)
    if as_json:
        _print_json(decision.wire())
    else:
        display.decision(decision)


@app.command()
def status(as_json: AsJson = False, url: Url = None) -> None:
    """Show the nodes, why they work or don't, and the lanes."""
    from coolhead import display

    with _queue(url) as queue:
        fleet = queue.fleet()
    if as_json:
        _print_json(fleet.wire())
    else:
        display.nodes(fleet)
        display.lanes(fleet)


@queue_app.command("ls")
def queue_ls(as_json: AsJson = False, url: Url = None) -> None:
    """Show how many jobs are where."""
    from coolhead import display

    with _queue(url) as queue:
        fleet = queue.fleet()
    if as_json:
        _print_json({"version": 1, "lanes": fleet.wire()["lanes"]})
    else:
        display.lanes(fleet)


@app.command()
def server(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where the data and the socket are kept.")],
) -> None:
    """Run an embedded Valkey until Ctrl-C or SIGTERM; prints its URL."""
    import signal
    import threading

    from coolhead.embedded import EmbeddedServer
    from coolhead.errors import QueueUnreachable

    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    running = EmbeddedServer.start(folder)
    typer.echo(running.url)
    sys.stdout.flush()
    ours = "Valkey is running; Ctrl-C stops it"
    theirs = f"Valkey already ran here (pid {running.pid}); it goes on when this command ends"
    typer.echo(theirs if running.adopted else ours, err=True)
    while not stop.wait(0.2):
        if not running.running():
            raise QueueUnreachable(f"the server ended by itself: see {running.folder / 'valkey.log'}")
    if not running.adopted:  # another command, or an application, relies on an adopted one
        running.stop()


@tasks_app.command("check")
def tasks_check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Task files.")],
    as_json: AsJson = False,
) -> None:
    """Check task files; prints each task and its questions."""
    from coolhead.task import Task

    for file in files:
        task = Task.load(file)
        kinds = {name: question.type for name, question in task.questions.items()}
        if as_json:
            _print_json({"file": str(file), "task": task.name, "questions": kinds})
        else:
            shown = ", ".join(f"{name} ({kind})" for name, kind in kinds.items())
            typer.echo(f"{file}: task {task.name}: {shown}")


@contextmanager
def _queue(url: str | None) -> Iterator[DecisionQueue]:
    from coolhead.client import DecisionQueue
    from coolhead.connection import DEFAULT_URL

    with DecisionQueue.from_url(url or DEFAULT_URL) as queue:
        yield queue


def _state(text: str) -> str | bytes:
    """The text, or what stands on stdin, undecoded: the contract says what is wrong with it."""
    return sys.stdin.buffer.read() if text == "-" else text


def _wanted(task: str, lane: str, deadline: float | None, job_id: str | None) -> Wanted:
    from coolhead.task import Task

    known = Task.load(Path(task)) if task.endswith(".toml") else task
    return {"task": known, "lane": lane, "deadline_s": deadline, "job_id": job_id}


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False, allow_nan=False))


def main() -> NoReturn:
    """Run the command line and exit."""
    from coolhead.errors import CoolheadError

    try:
        app(prog_name="coolhead")
    except CoolheadError as error:
        _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        _fail("interrupted", 130)
    except Exception as error:  # whatever it is, a user gets one line
        if os.environ.get("COOLHEAD_DEBUG"):
            raise
        _fail(f"unexpected {type(error).__name__}: a fault of coolhead; COOLHEAD_DEBUG=1 shows where", 1)
    sys.exit(0)


def _fail(line: str, code: int) -> NoReturn:
    typer.echo(f"coolhead: {line}", err=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
