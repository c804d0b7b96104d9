# Two commands set everything up: `make demo` for users, `make test` for developers.
PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0
BIN := $(VENV)/bin
USER := $(VENV)/.installed
DEV := $(VENV)/.installed-dev
PIP := $(BIN)/python -m pip install --disable-pip-version-check

CAMPAIGN ?= campaign

PIP_AUDIT ?= pip-audit
SBOM ?= cyclonedx-bom

.PHONY: install dev demo test cluster-test torture lint docs links site parity reproduce-smoke release sbom audit
.PHONY: campaign campaign-labels campaign-status clean

install: $(USER)
dev: $(DEV)

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# Torch comes first so that a machine without a GPU keeps the CPU build; parquet reads the archives in results/. ml4co-kit is
# taken without its 23 dependencies: only the compiled Concorde inside it is used.
$(USER): $(VENV)/bin/python pyproject.toml
	$(PIP) $(TORCH)
	$(PIP) -e '.[neural,classical,plots,parquet]'
	-$(PIP) --no-deps ml4co-kit
	touch $@

$(DEV): $(USER)
	$(PIP) -e '.[neural,classical,plots,parquet,html,slurm,dev,docs]'
	touch $@

demo: $(USER)
	$(BIN)/nco-bench generate tsp --n 100 --count 16 --reference lkh3 --instances demo/instances
	$(BIN)/nco-bench run concorde lkh3 random-insertion nearest-neighbor decoder-6x128 --data tsp100:count=16 \
	    --instances demo/instances --results demo/runs
	$(BIN)/nco-bench report --results demo/runs --latex --out demo/table.tex
	$(BIN)/nco-bench plot tour --solver decoder-6x128 --data tsp100:count=16 --instances demo/instances \
	    --results demo/runs --out demo/tour.png
	@echo "The table is in demo/table.tex, the picture in demo/tour.png."

# The leaderboard of the records that are in the repository (docs/leaderboard.md): site/index.html.
site: $(USER)
	$(BIN)/nco-bench site build --results results/cpu --results results/classical --out site

# TESTS='not soak' leaves out a quarter of their time (tests/conftest.py says which), TESTS=soak runs those alone.
TESTS ?= soak or not soak
test: $(DEV)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile --durations=20 \
	    -m "($(TESTS)) and not slow and not gpu and not network"

# A real SLURM of one node, up and down again. Where it cannot be had (no root, no apt-get) one line says why, and all is well.
# CLUSTER_TESTS= takes the slow ones along: time limits, out of memory, a node that dies, campaigns, papers.
CLUSTER_TESTS ?= -m "not slow"
cluster-test: $(DEV)
	@folder=$$(mktemp -d /tmp/nco-bench-slurm.XXXXXX); \
	OMP_NUM_THREADS=1 tools/cluster/one_node.sh $$folder $(BIN)/python -m pytest -x $(CLUSTER_TESTS) --durations=5 tests/runs/cluster; \
	status=$$?; rm -rf $$folder; [ $$status = 77 ] || exit $$status

# Kills, flipped bytes, storage faults, fuzz and extremes in full: hours. NCO_BENCH_TORTURE_SHARE=0.1 is a tenth of it.
torture: $(DEV)
	OMP_NUM_THREADS=1 NCO_BENCH_TORTURE=1 nice -n 10 $(BIN)/python -m pytest tests/torture tests/solvers/test_extremes.py \
	    --durations=20

# What the environment holds, as CycloneDX; and what the public advisory database knows of the demo's lock. Their tools stay
# out of the environment that they describe.
sbom: $(USER)
	$(PYTHON) -m venv $(VENV)-supply
	$(VENV)-supply/bin/python -m pip install --disable-pip-version-check -q $(SBOM)
	$(VENV)-supply/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible -o sbom.json $(BIN)/python

audit:
	$(PYTHON) -m venv $(VENV)-supply
	-$(VENV)-supply/bin/python -m pip install --disable-pip-version-check -q $(PIP_AUDIT)
	$(VENV)-supply/bin/python tools/audit.py $(VENV)-supply/bin/pip-audit locks/demo.txt

# One instance of every cell that is quick: every preset, every solver with weights, every renderer of the reproduction.
# A paper each, so that several can be made at once, the longest first.
reproduce-smoke: $(addprefix smoke-,decoder-scaling pens sit tropical eie)
smoke-%: $(USER)
	OMP_NUM_THREADS=1 $(BIN)/nco-bench reproduce $* --scale smoke --limit 1 --markdown --out demo/tables \
	    --instances demo/instances --results demo/reproduced

# Networks that are trained for days beside other work (docs/training.md): starts or continues them, says how far they are.
campaign: campaign-labels
	$(BIN)/python -m nco_bench.training.flagships campaigns/flagships.toml $(CAMPAIGN)

campaign-status: $(USER)
	$(BIN)/python -m nco_bench.training.flagships campaigns/flagships.toml $(CAMPAIGN) --status

campaign-labels: $(CAMPAIGN)/labels/tsp100/labels.quality.json $(CAMPAIGN)/labels/validation.npz

$(CAMPAIGN)/labels/tsp100/labels.quality.json: | $(USER)
	nice -n 15 $(BIN)/nco-bench generate tsp --n 100 --count 60000 --shards 3 --seed 31000 --reference fast-tsp \
	    --time-limit 0.01 --check concorde --out $(@D)

$(CAMPAIGN)/labels/validation.npz: | $(USER)
	nice -n 15 $(BIN)/nco-bench generate tsp --n 100 --count 128 --seed 99001 --reference fast-tsp --time-limit 0.2 --out $@

# Fixtures from the authors' repositories, checked out side by side in a folder, replayed through our networks.
parity: $(USER)
	@test -n "$(OFFICIAL)" || { echo "make parity OFFICIAL=FOLDER names a folder of the authors' repositories"; exit 2; }
	$(BIN)/python tools/parity/make_all.py --official $(OFFICIAL) --out demo/parity
	$(BIN)/nco-bench parity demo/parity/*.safetensors

# The documentation site in build/docs/html: warnings are errors, nothing is fetched. `links` asks the addresses outside.
docs: $(DEV)
	OMP_NUM_THREADS=1 $(BIN)/python -m tools.docs

links: $(DEV)
	OMP_NUM_THREADS=1 $(BIN)/python -m tools.docs --links

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Both packages into dist/ with the changelog's section, then each checked in an environment of its own from an empty folder
# (CHECK=base leaves torch out, CHECK='base neural all' adds all extras, CHECK_PYTHON names another interpreter), and the
# bill of materials.
CHECK ?= base neural
CHECK_PYTHON ?= $(PYTHON)
release: $(DEV)
	rm -rf dist
	$(BIN)/python tools/release.py --notes dist/notes.md
	$(PIP) build
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m build --wheel --outdir dist weights
	$(BIN)/python tools/check_release.py dist --torch '$(TORCH)' --python $(CHECK_PYTHON) $(CHECK)
	$(MAKE) sbom
	mv sbom.json dist/nco-bench.cdx.json

clean:
	rm -rf $(VENV) demo
