"""The plans by which one engine reads, and their ids, worked out once.

Guarantee: an id names everything beside the weights that can move a number; the id of a pinned plan
changes when a question or an example of its task is added, removed, reworded or moved. An engine that
can't pin gives the id of the isolated plan for it: its questions are then called isolated here too.
"""

from __future__ import annotations

from collections.abc import Mapping

from coolhead.task import Task, TextPlan
from coolhead_worker.engine.protocol import Engine, PinnedSet, PlanKind, Shown


def pinned_set(task: Task) -> PinnedSet:
    """What stands before the state when a task's questions are pinned."""
    examples = (
        Shown(one.state, {name: task.label(name, value) for name, value in one.answers.items()})
        for one in task.examples
    )
    return PinnedSet(task.questions.root, tuple(examples))


class PlanIds:
    """Of one engine, for questions given inline and for these tasks."""

    def __init__(self, engine: Engine, tasks: Mapping[str, Task]) -> None:
        self._alone = {kind: engine.plan_id(kind) for kind in (PlanKind.ISOLATED, PlanKind.TRUNK)}
        self._sets = {task.name: pinned_set(task) for task in tasks.values()}
        self._pinned = {name: engine.plan_id(PlanKind.PINNED, shown) for name, shown in self._sets.items()}

    def shown(self, task: Task) -> PinnedSet:
        """What stands before the state when the questions of this task, one of those given, are pinned."""
        return self._sets[task.name]

    def pinned(self, task: str | None) -> str | None:
        """The id under which the questions of a task stand before the state; None for no such task."""
        return None if task is None else self._pinned.get(task)

    def of(self, kind: PlanKind, task: str | None = None) -> str:
        """The id of a plan.

        Args:
            kind: the plan.
            task: of a pinned plan, the name of its task.

        Raises:
            ValueError: a pinned plan of no task, or of one that is not known here.
        """
        if kind is not PlanKind.PINNED:
            return self._alone[kind]
        found = self.pinned(task)
        if found is None:
            raise ValueError(f"no task {task!r} whose questions could be pinned")
        return found

    def text(self, task: Task | None) -> PlanKind:
        """How questions without a learned head are read: as their task says, alone when given inline."""
        if task is None or task.plan is TextPlan.ISOLATED:
            return PlanKind.ISOLATED
        pins = self.of(PlanKind.PINNED, task.name) != self.of(PlanKind.ISOLATED)
        return PlanKind.PINNED if pins else PlanKind.ISOLATED
