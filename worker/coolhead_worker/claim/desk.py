"""The desk where a worker takes jobs and hands them back: five calls, one round trip each.

Guarantee: `claim` and `reap` never wait; what is claimed is this worker's until its lease is taken
away, and `settle` is written once or not at all; a call that is repeated after a broken connection
changes nothing twice (a claim whose reply was lost comes back when its lease ends). Errors of
Redis leave this room as they are.
"""

from __future__ import annotations

import itertools
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import redis

from coolhead.job import queue_name
from coolhead.policy import Lane
from coolhead_worker.claim.scripts import script
from coolhead_worker.claim.settlement import Claimed, Settled, Settlement, full_row, writing_order

WAKE_LIST = "coolhead:wake"
MOST_CLAIMED = 1000  #: jobs in one claim
MOST_REAPED = 200  #: jobs of a kind in one reap: a script stops everybody else while it runs

_LANES = {queue_name(lane).encode(): lane for lane in Lane}


@dataclass(frozen=True, slots=True)
class Claims:
    """What one claim found.

    `expired`: lane and seconds waited of jobs that ended because their deadline had passed;
    `quarantined`: lanes of jobs set aside; `suspended`: `rq suspend` is in force.
    """

    claimed: tuple[Claimed, ...] = ()
    expired: tuple[tuple[Lane, float], ...] = ()
    quarantined: tuple[Lane, ...] = ()
    suspended: bool = False


@dataclass(frozen=True, slots=True)
class Reaped:
    """What one reap did; the same forms as in `Claims` for the jobs that ended in it.

    `recovered`: jobs put back to the front; `promoted`: retries whose time had come.
    """

    recovered: int = 0
    promoted: int = 0
    expired_jobs: tuple[tuple[Lane, float], ...] = ()
    quarantined_lanes: tuple[Lane, ...] = ()

    @property
    def expired(self) -> int:
        """How many waiting jobs ended because their deadline had passed."""
        return len(self.expired_jobs)

    @property
    def quarantined(self) -> int:
        """How many jobs were set aside."""
        return len(self.quarantined_lanes)


class ClaimDesk:
    """The desk of one worker process. `renew` may be called from another thread."""

    def __init__(
        self,
        connection: redis.Redis,
        *,
        worker: str,
        node: str,
        lease_s: float = 15.0,
        max_deliveries: int = 3,
        reap_every_s: float = 1.0,
        stuck_s: float = 5.0,
    ) -> None:
        """Nothing is sent yet.

        Args:
            connection: with `decode_responses=False`; its socket timeout must be longer than the
                longest `wait`.
            worker: name in RQ's registry, new with every start.
            node: name of this node.
            lease_s: seconds a job is ours without a renewal.
            max_deliveries: a job whose worker died this often is quarantined.
            reap_every_s: the fleet reaps at most once in this time; 0 for every call.
            stuck_s: seconds a job may stay between a stock RQ worker's pop and its start.
        """
        self._connection = connection
        self._worker = worker
        self._node = node
        self._lease_s = lease_s
        self._max_deliveries = max_deliveries
        self._reaping = [round(reap_every_s * 1000), max_deliveries, MOST_REAPED, stuck_s]
        self._incarnation = secrets.token_hex(8)
        self._claims = itertools.count()
        self._claim, self._settle, self._renew, self._reap = (
            script(connection, name) for name in ("claim", "settle", "renew", "reap")
        )

    def claim(self, lanes: Sequence[Lane], limit: int) -> Claims:
        """Take up to `limit` jobs, best lane first, in the order of the queues.

        A job whose workers died at least twice comes alone.

        Raises:
            ValueError: `limit` is not in 1..1000.
        """
        if not 1 <= limit <= MOST_CLAIMED:
            raise ValueError(f"limit {limit} is not in 1..{MOST_CLAIMED}")
        # 16 + 13 digits here and 3 in the script: 32, as RQ's own execution ids have.
        prefix = f"{self._incarnation}{next(self._claims):013x}"
        suspended, claimed, expired, quarantined = self._claim(
            keys=_lists(lanes),
            args=[self._worker, self._node, prefix, limit, self._lease_s, self._max_deliveries],
        )
        return Claims(
            tuple(map(_claimed, claimed)), _waited(expired), _lanes(quarantined), suspended=bool(suspended)
        )

    def wait(self, timeout_s: float) -> bool:
        """Wait until something was queued in any lane, at most `timeout_s` seconds.

        Returns True when woken. Waking is a hint: another worker may be faster.
        """
        if timeout_s <= 0:  # to the server 0 means: for ever
            return self._connection.lpop(WAKE_LIST) is not None
        return self._connection.blpop([WAKE_LIST], timeout=timeout_s) is not None

    def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Write what became of claimed jobs; the answers are in the order given.

        Released jobs stand at the front of their queue in the order they had there.

        Raises:
            ValueError: a result is not JSON; nothing was written.
        """
        if not settlements:
            return []
        order = writing_order(settlements)
        rows = [full_row(settlements[index]) for index in order]
        said = self._settle(args=[self._worker, json.dumps(rows)])
        by_index = dict(zip(order, said, strict=True))
        return [Settled(by_index[index].decode()) for index in range(len(settlements))]

    def renew(self, held: Sequence[Claimed]) -> set[str]:
        """Begin the leases anew; returns the execution ids that are lost."""
        if not held:
            return set()
        rows = [claimed.address() for claimed in held]
        return {lost.decode() for lost in self._renew(args=[self._lease_s, json.dumps(rows)])}

    def reap(self) -> Reaped:
        """Bring back dead workers' jobs, due retries and passed deadlines, in every lane."""
        recovered, promoted, expired, quarantined = self._reap(keys=_lists(tuple(Lane)), args=self._reaping)
        return Reaped(recovered, promoted, _waited(expired), _lanes(quarantined))


def _lists(lanes: Sequence[Lane]) -> list[str]:
    return [f"rq:queue:{queue_name(lane)}" for lane in lanes]


def _claimed(row: list[bytes | int]) -> Claimed:
    queue, job_id, execution, data, deliveries, attempts, defers, first, now, result_ttl, failure_ttl = row
    assert isinstance(queue, bytes)
    assert isinstance(job_id, bytes)
    assert isinstance(execution, bytes)
    assert isinstance(data, bytes)
    return Claimed(
        lane=_LANES[queue],
        job_id=job_id.decode(),
        execution_id=execution.decode(),
        data=data,
        deliveries=int(deliveries),
        attempts=int(attempts),
        defers=int(defers),
        first_enqueued=float(first),
        claimed_at=float(now),
        result_ttl_s=int(result_ttl),
        failure_ttl_s=int(failure_ttl),
    )


def _waited(rows: list[list[bytes]]) -> tuple[tuple[Lane, float], ...]:
    return tuple((_LANES[queue], float(seconds)) for queue, seconds in rows)


def _lanes(queues: list[bytes]) -> tuple[Lane, ...]:
    return tuple(_LANES[queue] for queue in queues)
