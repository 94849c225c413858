from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from coolhead_worker.claim.desk import ClaimDesk

Desks = Callable[..., ClaimDesk]


@pytest.fixture
def connection(valkey: Any) -> Iterator[redis.Redis]:
    connection = valkey.client()
    yield connection
    connection.close()


@pytest.fixture
def desks(connection: redis.Redis) -> Desks:
    """Makes desks that reap whenever they are asked to."""

    def make(name: str = "mac-1", **options: Any) -> ClaimDesk:
        given = {"worker": f"{name}-0a1b", "node": name, "reap_every_s": 0.0, **options}
        return ClaimDesk(connection, **given)

    return make


@pytest.fixture
def desk(desks: Desks) -> ClaimDesk:
    return desks()
