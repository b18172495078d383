# Each target makes what it needs: the first one called installs everything into .venv.
BIN := .venv/bin

.PHONY: quickstart test test-all check format

quickstart: .venv/.installed
	$(BIN)/rlctl train recipes/quickstart.yaml

test: .venv/.installed
	$(BIN)/pytest -n 2 --dist worksteal -m "not heavy"

test-all: .venv/.installed
	$(BIN)/pytest -n 2 --dist worksteal

check: .venv/.installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/.installed
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

.venv/.installed: pyproject.toml constraints.txt
	python3 -c 'import sys; sys.exit("rlctl needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	python3 -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@
