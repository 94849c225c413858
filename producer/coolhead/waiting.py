"""Waiting for answers: one blocking read over many result streams, no polling.

Guarantee: every job that is watched ends exactly once, with its decision or its error; a try that
will be repeated is not an end; an outage of Redis that is shorter than the timeout is not noticed;
a job that is in no hash and no stream is reported, not waited for.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from redis.exceptions import RedisError

from coolhead.connection import explained
from coolhead.conversation import Command, Pause, Talk, ask_strictly, text
from coolhead.errors import InvalidJob, JobNotFound, QueueUnreachable, Unanswered, WaitTimeout
from coolhead.fleet import Fleet, read_fleet
from coolhead.results import Answer, Fields, ended_by_entry, ended_by_hash, entries_of
from coolhead.standing import Standing, read_standings, why_waiting

STREAMS_PER_READ = 256  #: more would cost more per answer: all of them are named in every read
LOOK_EVERY_S = 4.0  #: how often the hashes are read too: a job may have been deleted by hand
OUTAGE_PAUSE_S = (0.05, 1.0)  #: first and longest pause between two tries at a server that is gone
DIAGNOSED = 64  #: of more jobs that got no answer in time, the rest are told without a reason

#: With these a failure in the stream is the last word; with others the job was queued again.
_OVER = frozenset({"failed", "canceled", "stopped", ""})
_HASH_FIELDS = ("status", "outcome", "error_code", "error")
_log = logging.getLogger("coolhead.client")


class Watch:
    """Jobs whose answers are waited for; `next` gives those that have ended since.

    Two ways of reading alternate. *Blocking* waits on the streams. *Looking* asks, without
    waiting, for streams and hashes: at the start, every `LOOK_EVERY_S`, after an outage, for a job
    that failed (somebody may have queued it again) and once more when the time is over.
    """

    def __init__(
        self,
        job_ids: Iterable[str],
        *,
        timeout_s: float | None,
        block_s: float,
        clock: Callable[[], float],
        just_queued: bool = False,
    ) -> None:
        """
        Args:
            job_ids: jobs, each counted once.
            timeout_s: seconds from now, 0 to look only, None for no end.
            block_s: the longest one read may block; below the connection's own timeout.
            clock: seconds that never jump.
            just_queued: the jobs are known to exist, so the first look is left out.
        """
        check_timeout(timeout_s)
        self._cursors = dict.fromkeys(job_ids, "0")
        self._clock = clock
        self._block_s = block_s
        self._timeout_s = timeout_s
        self._deadline = clock() + (math.inf if timeout_s is None else timeout_s)
        self._to_look: list[str] = [] if just_queued else list(self._cursors)
        self._look_at = clock() + LOOK_EVERY_S
        self._outage_s = 0.0
        self._last_round = False

    def next(self) -> Talk[list[tuple[str, Answer]]]:
        """The jobs that ended next, at least one; [] when none is left.

        When the time is over the rest end with a `WaitTimeout`.

        Raises:
            QueueUnreachable: Redis is gone and the time is over.
            QueueDenied, QueueError: at once; waiting would not help.
        """
        while self._cursors:
            try:
                ended = yield from self._read()
                self._outage_s = 0.0
            except (RedisError, OSError) as error:
                yield from self._bear(error)
                continue
            if ended:
                self._close(ended)
                return ended
            if self._last_round and not self._to_look:
                return (yield from self._give_up())
        return []

    def _close(self, ended: Sequence[tuple[str, Answer]]) -> None:
        for job_id, _ in ended:
            del self._cursors[job_id]
        if self._to_look:
            self._to_look = [job_id for job_id in self._to_look if job_id in self._cursors]

    def _read(self) -> Talk[list[tuple[str, Answer]]]:
        now = self._clock()
        if not self._last_round and (now >= self._deadline or now >= self._look_at):
            self._last_round = now >= self._deadline
            self._to_look = list(self._cursors)
            self._look_at = now + LOOK_EVERY_S
        if self._to_look:
            return (yield from self._look())
        return (yield from self._block(min(self._block_s, self._deadline - now, self._look_at - now)))

    def _block(self, seconds: float) -> Talk[list[tuple[str, Answer]]]:
        """Wait on the streams of the jobs in front; a failed one is looked at before it is believed."""
        job_ids = list(islice(self._cursors, STREAMS_PER_READ))
        milliseconds = max(1, math.ceil(seconds * 1000))
        (reply,) = yield from ask_strictly(_read_command(job_ids, self._cursors, milliseconds))
        ended = self._ended(entries_of(reply))
        doubtful = [job_id for job_id, answer in ended if isinstance(answer, Unanswered)]
        self._to_look += doubtful
        return [pair for pair in ended if pair[0] not in doubtful]

    def _look(self) -> Talk[list[tuple[str, Answer]]]:
        """Streams and hashes of the next jobs to look at, in this order.

        A job settles by one script, so a stream without an end before a hash without a job means
        that there is none to come.
        """
        job_ids, later = self._to_look[:STREAMS_PER_READ], self._to_look[STREAMS_PER_READ:]
        hashes: list[Command] = [("HMGET", f"rq:job:{job_id}", *_HASH_FIELDS) for job_id in job_ids]
        from_start = dict.fromkeys(job_ids, "0")
        reply, *replies = yield from ask_strictly(_read_command(job_ids, from_start), *hashes)
        self._to_look = later  # only now: when the connection breaks they are still to be looked at
        by_stream = dict(self._ended(entries_of(reply)))
        said = [dict(zip(_HASH_FIELDS, map(text, values), strict=True)) for values in replies]
        ends = map(_end, job_ids, map(by_stream.get, job_ids), said)
        return [(job_id, end) for job_id, end in zip(job_ids, ends, strict=True) if end is not None]

    def _ended(self, streams: Iterable[tuple[str, list[tuple[str, Fields]]]]) -> list[tuple[str, Answer]]:
        """The last end in each stream; moves the cursors behind what was read."""
        ended = []
        for job_id, entries in streams:
            ends = [end for _, fields in entries if (end := ended_by_entry(job_id, fields)) is not None]
            self._cursors[job_id] = entries[-1][0]
            if ends:
                ended.append((job_id, ends[-1]))
        return ended

    def _bear(self, error: RedisError | OSError) -> Talk[None]:
        """Pause during an outage, with back-off, or raise when that is no help."""
        left = self._deadline - self._clock()
        meaning = explained(error)
        if not isinstance(meaning, QueueUnreachable) or left <= 0:
            raise error
        if not self._outage_s:
            _log.warning("waiting through an outage: %s", meaning)
        first, longest = OUTAGE_PAUSE_S
        self._outage_s = min(longest, 2 * self._outage_s or first)
        self._to_look = list(self._cursors)
        yield Pause(min(left, self._outage_s * (0.5 + random.random() / 2)))  # noqa: S311  # jitter

    def _give_up(self) -> Talk[list[tuple[str, Answer]]]:
        job_ids = list(self._cursors)
        self._cursors.clear()
        reasons = yield from _diagnose(job_ids[:DIAGNOSED])
        waited = f"no answer within {self._timeout_s:g} s"
        return [
            (job_id, WaitTimeout(f"{waited}: {reasons[job_id]}" if job_id in reasons else waited))
            for job_id in job_ids
        ]


def check_timeout(timeout_s: float | None) -> None:
    """Refuse what is no time to wait.

    Raises:
        InvalidJob: negative or NaN.
    """
    if timeout_s is not None and not timeout_s >= 0:
        raise InvalidJob(f"timeout_s is {timeout_s}: give 0 or more seconds, or None for no end")


def _read_command(job_ids: Sequence[str], cursors: dict[str, str], block_ms: int = 0) -> Command:
    block = ("BLOCK", block_ms) if block_ms else ()
    keys = [f"rq:results:{job_id}" for job_id in job_ids]
    return ("XREAD", *block, "STREAMS", *keys, *(cursors[job_id] for job_id in job_ids))


def _end(job_id: str, by_stream: Answer | None, fields: Fields) -> Answer | None:
    status = fields["status"]
    if isinstance(by_stream, Unanswered) and status not in _OVER:
        return None
    if by_stream is not None:
        return by_stream
    if not status:
        return JobNotFound(f"no job {job_id}: it was never queued here, or its result has expired")
    return ended_by_hash(job_id, status, fields)


def _diagnose(job_ids: Sequence[str]) -> Talk[dict[str, str]]:
    """Why these jobs have no answer; empty when the user may not see it."""
    try:
        jobs: dict[str, Standing] = yield from read_standings(job_ids)
        fleet: Fleet = yield from read_fleet()
    except (RedisError, OSError):
        return {}
    return {job_id: why_waiting(job, fleet) for job_id, job in jobs.items()}
