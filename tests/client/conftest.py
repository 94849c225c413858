"""One queue, four times: the real client and the fake, each blocking and for asyncio."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest

from coolhead.client import AsyncDecisionQueue, DecisionQueue
from coolhead.enqueue import EnqueueRules
from coolhead.fleet import Node
from coolhead.job import Job
from coolhead.task import Task, TaskBook
from coolhead.testing import Answerer, AsyncFakeDecisionQueue, FakeDecisionQueue
from tests.client.settler import Settler, write_node

SUPPORT = Task.parse(
    """
name = "support"
[questions.refund]
type = "noul"
instructions = "Does the author ask for money back?"
[questions.queue]
type = "choice"
criteria = ["billing", "technical", "other"]
[questions.urgency]
type = "score"
criteria = ["low", "high"]
[policy.thresholds]
verdict_at = 0.9
"""
)


class Backend(Protocol):
    """A queue and the side of it that a test moves by hand."""

    queue: Any

    def answer_with(self, answer: Answerer) -> None: ...
    def show(self, node: Node) -> None: ...
    def seen(self) -> list[Job]: ...
    def hold(self) -> None: ...
    def let_go(self) -> None: ...


class InLoop:
    """An asyncio queue, called as if it were a blocking one."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._runner = asyncio.Runner()
        self._queue = self._runner.run(self._made(make))

    async def _made(self, make: Callable[[], Any]) -> Any:
        return make()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._queue, name)
        return lambda *args, **named: self._runner.run(self._finished(method(*args, **named)))

    async def _finished(self, what: Any) -> Any:
        return [pair async for pair in what] if inspect.isasyncgen(what) else await what

    def end(self) -> None:
        self._runner.run(self._queue.close())
        self._runner.close()


class Fake:
    def __init__(self, queue: Any, fake: FakeDecisionQueue) -> None:
        self.queue, self._fake = queue, fake

    def answer_with(self, answer: Answerer) -> None:
        self._fake.answer = answer

    def show(self, node: Node) -> None:
        self._fake.nodes += (node,)

    def seen(self) -> list[Job]:
        return self._fake.submitted

    def hold(self) -> None:
        """The fake answers only when it is waited for."""

    def let_go(self) -> None:
        """So there is nothing to let go."""


class Real:
    def __init__(self, queue: Any, settler: Settler, connection: Any) -> None:
        self.queue, self._settler, self._connection = queue, settler, connection

    def answer_with(self, answer: Answerer) -> None:
        self._settler.answer_with(answer)

    def show(self, node: Node) -> None:
        write_node(self._connection, node)

    def seen(self) -> list[Job]:
        return self._settler.seen

    def hold(self) -> None:
        self._settler.hold()

    def let_go(self) -> None:
        self._settler.let_go()


KINDS = [
    "fake",
    "async fake",
    pytest.param("real", marks=pytest.mark.server),
    pytest.param("async real", marks=pytest.mark.server),
]


@pytest.fixture(params=KINDS)
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """A queue with somebody who answers; `@pytest.mark.parametrize("rules", ...)` is honoured."""
    rules = request.node.callspec.params.get("rules", EnqueueRules())
    tasks = TaskBook({"support": SUPPORT})
    make = _make_fake if "fake" in request.param else _make_real
    yield from make(request, rules, tasks)


def _make_fake(request: pytest.FixtureRequest, rules: EnqueueRules, tasks: TaskBook) -> Iterator[Backend]:
    fake = FakeDecisionQueue(tasks=tasks, rules=rules)
    if request.param == "fake":
        yield Fake(fake, fake)
        return
    queue = InLoop(lambda: AsyncFakeDecisionQueue(fake))
    yield Fake(queue, fake)
    queue.end()


def _make_real(request: pytest.FixtureRequest, rules: EnqueueRules, tasks: TaskBook) -> Iterator[Backend]:
    valkey = request.getfixturevalue("valkey")
    settler = Settler(valkey.client(), tasks)
    connection = valkey.client()
    settler.start()
    try:
        if request.param == "real":
            with DecisionQueue.from_url(valkey.url, rules) as queue:
                yield Real(queue, settler, connection)
        else:
            in_loop = InLoop(lambda: AsyncDecisionQueue.from_url(valkey.url, rules))
            yield Real(in_loop, settler, connection)
            in_loop.end()
    finally:
        settler.stop()
        connection.close()
