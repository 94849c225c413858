"""One call of one tier: what is asked of the engine, and what came back for each job.

Guarantee: one engine call for all jobs; each question is read by the plan of its fit, else by that of
its task, and alone when it is given inline; numbers that can't be used, and requests that the engine
refuses, are the error of their job alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from coolhead.errors import ContractError, CoolheadError, DecodeFailed, DecodeTimeout, StateTooLong
from coolhead.job import Job
from coolhead.policy import Debias, Policy, Tier
from coolhead.questions import Question, Questions, text_of
from coolhead.task import Task
from coolhead_worker.clock import Clock
from coolhead_worker.engine.protocol import Engine, EvalItem, Evaluation, PinnedSet, PlanKind
from coolhead_worker.judgement.artefact import FitBook
from coolhead_worker.judgement.cascade import Assessed, Basis, assess, basis_of
from coolhead_worker.judgement.fitted import Route
from coolhead_worker.judgement.items import items_of, merged, numbers_of
from coolhead_worker.judgement.plans import PlanIds


@dataclass(frozen=True, slots=True)
class Case:
    """A job with its questions and policy found; `task` is None when the questions are its own."""

    job: Job
    questions: Questions
    policy: Policy
    task: Task | None = None

    @property
    def task_name(self) -> str | None:
        """The task that the questions are those of."""
        return None if self.task is None else self.task.name


@dataclass(frozen=True, slots=True)
class Ask:
    """What one job wants of one tier; `routes` tells, for the deep tier, how each question came."""

    case: Case
    ids: tuple[str, ...]
    routes: Mapping[str, Route]


@dataclass(frozen=True, slots=True)
class Heard:
    """What one tier said to one job."""

    assessed: Mapping[str, Assessed]
    tokens: int


@dataclass(frozen=True, slots=True)
class Pass:
    """One call: what was heard of each ask, in order, and how long it took."""

    heard: Sequence[Heard | CoolheadError]
    seconds: float


class TierCaller:
    """Asks one tier's engine."""

    def __init__(
        self, tier: Tier, engine: Engine, fits: FitBook, tasks: Mapping[str, Task], clock: Clock
    ) -> None:
        self.tier = tier
        self.engine = engine
        self._plans = PlanIds(engine, tasks)
        self._fits = fits
        self._clock = clock

    @property
    def label(self) -> str:
        """The model as answers name it: name@digest12."""
        return f"{self.engine.name}@{self.engine.digest[:12]}"

    def call(self, asks: Sequence[Ask], timeout_s: float) -> Pass:
        """One engine call for all asks; none for no asks.

        A batch that the engine refuses because of some request in it is asked again one by one, so
        that the refusal stays with its job.

        Raises:
            DecodeFailed, DecodeTimeout, DecodeInterrupted, TierUnloaded: from the engine.
        """
        start = self._clock.monotonic()
        try:
            heard = self._hear_all(asks, timeout_s)
        except ContractError as error:
            heard = [error] if len(asks) == 1 else self._one_by_one(asks, start + timeout_s)
        return Pass(heard, self._clock.monotonic() - start)

    def _hear_all(self, asks: Sequence[Ask], timeout_s: float) -> list[Heard | CoolheadError]:
        if not asks:
            return []
        based = [self._bases(ask) for ask in asks]
        items = [self._items(ask, bases) for ask, bases in zip(asks, based, strict=True)]
        said = self._evaluate(items, timeout_s)
        return [self._hear(*one) for one in zip(asks, based, said, strict=True)]

    def _items(self, ask: Ask, bases: Mapping[str, Basis]) -> list[EvalItem]:
        case = ask.case
        shown = PinnedSet(case.questions.root) if case.task is None else self._plans.shown(case.task)
        return items_of(text_of(case.job.state), shown, bases, case.policy)

    def _evaluate(
        self, items: Sequence[Sequence[EvalItem]], timeout_s: float
    ) -> list[list[Evaluation | StateTooLong]]:
        """One call for the items of all jobs; what was said to each job's, in order."""
        owners = [owner for owner, mine in enumerate(items) for _ in mine]
        said: list[list[Evaluation | StateTooLong]] = [[] for _ in items]
        flat = self.engine.evaluate(list(chain.from_iterable(items)), timeout_s)
        for owner, one in zip(owners, flat, strict=True):
            said[owner].append(one)
        return said

    def _one_by_one(self, asks: Sequence[Ask], until: float) -> list[Heard | CoolheadError]:
        heard: list[Heard | CoolheadError] = []
        for ask in asks:
            left = until - self._clock.monotonic()
            if left <= 0:
                raise DecodeTimeout("the time for the batch is used up")
            heard += self.call([ask], left).heard
        return heard

    def _bases(self, ask: Ask) -> dict[str, Basis]:
        return {name: self._basis(ask.case, ask.case.questions[name]) for name in ask.ids}

    def _basis(self, case: Case, question: Question) -> Basis:
        found = self._fits.find(question.fingerprint, self.tier, self._plans.pinned(case.task_name))
        authored = self.engine.temperature(question)
        return basis_of(found, case.policy.calibration, self._unfitted_plan(case), authored)

    def _unfitted_plan(self, case: Case) -> PlanKind:
        """How a question without a fit is read: where other orders of its options are wanted it stands
        alone, since the order in a pinned prefix is fixed."""
        return self._plans.text(case.task) if case.policy.debias is Debias.RAW else PlanKind.ISOLATED

    def _hear(
        self, ask: Ask, bases: Mapping[str, Basis], said: Sequence[Evaluation | StateTooLong]
    ) -> Heard | CoolheadError:
        """One job's numbers as assessed answers; numbers that can't be used are that job's error."""
        read = [one for one in said if isinstance(one, Evaluation)]
        if len(read) < len(said):
            return next(one for one in said if isinstance(one, StateTooLong))
        whole = merged(read)
        try:
            assessed = {name: self._assess(ask, name, basis, whole) for name, basis in bases.items()}
        except (ValueError, KeyError) as error:
            return DecodeFailed(f"the {self.tier.value} model's numbers can't be used: {error}")
        return Heard(assessed, whole.tokens)

    def _assess(self, ask: Ask, name: str, basis: Basis, said: Evaluation) -> Assessed:
        case = ask.case
        return assess(
            case.questions[name],
            self.tier,
            basis,
            numbers_of(said, name, basis, self._plans.of(basis.plan, case.task_name)),
            case.policy.for_question(name),
            ask.routes.get(name),
        )
