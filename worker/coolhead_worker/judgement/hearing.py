"""One call of one tier: what is asked of the engine, and what came back for each job.

Guarantee: one engine call for all jobs; each question is read by head or by text as its fit wants;
numbers that can't be used, and requests that the engine refuses, are the error of their job alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coolhead.errors import ContractError, CoolheadError, DecodeFailed, DecodeTimeout, StateTooLong
from coolhead.job import Job
from coolhead.policy import Policy, Tier
from coolhead.questions import Questions, text_of
from coolhead_worker.clock import Clock
from coolhead_worker.engine.protocol import Engine, EvalItem, Evaluation
from coolhead_worker.judgement.artefact import FitBook
from coolhead_worker.judgement.cascade import Assessed, Basis, Numbers, assess, basis_of, reading
from coolhead_worker.judgement.fitted import Route


@dataclass(frozen=True, slots=True)
class Case:
    """A job with its questions and policy found."""

    job: Job
    questions: Questions
    policy: Policy


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

    def __init__(self, tier: Tier, engine: Engine, fits: FitBook, clock: Clock) -> None:
        self.tier = tier
        self.engine = engine
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
            DecodeFailed, DecodeTimeout: from the engine.
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
        items = [_item(ask, bases) for ask, bases in zip(asks, based, strict=True)]
        said = self.engine.evaluate(items, timeout_s)
        return [_hear(self.tier, ask, bases, one) for ask, bases, one in zip(asks, based, said, strict=True)]

    def _one_by_one(self, asks: Sequence[Ask], until: float) -> list[Heard | CoolheadError]:
        heard: list[Heard | CoolheadError] = []
        for ask in asks:
            left = until - self._clock.monotonic()
            if left <= 0:
                raise DecodeTimeout("the time for the batch is used up")
            heard += self.call([ask], left).heard
        return heard

    def _bases(self, ask: Ask) -> dict[str, Basis]:
        wanted = ask.case.policy.calibration
        return {
            name: basis_of(self._fits.find(ask.case.questions[name].fingerprint, self.tier), wanted)
            for name in ask.ids
        }


def _item(ask: Ask, bases: Mapping[str, Basis]) -> EvalItem:
    by_text, trunk = reading(bases)
    questions = {name: ask.case.questions[name] for name in by_text}
    return EvalItem(state=text_of(ask.case.job.state), questions=questions, trunk=trunk)


def _hear(
    tier: Tier, ask: Ask, bases: Mapping[str, Basis], said: Evaluation | StateTooLong
) -> Heard | CoolheadError:
    """One job's numbers as assessed answers; numbers that can't be used are that job's error."""
    if isinstance(said, StateTooLong):
        return said
    case = ask.case
    try:
        assessed = {
            name: assess(
                case.questions[name],
                tier,
                basis,
                _numbers(said, name, basis),
                case.policy.for_question(name),
                ask.routes.get(name),
            )
            for name, basis in bases.items()
        }
    except (ValueError, KeyError) as error:
        return DecodeFailed(f"the {tier.value} model's numbers can't be used: {error}")
    return Heard(assessed, said.tokens)


def _numbers(said: Evaluation, name: str, basis: Basis) -> Numbers:
    if not basis.by_head:
        readout = said.readouts[name]
        return Numbers(readout.logits, readout.mass, readout.kind)
    if said.features is None:
        raise ValueError("the trunk was asked for and is missing")
    return Numbers(said.features, None, "trunk")
