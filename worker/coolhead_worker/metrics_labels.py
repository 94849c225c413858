"""The closed sets of label values, and how free words are folded into them.

Guarantee: pure; no value leaves this module that is not in a set known at start, so the number of
series is bounded whatever producers send. What is not known becomes `other`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Literal

from coolhead import errors
from coolhead.answers import Outcome
from coolhead.policy import Grey, Lane, Tier
from coolhead.questions import Choice
from coolhead.task import Task

OTHER = "other"
HANDED_BACK = "handed_back"
#: Verdict names of choices that one task may bring; the rest is `other`.
MAX_VERDICTS = 20

Kind = Literal["noul", "choice", "score"]
KINDS: tuple[Kind, ...] = ("noul", "choice", "score")

LANES = tuple(lane.value for lane in Lane)
TIERS = tuple(tier.value for tier in Tier)
GREYS = tuple(grey.value for grey in Grey)
OUTCOMES = (*(outcome.value for outcome in Outcome), HANDED_BACK)
STATES = ("starting", "idle", "busy", "paused", "draining")
PHASES = ("before_acquire", "after_acquire", "during_call")
CHECKS = ("safe", "unsafe", "unknown")
PAUSE_REASONS = ("thermal", "low_power_mode", "memory", "power", "battery", "sensor_unknown", OTHER)
PUT_BACK_REASONS = (*PAUSE_REASONS[:-1], "drain", Outcome.TRANSIENT.value, Outcome.UNAVAILABLE.value, OTHER)
#: Why a model is given up while the worker runs.
Absence = Literal["memory", "damage"]
UNLOADS: tuple[Absence, ...] = ("memory", "damage")
#: What a model had been away for when it was brought into memory.
ColdStart = Literal["start", "memory", "damage"]
COLD_STARTS: tuple[ColdStart, ...] = ("start", *UNLOADS)
SelfCheck = Literal["golden", "structural", "failed"]
SELF_CHECKS: tuple[SelfCheck, ...] = ("golden", "structural", "failed")

_KIND_OF: tuple[tuple[type[errors.CoolheadError], str], ...] = (
    (errors.StateTooLong, "context_overflow"),
    (errors.DecodeTimeout, "timeout"),
    (errors.DecodeInterrupted, "interrupted"),
    (errors.NotFinite, "not_finite"),
    (errors.DecodeFailed, "inference"),
    (errors.TierUnloaded, "unloaded"),
    (errors.ModelMissing, "model_load"),
    (errors.ModelMismatch, "model_load"),
    (errors.ModelCorrupt, "model_load"),
    (errors.ModelUnsupported, "model_load"),
    (errors.FitMismatch, "calibration"),
    (errors.JobRejected, "rejected"),
    (errors.QueueError, "redis"),
    (errors.ContractError, "schema"),
)
ERROR_KINDS = (*dict.fromkeys(kind for _, kind in _KIND_OF), OTHER)


def folded(value: str, allowed: Collection[str]) -> str:
    """`value` where it is allowed, else `other`."""
    return str(value) if value in allowed else OTHER


def phase_of(phase: str) -> str:
    """A phase of the loop; what is not said to be another one is counted after a claim."""
    return phase if phase in PHASES else PHASES[1]


def error_kind(code: str) -> str:
    """The kind of an error's code (a class name of `coolhead.errors`) or a kind itself."""
    if code in ERROR_KINDS:
        return code
    found = getattr(errors, code, None)
    if not isinstance(found, type):
        return OTHER
    return next((kind for base, kind in _KIND_OF if issubclass(found, base)), OTHER)


def requeue_outcome(reason: str) -> str:
    """The outcome of a job that went back to its queue."""
    return reason if reason in (Outcome.TRANSIENT, Outcome.UNAVAILABLE) else HANDED_BACK


class TaskLabels:
    """Which tasks, and which verdicts of them, may be named."""

    def __init__(self, tasks: Mapping[str, Task]) -> None:
        self._choices = {name: _choice_names(task) for name, task in tasks.items()} | {OTHER: ()}

    @property
    def names(self) -> tuple[str, ...]:
        """All task labels, `other` included."""
        return tuple(self._choices)

    def task(self, name: str | None) -> str:
        """The label of a task; questions given inline and unknown tasks are `other`."""
        return folded(name or OTHER, self._choices)

    def verdict(self, task: str, kind: Kind, verdict: str) -> str:
        """The label of a verdict; `task` is a label that `task()` returned."""
        if kind == "noul":
            return "yes" if verdict == "yes" else "no"
        return folded(verdict, self._choices[task]) if kind == "choice" else "scored"

    def __iter__(self) -> Iterator[tuple[str, str, str]]:
        """Every (task, kind, verdict) that can occur; a task's name may come with any questions."""
        for task, options in self._choices.items():
            yield from ((task, "noul", "yes"), (task, "noul", "no"), (task, "score", "scored"))
            yield from ((task, "choice", option) for option in (*options, OTHER))


def _choice_names(task: Task) -> tuple[str, ...]:
    """The first option names of the task's choices, each once."""
    choices = [question for _, question in task.questions.items() if isinstance(question, Choice)]
    names = dict.fromkeys(label for question in choices for label in question.labels if label != OTHER)
    return tuple(names)[:MAX_VERDICTS]
