# The two main targets are `make lab` and `make test`. Both create the environment first if it is missing.
# The newest supported Python that runs: where pyenv has its shims on the PATH, a name may exist and fail.
NEWEST := for minor in 13 12 11; do \
  for python in python3.$$minor $$(ls -d "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/3.$$minor.*/bin/python3 2>/dev/null | sort -rV); do \
    "$$python" -c "import ensurepip, sqlite3, ssl, venv" 2>/dev/null && echo "$$python" && exit; \
  done; done; echo python3
PYTHON ?= $(shell $(NEWEST))
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK = 1
# The tests start many hundred processes: without bytecode each of them compiles ddpnb again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: lab test test-all test-torch lint check browser network cluster pictures torture torture-signals torture-hosts torture-cluster torture-others torch-tests matrix gpu docs clean

# make lab ARGS="--port 9999 --no-browser": what follows is JupyterLab's.
lab: $(VENV)/.installed
	@$(BIN)/ddpnb lab $(ARGS)

# Tests mostly wait for ranks: one worker more than there are cores. A file stays in one worker, which shares its World.
WORKERS ?= $(shell expr $$(nproc 2>/dev/null || echo 2) + 1)
PYTEST = $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder -p no:cacheprovider

# Everything that finds a mistake of the day: scenarios are diagnosed from their recordings in tests/recordings.
test: $(VENV)/.tested browser network lint
	$(PYTEST)

# Everything, live: scenarios run on real ranks, and recordings that changed are written: look at `git diff`.
test-all: $(VENV)/.tested browser network check docs
	$(PYTEST) --full

# Names, signatures and error texts of another torch, and the tests of recorder and reports with it, in an environment of its own
# (5 GB). `make test-torch VERSION=2.13.0`; without an index that has it: PIP_CONFIG_FILE=/dev/null.
TORCH_VENV ?= .venv-torch-$(VERSION)

test-torch: $(TORCH_VENV)/.tested
	@$(TORCH_VENV)/bin/python -m tests.torch_names
	$(TORCH_VENV)/bin/python -m pytest -q -p no:cacheprovider --full tests/recording/messages/test_made.py
	$(TORCH_VENV)/bin/python -m pytest -q -p no:cacheprovider tests/recorder tests/reports tests/ranks/test_contract.py $(ARGS)

$(TORCH_VENV)/.tested: pyproject.toml tests/constraints.txt
	@test -n "$(VERSION)" || { echo "ddpnb: which torch? make test-torch VERSION=2.13.0"; exit 2; }
	$(PYTHON) -m venv $(TORCH_VENV)
	grep -v '^torch==' tests/constraints.txt >$(TORCH_VENV)/constraints.txt
	$(TORCH_VENV)/bin/pip install -q --no-cache-dir -c $(TORCH_VENV)/constraints.txt torch==$(VERSION) -e ".[test]"
	touch $@

lint: $(VENV)/.tested
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/lint-imports --no-logo >$(VENV)/lint-imports.log 2>&1 || { cat $(VENV)/lint-imports.log; exit 1; }

check: lint
	$(BIN)/pyright

# A browser and the network of simulated hosts are for some tests only: without them these are skipped. The log says why.
APT = apt-get -o Acquire::Retries=0 update -qq && apt-get install -y -qq --no-install-recommends
OPTIONAL = >$(VENV)/$@.log 2>&1 || echo "ddpnb: no $(1) here, and none could be installed ($(VENV)/$@.log says why): tests that need it are skipped"

# The browser for the tests: the Debian package if we may install it, otherwise that of Playwright.
browser: $(VENV)/.tested
	@command -v chromium >/dev/null || { \
	{ [ "$$(id -u)" = 0 ] && command -v apt-get && $(APT) chromium; } || $(BIN)/playwright install chromium; \
	} $(call OPTIONAL,browser)

# What makes the network of simulated hosts, which need root: other users skip these tests.
network: $(VENV)/.tested
	@command -v ip >/dev/null || [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null || \
	{ $(APT) iproute2; } $(call OPTIONAL,command ip (iproute2))

# What the examples of docs/hosts.md need beside it. Where systemd runs, an SSH server would start at once: install it yourself.
cluster: network
	@{ command -v mpiexec && [ -x /usr/sbin/sshd ]; } >/dev/null || [ "$$(id -u)" != 0 ] || [ -d /run/systemd/system ] || \
	! command -v apt-get >/dev/null || \
	{ apt-get update -qq && apt-get install -y -qq --no-install-recommends openssh-server openssh-client openmpi-bin; }

# Stress tests: signals, several hosts, hostile programs, full disks, many ranks. Each case must end in time and leave nothing
# behind. Parallel lanes, since most of the time is waiting; a few cheap cases also run in `make test`.
TORTURE := torture-signals torture-hosts torture-cluster torture-others

torture: $(VENV)/.tested cluster
	timeout --signal=INT --kill-after=30 1200 $(MAKE) --no-print-directory -j3 --output-sync=target $(TORTURE)

$(TORTURE): $(VENV)/.tested
	$(BIN)/python -m pytest -m torture -p no:cacheprovider $(TORTURE_$@)

TORTURE_torture-signals := tests/torture/test_signals.py
TORTURE_torture-hosts := $(wildcard tests/torture/test_hosts*.py)
TORTURE_torture-cluster := tests/torture/test_examples.py tests/torture/test_prefix_on_hosts.py
TORTURE_torture-others := tests/torture $(addprefix --ignore=,$(foreach lane,signals hosts cluster,$(TORTURE_torture-$(lane))))

# PyTorch's own distributed tests, plainly and under ddpnb: hours. ARGS="--limit 30" or "--only barrier": some of them.
torch-tests: $(VENV)/.torch-tested
	$(BIN)/python -m tests.harmless.torch_tests $(ARGS)

# Tests that need a GPU, and with several GPUs those that need several (docs/gpu.md). Fails where there is none.
gpu: $(VENV)/.tested
	$(BIN)/python -m tests.gpu $(ARGS)

# Programs of real frameworks (docs/frameworks.md), which have an environment of their own.
MATRIX := .venv-matrix

matrix: $(MATRIX)/.tested
	$(MATRIX)/bin/python -m pytest -m matrix -p no:cacheprovider tests/matrix tests/scenarios/test_frameworks.py

$(MATRIX)/.tested: pyproject.toml tests/constraints.txt tests/matrix/constraints.txt
	$(PYTHON) -m venv $(MATRIX)
	$(MATRIX)/bin/pip install -q -c tests/constraints.txt -c tests/matrix/constraints.txt -e ".[test,matrix]"
	$(MATRIX)/bin/python tests/matrix/fit_torchvision.py
	touch $@

# The pictures of the README and of the docs, taken in JupyterLab.
pictures: $(VENV)/.tested browser
	DDPNB_SCREENSHOTS=$(CURDIR)/notebooks/images $(BIN)/python -m pytest -q tests/browser/test_notebooks.py --full -k "pictures or bisection"

# The documentation site, in site/: a warning of Sphinx is an error.
docs: $(VENV)/.documented
	$(BIN)/python -m docs.generator

$(VENV)/bin/pip:
	@test -w . || { echo "ddpnb: the folder $(CURDIR) is read-only: clone the project to another one, or pip install ddpnb."; exit 1; }
	@echo "Creating the environment $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)

# Says what pip does, since it takes minutes when nothing is cached.
PIP_INSTALL = $(BIN)/python tests/install.py $(BIN)/pip install --no-compile -c tests/constraints.txt

$(VENV)/.installed: $(VENV)/bin/pip pyproject.toml tests/constraints.txt $(wildcard ddpnb/labextension/*.json ddpnb/labextension/modules/*.js)
	@echo "Installing ddpnb with torch and JupyterLab: a minute or two from pip's cache, else as long as 2 GB take"
	@$(PIP_INSTALL) -e .
	@touch $@

$(VENV)/.tested: $(VENV)/.installed
	@echo "Installing what the tests need"
	@$(PIP_INSTALL) -e ".[test]"
	@git config diff.ddpnb.textconv "$(BIN)/python -m tests.recordings.text" 2>/dev/null || true
	@touch $@

$(VENV)/.torch-tested: $(VENV)/.tested
	@$(PIP_INSTALL) -e ".[torch-tests]"
	@touch $@

$(VENV)/.documented: $(VENV)/.installed
	@echo "Installing what the documentation needs"
	@$(PIP_INSTALL) -e ".[docs]"
	@touch $@

clean:
	rm -rf $(VENV) $(MATRIX) .venv-torch-* site build
