"""A real scrape: promtool's opinion of the page, and every panel drawn from a real Prometheus."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from coolhead_worker.exposition import MetricsServer
from coolhead_worker.metrics import Metrics
from dashboards.build import BOARDS
from tests.conftest import missing
from tests.metrics.samples import TASKS, busy, move
from tests.ops.conftest import Promtool
from tests.ops.test_dashboards import QUERIES, filled

DEADLINE_S = 30.0


def fetch(url: str, **headers: str) -> str:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=5) as reply:
        return str(reply.read().decode())


@pytest.fixture
def page() -> Iterator[str]:
    registry = CollectorRegistry()
    busy(registry)
    server = MetricsServer(registry, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.start()}/metrics"
    server.close()


def test_promtool_finds_nothing_to_say_about_the_page(promtool: Promtool, page: str) -> None:
    done = promtool("check", "metrics", text=fetch(page))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_promtool_would_have_something_to_say(promtool: Promtool) -> None:
    done = promtool("check", "metrics", text="# TYPE bad_milliseconds counter\nbad_milliseconds 1\n")
    assert done.returncode != 0
    assert "_total" in done.stdout + done.stderr


def test_a_fresh_worker_has_a_bounded_number_of_series() -> None:
    registry = CollectorRegistry()
    Metrics(registry, tasks=TASKS)
    assert sum(len(family.samples) for family in registry.collect()) < 700


CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: coolhead-worker
    static_configs: [{{targets: ["127.0.0.1:{port}"], labels: {{node: mac-1}}}}]
"""


class Prometheus:
    """A server of its own, on loopback, that scrapes one busy worker each second."""

    def __init__(self, binary: str, folder: Path, worker_port: int) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        config = folder / "prometheus.yml"
        config.write_text(CONFIG.format(port=worker_port))
        self._log = (folder / "prometheus.log").open("w")
        self._process = subprocess.Popen(
            [
                binary,
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
                "--enable-feature=exemplar-storage",
            ],
            stdout=self._log,
            stderr=self._log,
        )

    def ask(self, what: str, **parameters: str) -> list[Any]:
        url = f"http://127.0.0.1:{self.port}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        data = json.loads(fetch(url))["data"]
        return list(data["result"] if isinstance(data, dict) else data)

    def value(self, expr: str) -> list[float]:
        return [float(series["value"][1]) for series in self.ask("query", query=expr)]

    def wait_for(self, expr: str) -> None:
        """Until the query gives something."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            try:
                if self.value(expr):
                    return
            except urllib.error.URLError:
                assert self._process.poll() is None, "prometheus has ended"
            time.sleep(0.1)
        pytest.fail(f"no answer to {expr}")

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(10)
        self._log.close()


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    binary = shutil.which("prometheus")
    if binary is None:
        missing("no prometheus: apt-get install -y --no-install-recommends prometheus")
    registry = CollectorRegistry()
    metrics = busy(registry)
    server = MetricsServer(registry, "127.0.0.1", 0)
    done = threading.Event()

    def work() -> None:
        while not done.wait(0.1):
            move(metrics)

    worker = threading.Thread(target=work)
    worker.start()
    running = Prometheus(str(binary), tmp_path_factory.mktemp("prometheus"), server.start())
    try:
        running.wait_for("count_over_time(coolhead_build_info[1m]) >= 3")
        yield running
    finally:
        running.stop()
        done.set()
        worker.join()
        server.close()


@pytest.mark.process
@pytest.mark.parametrize("expr", QUERIES)
def test_every_panel_has_something_to_draw(prometheus: Prometheus, expr: str) -> None:
    values = prometheus.value(filled(expr))
    assert values
    assert any(value == value for value in values)  # a NaN is not equal to itself


@pytest.mark.process
@pytest.mark.parametrize("board", BOARDS.values(), ids=list(BOARDS))
def test_every_variable_has_something_to_choose(prometheus: Prometheus, board: dict[str, Any]) -> None:
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            call = variable["query"]["query"].removeprefix("label_values(").removesuffix(")")
            expr, label = filled(call).rsplit(", ", 1)
            assert prometheus.ask(f"label/{label}/values", **{"match[]": expr}), variable["name"]


@pytest.mark.process
def test_a_slow_call_leads_to_a_job(prometheus: Prometheus) -> None:
    now = time.time()
    found = prometheus.ask(
        "query_exemplars",
        query="coolhead_inference_duration_seconds_bucket",
        start=str(now - 60),
        end=str(now + 1),
    )
    assert {exemplar["labels"]["job_id"] for series in found for exemplar in series["exemplars"]} == {"job-1"}
