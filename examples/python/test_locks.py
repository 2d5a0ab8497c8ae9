"""Lets loadgen test the locks of service.py, and checks the verdicts in run.json.

Run it from the root of the project, after go build -o bin/loadgen ./cmd/loadgen:

    examples/python/venv/bin/python -m pytest examples/python
"""
import json
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """Runs loadgen once, and returns the cells by strategy and fault."""
    out = tmp_path_factory.mktemp("locks") / "run"
    subprocess.run(
        ["bin/loadgen", "run", "-quiet", "-target-file", "examples/python/target.yaml",
         "-strategies", "none,mysql-cas", "-faults", "none,crash", "-orders", "20", "-drivers", "10", "-rate", "50", "-out", str(out)],
        cwd=ROOT, check=True, timeout=600)
    run = json.loads((out / "run.json").read_text())
    return {(c["strategy"], c["fault"]): c for c in run["cells"]}


@pytest.mark.parametrize("strategy, fault, verdict", [
    ("none", "none", "unsafe"),  # shows that this load would find an error
    ("mysql-cas", "none", "safe"),
    ("mysql-cas", "crash", "safe"),
])
def test_verdict(cells, strategy, fault, verdict):
    cell = cells[strategy, fault]
    assert cell["verdict"] == verdict, cell["reason"]
