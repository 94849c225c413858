"""A worker that is there to be killed: `victim.py URL NAME hold|work`.

`hold` claims a batch, says so and stays silent for ever; `work` claims and settles until it is
killed, with a short rest in between as if a model were called.
"""

from __future__ import annotations

import sys
import time

import redis

from coolhead.policy import Lane
from coolhead_worker.claim.desk import ClaimDesk
from coolhead_worker.claim.settlement import Succeeded


def main(url: str, name: str, what: str) -> None:
    connection = redis.Redis.from_url(url)
    desk = ClaimDesk(
        connection, worker=name, node="victim", lease_s=0.3, reap_every_s=0.05, max_deliveries=20
    )
    while True:
        batch = desk.claim(tuple(Lane), 4).claimed
        print(" ".join(claimed.job_id for claimed in batch), flush=True)
        if what == "hold":
            sys.stdin.read()
        time.sleep(0.002)
        desk.settle([Succeeded(claimed, {"by": name}) for claimed in batch])
        desk.reap()


if __name__ == "__main__":
    main(*sys.argv[1:])
