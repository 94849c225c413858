"""What three desks and two queues should do, in plain Python: the model of `test_many_hands`."""

from __future__ import annotations

from dataclasses import dataclass, field

from coolhead.policy import Lane
from coolhead_worker.claim.desk import ClaimDesk
from coolhead_worker.claim.settlement import Claimed, Settlement

MAX_DELIVERIES = 3
WAITING = ("queue", "scheduled")
ENDS = {"succeed": "finished", "fail": "failed"}


@dataclass
class Known:
    """What the model knows of a job. `place`: queue, lease, scheduled, finished or failed."""

    lane: Lane
    place: str = "queue"
    deliveries: int = 0
    attempts: int = 0
    defers: int = 0
    late: bool = False
    due: bool = False
    settled_by: str = ""


@dataclass
class Hold:
    """A claimed job in the hands of a desk, or of a desk that is dead."""

    desk: ClaimDesk
    claimed: Claimed
    over: bool = False  # its lease has ended
    settled: list[Settlement] = field(default_factory=list)


class Model:
    """Jobs by name, queues front first, retries by their times, holds in the order of claiming."""

    def __init__(self) -> None:
        self.jobs: dict[str, Known] = {}
        self.queues: dict[Lane, list[str]] = {lane: [] for lane in Lane}
        self.scheduled: list[str] = []
        self.holds: list[Hold] = []
        self.past: list[Hold] = []

    def enqueue(self, lane: Lane, names: list[str]) -> None:
        self.jobs |= {name: Known(lane) for name in names}
        self.queues[lane] += names

    def claim(self, lanes: tuple[Lane, ...], limit: int) -> tuple[list[str], list[Lane]]:
        """Names of the claimed, and lanes of the expired; each still has to be held."""
        taken: list[str] = []
        expired: list[Lane] = []
        for lane in lanes:
            queue = self.queues[lane]
            while queue and len(taken) < limit:
                known = self.jobs[queue[0]]
                suspect = known.deliveries >= 2 and not known.late
                if suspect and taken:
                    return taken, expired
                name = queue.pop(0)
                if known.late:
                    known.place = "failed"
                    expired.append(lane)
                    continue
                taken.append(name)
                if suspect:
                    return taken, expired
        return taken, expired

    def hold(self, desk: ClaimDesk, claimed: Claimed) -> Known:
        known = self.jobs[claimed.job_id]
        known.place = "lease"
        known.deliveries += 1
        self.holds.append(Hold(desk, claimed))
        return known

    def settle(self, chosen: list[Hold], verbs: list[str]) -> None:
        front: list[str] = []
        said = dict(zip(map(id, chosen), verbs, strict=True))
        for hold in [hold for hold in self.holds if id(hold) in said]:
            name, verb = hold.claimed.job_id, said[id(hold)]
            known = self._let_go(hold)
            known.settled_by = hold.claimed.execution_id
            known.place = ENDS.get(verb, "queue")
            if verb not in ENDS:
                known.deliveries -= 1
                known.defers += verb == "release"
                known.attempts += verb != "release"
            if verb == "release":
                front.append(name)
            elif verb == "retry":
                self.queues[known.lane].append(name)
            elif verb == "retry later":
                known.place = "scheduled"
                self.scheduled.append(name)
        self._to_the_front(front)

    def reap(self) -> tuple[int, int, int, int]:
        """Counts of expired, promoted, recovered and quarantined jobs."""
        late = [name for name, known in self.jobs.items() if known.late and known.place in WAITING]
        for name in late:
            self._move(name, "failed")
        due = [name for name in self.scheduled if self.jobs[name].due]
        for name in due:
            self._move(name, "queue")
            self.queues[self.jobs[name].lane].append(name)
        over = [hold for hold in self.holds if hold.over]
        front = []
        for hold in over:
            known = self._let_go(hold)
            known.place = "failed" if known.deliveries >= MAX_DELIVERIES else "queue"
            front += [hold.claimed.job_id] * (known.place == "queue")
        self._to_the_front(front)
        return len(late), len(due), len(front), len(over) - len(front)

    def _let_go(self, hold: Hold) -> Known:
        self.holds.remove(hold)
        self.past.append(hold)
        return self.jobs[hold.claimed.job_id]

    def _move(self, name: str, place: str) -> None:
        known = self.jobs[name]
        (self.queues[known.lane] if known.place == "queue" else self.scheduled).remove(name)
        known.place, known.due = place, False

    def _to_the_front(self, names: list[str]) -> None:
        for lane, queue in self.queues.items():
            queue[:0] = [name for name in names if self.jobs[name].lane is lane]
