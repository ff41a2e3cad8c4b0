"""Runs one cell of postgresql-job-queue-benchmarking without Docker.

Everything that measures is the harness's own code, from the checkout. Replaced are the parts that call Docker, the plots, and the command line,
which need packages that Debian does not have: see README.md. Argument: the cell, as JSON. The last line on stdout is a JSON object.
"""

import atexit
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

cell = json.loads(sys.argv[1])
checkout = Path(cell["checkout"])
sys.path.insert(0, str(checkout))

plots = types.ModuleType("bench_harness.plots")
plots.render_all = lambda *args, **options: None
sys.modules["bench_harness.plots"] = plots

import psycopg  # noqa: E402
from bench_harness import adapters, orchestrator  # noqa: E402
from bench_harness.phases import SCENARIOS, parse_duration, resolve_scenario  # noqa: E402

SYSTEM = cell["system"]
adapters.PG_PORT = cell["port"]
START_S = 60


class Postgres:
    """One cluster, with the settings of the checkout. A stop keeps it, `remove` does not."""

    def __init__(self, directory):
        self.data = Path(directory) / "data"
        self.process = None
        # PostgreSQL refuses to run as root.
        root = os.geteuid() == 0
        self.prefix = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"] if root else []
        if root:
            shutil.chown(directory, "postgres", "postgres")

    def program(self, name):
        return [*self.prefix, str(Path(cell["pgBin"]) / name)]

    def start(self):
        if self.process is not None:
            return
        if not self.data.exists():
            command = [*self.program("initdb"), "-D", str(self.data), "-U", "bench", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/")
            with (self.data / "postgresql.conf").open("a") as conf:
                conf.write((checkout / "postgres.conf").read_text())
                conf.write(f"\nlisten_addresses = 'localhost'\nport = {cell['port']}\nunix_socket_directories = ''\n")
        log = open(self.data.parent / "postgres.log", "ab")
        self.process = subprocess.Popen(
            [*self.program("postgres"), "-D", str(self.data)], stdout=log, stderr=log, cwd="/", start_new_session=True
        )
        log.close()
        deadline = time.monotonic() + START_S
        while True:
            try:
                with psycopg.connect(adapters.pg_url("postgres"), autocommit=True) as connection:
                    connection.execute("SELECT 1")
                return
            except psycopg.Error:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def stop(self):
        """As `docker compose stop` does with the image of PostgreSQL: a fast shutdown."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait()
        self.process = None

    def remove(self):
        self.stop()
        shutil.rmtree(self.data, ignore_errors=True)


postgres = Postgres(cell["directory"])
atexit.register(postgres.remove)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))


def lifeline():
    """Who started this holds the other end: when it is gone, nothing is left behind."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


threading.Thread(target=lifeline, daemon=True).start()
found = {}


def stop_and_remove(_image):
    """Between the adapter's end and that of the server, what was measured is compared with what is there."""
    if not found.get("ran"):
        # The harness begins with a stop. The server is as new as the one that it would start.
        return
    if cell.get("audit") and "audit" not in found:
        env = {**os.environ, "DATABASE_URL": adapters.pg_url(cell["database"])}
        found["audit"] = None
        try:
            audit = subprocess.run(cell["audit"], env=env, stdout=subprocess.PIPE, text=True, timeout=300, check=True)
            found["audit"] = json.loads(audit.stdout.strip().splitlines()[-1])
        except (subprocess.SubprocessError, ValueError) as error:
            # A cell without an audit counts as one that has lost something.
            print(f"[harness] the audit failed: {error}", file=sys.stderr)
    postgres.remove()


orchestrator.start_postgres = lambda _image: postgres.start()
orchestrator.stop_postgres = stop_and_remove
orchestrator._compose_stop_postgres = lambda _image: postgres.stop()
orchestrator._compose_start_postgres = lambda _image: postgres.start()
orchestrator.write_interactive_report = lambda **options: None
orchestrator.RESULTS_ROOT = Path(cell["directory"]) / "results"


def launch(manifest, overrides):
    found["ran"] = True
    env = {**adapters._base_env(manifest, overrides), **cell["env"]}
    return adapters.LaunchSpec(argv=cell["argv"], env=env, cwd=cell["cwd"])


adapters.ADAPTERS[SYSTEM] = adapters.AdapterEntry(
    bench_dir=Path(cell["manifest"]).parent, builder=lambda _skip: None, launcher=launch
)
os.environ.update(cell["env"])


def scaled(phase):
    """A phase that takes less time. A kill that is repeated comes as often as in the whole phase."""
    params = tuple(
        (name, f"{max(3, round(parse_duration(value) * cell['scale']))}s" if name == "period" else value)
        for name, value in phase.params
    )
    seconds = max(cell["leastSeconds"], round(phase.duration_s * cell["scale"]))
    return dataclasses.replace(phase, duration_s=seconds, params=params)


specs = SCENARIOS[cell["scenario"]] if "scenario" in cell else cell["phases"]
phases = [scaled(phase) for phase in resolve_scenario(None, specs)]
run = orchestrator.drive(
    systems=[SYSTEM],
    scenario=cell.get("scenario"),
    phases=phases,
    pg_image="none",
    fast=False,
    skip_build=True,
    sample_every_s=cell["sampleSeconds"],
    producer_rate=cell["rate"],
    producer_mode=cell["mode"],
    target_depth=cell["depth"],
    worker_count=cell["workers"],
    high_load_multiplier=1.5,
    awa_completion_batch_size=None,
    replicas=cell["replicas"],
    cli_args=[],
)
summary = json.loads((run / "summary.json").read_text())
seconds = {phase.label: phase.duration_s for phase in phases}
print(json.dumps({"phases": summary["systems"].get(SYSTEM, {}).get("phases", {}), "seconds": seconds, "audit": found.get("audit")}))
