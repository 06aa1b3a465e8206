# One environment (.venv), made from the tested set of versions in constraints.txt.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-all check bench breaks drills chaos clean environment

demo: environment  ## train the embedded digits on one node and on two, compare, write a report to open
	rm -rf demo
	$(BIN)/minga compare digits --nodes 2 --batch 64 --runs demo \
	  --strategy single --strategy native --strategy ring --strategy halving_doubling \
	  --strategy ps:mode=sync --strategy ps:mode=ssp,staleness=3 --strategy ps:mode=async --strategy switch:at=60
	$(BIN)/minga report demo/* --out demo/report

test: environment  ## every test but the slow ones, on two cores in less than eight minutes
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

check: environment  ## style, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	cd benchmarks && ../$(BIN)/mypy --config-file mypy.ini

bench: environment  ## the committed benchmarks; results go to benchmarks/results/ (about half an hour)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt --editable '.[bench]'
	$(BIN)/python benchmarks/single_overhead.py
	$(BIN)/python benchmarks/measuring_overhead.py
	$(BIN)/python benchmarks/laboratory.py
	$(BIN)/python benchmarks/against_ddp.py
	$(BIN)/python benchmarks/ring_against_gloo.py
	$(BIN)/python benchmarks/tcp_against_gloo.py
	$(BIN)/python benchmarks/asynchronous.py
	$(BIN)/python benchmarks/codecs.py
	$(BIN)/python benchmarks/server_log.py
	$(BIN)/python benchmarks/overlap.py
	$(BIN)/python benchmarks/checkpoint_cost.py
	$(BIN)/python benchmarks/bigger_than_memory.py
	$(BIN)/python benchmarks/reading_keeps_up.py

test-all: environment  ## every test, the slow ones too
	$(BIN)/python -m pytest -n 2 --dist worksteal

drills: environment  ## real faults done to real runs, and whether promises are kept (docs/faults.md); about 25 minutes
	PYTHONPATH=tests $(BIN)/python -m drills --out benchmarks/results

breaks: environment  ## put faults into a copy of the code, one at a time: each turns a test red
	$(BIN)/python tests/breaks.py

chaos: drills test-all  ## the drills, then every test

environment: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:  ## remove the environment, caches and run directories
	rm -rf .venv runs demo build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
