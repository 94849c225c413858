"""One item as branches of sheets, and its evaluation from what was heard there.

Guarantee: pure; an over-long state is an error value of its item alone, never cut; other orders of a
question's options are only wanted where its policy asks for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from coolhead.errors import StateTooLong
from coolhead.questions import Question
from coolhead_worker.engine.chunk import NOTHING, Branch, Tokens
from coolhead_worker.engine.compiler import Compiler
from coolhead_worker.engine.dialect import Dialect
from coolhead_worker.engine.layout import aligned, cost
from coolhead_worker.engine.orders import is_near_tie
from coolhead_worker.engine.protocol import EvalItem, Evaluation, Orders, PinnedSet, Readout
from coolhead_worker.engine.readout import Labels
from coolhead_worker.engine.sheets import Place, Sheet, Sheets


@dataclass(frozen=True, slots=True)
class Room:
    """What a model can take: `cells` of one call with its prefix, `trained` positions of a text, and
    `state` tokens, the limit that users are told."""

    cells: int
    trained: int
    state: int
    model: str

    def refusal(
        self, prefix: int, state: int, tight: Sequence[Branch], free: Sequence[Branch]
    ) -> StateTooLong | None:
        """Why a state with these branches can't be read, or None when it can."""
        if state > self.state:
            return StateTooLong(
                f"the state has {state} tokens, {self.model} reads at most {self.state}: shorten it"
            )
        cells, trained = self.cells - aligned(prefix), self.trained - prefix
        deepest = max((branch.tokens for branch in (*tight, *free)), default=0)
        beside = sum(branch.tokens for branch in tight)
        # Free branches may be spread over calls, so it is the widest that counts.
        needed = max([cost(state, beside, ()), *(cost(state, beside, (branch,)) for branch in free)])
        if needed <= cells and state + deepest <= trained:
            return None
        return StateTooLong(
            f"the state has {state} tokens and its longest question {deepest}: together more than "
            f"the {max(0, min(cells, trained))} that {self.model} reads: shorten them"
        )


Order = tuple[int, ...]


@dataclass(slots=True)
class Asked:
    """A question about a state on a sheet, in the orders that are read; `others` are read only when the
    first is a near tie."""

    question: Question
    state: str
    sheet: Sheet
    labels: Labels
    shown: list[tuple[Order, Place]] = field(default_factory=list)
    others: tuple[Order, ...] = ()
    margin: float = 1.0

    def write(self, order: Order, compiler: Compiler) -> Place:
        """Put an order of the question onto its sheet."""
        prepared = compiler.question(self.question, order, self.state)
        # Branches without a state before them share a sheet: what tells them apart is the state inside.
        inside = f"\0{self.state}" if prepared.alone else ""
        place = self.sheet.want(self.question.fingerprint + inside, order, prepared)
        self.shown.append((order, place))
        return place

    def go_on(self, compiler: Compiler) -> list[Place]:
        """Write the other orders when the first is a near tie; returns those that are new to the sheet."""
        first = self.sheet.heard.get(self.shown[0][1])
        if not self.others or first is None or not is_near_tie(first, self.margin):
            return []
        before = len(self.sheet.free)
        added = [self.write(order, compiler) for order in self.others]
        self.others = ()
        return [place for place in dict.fromkeys(added) if place.index >= before]

    def readout(self, dialect: Dialect) -> Readout:
        """What was heard, in the order of the question's labels."""
        heard = [(order, self.sheet.heard[place]) for order, place in self.shown]
        return dialect.fold(self.question, self.labels, heard)


@dataclass(slots=True)
class Request:
    """All that one item wants. `tokens`: prompt tokens it stands on."""

    asked: dict[str, Asked] = field(default_factory=dict)
    trunk: Sheet | None = None
    tokens: int = 0

    def go_on(self, sheet: Sheet, compiler: Compiler) -> list[Place]:
        """New places on this sheet for the other orders of near ties."""
        return [place for one in self.asked.values() if one.sheet is sheet for place in one.go_on(compiler)]

    def evaluation(self, dialect: Dialect) -> Evaluation:
        """What was heard."""
        readouts = {name: one.readout(dialect) for name, one in self.asked.items()}
        features = None if self.trunk is None else self.trunk.features
        return Evaluation(readouts, features, self.tokens)


@dataclass(frozen=True, slots=True)
class RequestWriter:
    """Writes the wants of items onto the sheets of a batch."""

    compiler: Compiler
    sheets: Sheets
    room: Room

    def write(self, item: EvalItem) -> Request | StateTooLong:
        """One item.

        Raises:
            InvalidQuestion: this vocabulary can't answer it.
        """
        state = self.compiler.state(item.state)
        pinned = item.pinned if self.compiler.dialect.pins else None
        wanted = Request()
        refusal = None
        if item.trunk or (item.questions and pinned is None):
            refusal = self._isolate(wanted, item, {} if pinned is not None else item.questions, state)
        if refusal is None and item.questions and pinned is not None:
            refusal = self._pin(wanted, item.questions, pinned, state)
        return refusal or self.room.refusal(0, len(state), (), ()) or wanted

    def _isolate(
        self, wanted: Request, item: EvalItem, questions: Mapping[str, Question], state: Tokens
    ) -> StateTooLong | None:
        """The trunk, and each question in a branch of its own."""
        prefix, probe = self.compiler.prefix, self.compiler.probe if item.trunk else NOTHING
        orders = {
            name: self.compiler.dialect.orders(one, item.orders.get(name, Orders()).level)
            for name, one in questions.items()
        }
        said = {
            name: [self.compiler.question(one, order, item.state) for order in orders[name]]
            for name, one in questions.items()
        }
        every = [one for shown in said.values() for one in shown]
        free, rows = ([one.branch for one in every if one.alone is alone] for alone in (False, True))
        refusal = self.room.refusal(len(prefix), len(state), (Branch(probe, ()),), free)
        refusal = refusal or self.room.refusal(0, 0, (), rows)
        if refusal is not None:
            return refusal
        sheet = self.sheets.at(prefix, state)
        if item.trunk:
            sheet.probe = probe
            wanted.trunk = sheet
        for name, question in questions.items():
            first = said[name][0]
            page = self.sheets.at(NOTHING, NOTHING) if first.alone else sheet
            asked = wanted.asked[name] = Asked(question, item.state, page, first.labels)
            self._show(asked, orders[name], item.orders.get(name, Orders()).near_tie)
        if item.trunk or any(not shown[0].alone for shown in said.values()):
            wanted.tokens += len(prefix) + len(state) + len(probe)
        wanted.tokens += sum(shown[0].branch.tokens for shown in said.values())
        return None

    def _show(self, asked: Asked, orders: tuple[Order, ...], margin: float) -> None:
        """All orders at once, or the first one with the others kept for a near tie."""
        now, later = (orders[:1], orders[1:]) if self._waits(margin) else (orders, ())
        asked.others, asked.margin = later, margin
        asked.sheet.open |= bool(later)
        for order in now:
            asked.write(order, self.compiler)

    def _waits(self, margin: float) -> bool:
        return self.compiler.dialect.adaptive and margin < 1.0

    def _pin(
        self,
        wanted: Request,
        questions: Mapping[str, Question],
        pinned: PinnedSet,
        state: Tokens,
    ) -> StateTooLong | None:
        """The wanted questions among those that stand before the state."""
        held = self.compiler.pinned(pinned)
        suffixes = [one.branch for one in held.questions.values()]
        refusal = self.room.refusal(len(held.prefix), len(state), suffixes, ())
        if refusal is not None:
            return refusal
        sheet = self.sheets.at(held.prefix, state)
        places = dict(zip(held.questions, sheet.want_pinned(held.questions.values()), strict=True))
        for name, question in questions.items():
            labels = held.questions[name].labels
            forward = tuple(range(len(question.labels)))
            wanted.asked[name] = Asked(question, "", sheet, labels, [(forward, places[name])])
        wanted.tokens += len(held.prefix) + len(state) + sum(branch.tokens for branch in suffixes)
        return None
