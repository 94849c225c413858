"""Fitting runs on one BLAS thread, as `fit_task` does it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(autouse=True)
def one_blas_thread() -> Iterator[None]:
    with threadpool_limits(1, user_api="blas"):
        yield
