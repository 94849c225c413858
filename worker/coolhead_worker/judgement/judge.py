"""The judge: jobs in, answers out, with one fast call for all and at most one deep call.

Guarantee: results come in the order of the jobs; a job that can't be judged is an error value and
never touches its neighbours; a fast call that fails raises for the whole batch, a deep call that
fails, or whose model is not in memory, leaves the fast answers, each with the reason it was
escalated; a call of either tier that was stopped because the machine turned unsafe raises, and the
whole batch is to be put back. Every answer says which tier, model, plan, method and fit it comes
from, and whether its probability is certified, fitted, the model author's or uncalibrated. No state
text is logged or put into an error.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coolhead.answers import Answer, Provenance, answer_of
from coolhead.errors import (
    CoolheadError,
    DecodeFailed,
    DecodeTimeout,
    InvalidPolicy,
    JobRejected,
    TierUnloaded,
    UnknownTask,
)
from coolhead.job import Job
from coolhead.policy import Grey, Policy, Tier
from coolhead.questions import Question
from coolhead.task import TaskBook
from coolhead_worker.clock import Clock
from coolhead_worker.engine.protocol import Engine
from coolhead_worker.judgement.artefact import FitBook
from coolhead_worker.judgement.cascade import Assessed, Settled, reason_to_ask, refused, route_of, settle
from coolhead_worker.judgement.hearing import Ask, Case, Heard, Pass, TierCaller

_log = logging.getLogger("coolhead.judgement")


@dataclass(frozen=True, slots=True)
class JudgeItem:
    """A job to judge."""

    job: Job


@dataclass(frozen=True, slots=True)
class Judged:
    """The answers of one job.

    `model`: "name@digest12" of the models that gave answers, fast first, joined by "+". `tokens`:
    read by both tiers. `fast_s`, `deep_s`: seconds of the calls this job rode in; `deep_s` is 0
    when it was not in the deep one, or the deep model is not in memory.
    """

    answers: dict[str, Answer]
    model: str
    tokens: int
    fast_s: float
    deep_s: float
    task: str | None
    deep_tokens: int = 0  #: of `tokens`, those the deep tier read


@dataclass(frozen=True, slots=True)
class _Deep:
    """What the deep tier said to one job, and how long its call took."""

    heard: Heard | CoolheadError
    seconds: float

    @property
    def unavailable(self) -> bool:
        """Whether its model is not in memory."""
        return isinstance(self.heard, TierUnloaded)


class Judge:
    """Judges batches on one node; keeps nothing of a call.

    `tasks` are those that the node was started with: a fit of pinned questions is for their sets.
    """

    def __init__(
        self, fast: Engine, deep: Engine | None, fits: FitBook, tasks: TaskBook, node: str, clock: Clock
    ) -> None:
        engines = {Tier.FAST: fast} if deep is None else {Tier.FAST: fast, Tier.DEEP: deep}
        self._tiers = {tier: TierCaller(tier, engine, fits, tasks, clock) for tier, engine in engines.items()}
        self._tasks = tasks
        self._node = node
        self._clock = clock

    def judge(self, jobs: Sequence[JudgeItem], timeout_s: float) -> list[Judged | CoolheadError]:
        """Judge a batch.

        Args:
            jobs: what to judge.
            timeout_s: seconds for both calls together; when the fast call uses them up, the deep
                one is not made.

        Returns:
            One entry a job, in order: answers, or UnknownTask, InvalidPolicy, StateTooLong,
            JobRejected (low mass and a policy that refuses it), DecodeFailed (numbers that are not
            finite), or the ContractError by which the engine refuses the request.

        Raises:
            DecodeFailed, DecodeTimeout: the fast call failed as a whole.
            TierUnloaded: the fast model is not in memory.
            DecodeInterrupted: either call was stopped because the machine turned unsafe.
        """
        opened = [self._open(item.job) for item in jobs]
        cases = [case for case in opened if isinstance(case, Case)]
        asks = [Ask(case, tuple(case.questions.root), {}) for case in cases]
        fast = self._tiers[Tier.FAST].call(asks, timeout_s)
        reasons = [self._reasons(case, heard) for case, heard in zip(cases, fast.heard, strict=True)]
        deep = self._deepen(cases, fast, reasons, timeout_s - fast.seconds)
        done = (
            heard if isinstance(heard, CoolheadError) else self._finish(case, heard, why, deep.get(at), fast)
            for at, (case, heard, why) in enumerate(zip(cases, fast.heard, reasons, strict=True))
        )
        return [next(done) if isinstance(entry, Case) else entry for entry in opened]

    def _open(self, job: Job) -> Case | CoolheadError:
        """Questions given inline stand alone; else the task's, with its policy unless the job has one."""
        policy, task = job.policy, None
        if job.questions is not None:
            questions = job.questions
        else:
            try:
                task = self._tasks.find(job.task or "")
            except UnknownTask as error:
                return error
            questions, policy = task.questions, policy or task.policy
        unknown = sorted(set(policy.per_question) - set(questions.root)) if policy else []
        if unknown:
            return InvalidPolicy(f"policy.per_question: no question is called {unknown[0][:64]!r}")
        return Case(job, questions, policy or Policy(), task)

    def _reasons(self, case: Case, heard: Heard | CoolheadError) -> dict[str, Grey]:
        """The questions of a job to ask the deep tier, and why."""
        if isinstance(heard, CoolheadError):
            return {}
        deep = Tier.DEEP in self._tiers
        asked = {q: reason_to_ask(a, case.policy.escalation, deep=deep) for q, a in heard.assessed.items()}
        return {name: reason for name, reason in asked.items() if reason is not None}

    def _deepen(
        self, cases: Sequence[Case], fast: Pass, reasons: Sequence[Mapping[str, Grey]], left_s: float
    ) -> dict[int, _Deep]:
        """The deep tier's word on the escalated questions, by place of the case."""
        places = [at for at, why in enumerate(reasons) if why]
        if not places:
            return {}
        asks = [_deep_ask(cases[at], fast.heard[at], tuple(reasons[at])) for at in places]
        heard: Sequence[Heard | CoolheadError]
        start = self._clock.monotonic()
        try:
            if left_s <= 0:
                raise DecodeTimeout("the fast call used up the time for both")
            heard = self._tiers[Tier.DEEP].call(asks, left_s).heard
        except (DecodeFailed, DecodeTimeout, TierUnloaded) as error:
            heard = [error] * len(asks)
        seconds = self._clock.monotonic() - start
        self._report(heard)
        return {at: _Deep(one, seconds) for at, one in zip(places, heard, strict=True)}

    def _report(self, heard: Sequence[Heard | CoolheadError]) -> None:
        failed = [one for one in heard if isinstance(one, CoolheadError)]
        if not failed:
            return
        # expected while memory is short, and then true of every batch: no warning
        away = isinstance(failed[0], TierUnloaded)
        _log.log(
            logging.INFO if away else logging.WARNING,
            "deep pass failed for %d jobs, their fast answers stand: %s: %s",
            len(failed),
            failed[0].code,
            failed[0],
            extra={
                "action": "deep_unavailable" if away else "deep_failed",
                "node": self._node,
                "jobs": len(failed),
            },
        )

    def _finish(
        self, case: Case, heard: Heard, reasons: Mapping[str, Grey], deep: _Deep | None, fast: Pass
    ) -> Judged | CoolheadError:
        """Merge both tiers' words into the job's result."""
        second = deep.heard if deep is not None and isinstance(deep.heard, Heard) else None
        answers: dict[str, Answer] = {}
        for name, question in case.questions.items():
            first = heard.assessed[name]
            last = None if second is None else second.assessed.get(name)
            if refused(case.policy, first, last):
                return _rejection(name, last or first)
            settled = settle(question, first, reasons.get(name), last)
            missed = name in reasons and deep is not None and deep.unavailable
            answers[name] = self._answer(question, settled, deep_unavailable=missed)
        return Judged(
            answers=answers,
            model="+".join(self._models(answers)),
            tokens=heard.tokens + (0 if second is None else second.tokens),
            fast_s=fast.seconds,
            deep_s=0.0 if deep is None or deep.unavailable else deep.seconds,
            task=case.job.task,
            deep_tokens=0 if second is None else second.tokens,
        )

    def _answer(self, question: Question, settled: Settled, *, deep_unavailable: bool) -> Answer:
        said = settled.answer
        source = Provenance(
            tier=said.tier,
            escalated=settled.escalated,
            flipped=settled.flipped,
            status=said.status,
            method=said.method,
            fit=said.fit,
            model=self._tiers[said.tier].label,
            plan=said.plan,
            readout=said.kind,
            mass=said.mass,
            debias=said.debias,
            deep_unavailable=deep_unavailable,
        )
        return answer_of(question, said.probabilities, said.limits.thresholds, source)

    def _models(self, answers: Mapping[str, Answer]) -> list[str]:
        used = {answer.tier for answer in answers.values()}
        return [caller.label for tier, caller in self._tiers.items() if tier in used]


def _deep_ask(case: Case, heard: Heard | CoolheadError, ids: tuple[str, ...]) -> Ask:
    assert isinstance(heard, Heard)  # only heard jobs have reasons
    first = heard.assessed
    routes = {q: route_of(first[q].limits, first[q].fit, case.policy.escalation) for q in ids}
    return Ask(case, ids, routes)


def _rejection(name: str, said: Assessed) -> JobRejected:
    least = said.limits.thresholds.min_mass
    return JobRejected(
        f"question {name[:64]!r}: the model hardly considered the options "
        f"(mass {said.mass:.3f}, at least {least:g} is asked) and the policy refuses to guess"
    )
