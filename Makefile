# Everything runs in a virtual environment that these rules make; nothing else is needed but Python >= 3.11.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests run on two processes: a second thread of linear algebra in each would only wait for a core.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
# Data sets that need files lie in the folder that PRIVINF_DATA names; without it they are left out, and it is said.
export PRIVINF_DATA ?= $(wildcard ../shared/data)
# Bytecode is kept, whatever the shell says: tests start many processes, and each would compile the package anew.
export PYTHONDONTWRITEBYTECODE :=
# An older processor than this one, for a run of the tests: WITHOUT=v4 turns AVX-512 off, WITHOUT=v3 AVX2 and FMA too.
WITHOUT ?=
OLDER = $(BIN)/python tests/support/processors.py
# Tests whose numbers depend on the last bits of exp, of BLAS or of compiled loops: on the oldest processor as well.
BITS := tests/architecture/test_processors.py tests/architecture/test_saved.py tests/federation/test_exact_fits.py \
  tests/federation/test_site_gate.py tests/federation/test_two_runs.py tests/glm/test_federated_glm_resumed.py \
  tests/inference/test_tails.py tests/mechanisms/test_loops.py tests/mechanisms/test_mixing_matrix.py \
  tests/mechanisms/test_pushed.py tests/mechanisms/test_sums.py tests/mechanisms/test_terms.py \
  tests/noise/test_noise_keys.py tests/noise/test_noise_lattice.py tests/privacy/test_record_replay.py \
  tests/privacy/test_redraws.py tests/privacy/test_total_evaluation.py tests/results/test_results_storage.py

# Long runs store single fits as they end. FRESH= (empty) goes on with what is stored; else it is forgotten first.
FRESH ?= --fresh

# The demo needs the package and matplotlib, not the tests' tools; where these are installed it takes them.
READY := $(or $(wildcard $(VENV)/.installed),$(VENV)/.demo)

.PHONY: demo test audit count test-processors lint docs dist test-minimal test-oldest test-pythons vignettes-quick verify verify-quick verify-smallest verify-curator verify-mixing verify-examples verify-lasso verify-federation verify-gate verify-peers gauntlet lottery bench clean

$(VENV)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[test,lint]"
	touch $@

$(VENV)/.demo: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[plots]"
	touch $@

demo: $(READY)                      ## two private regressions on statsmodels' data: summaries and one picture
	$(BIN)/python vignettes/demo.py

test: $(VENV)/.installed            ## the tests while you wait; with WITHOUT=v4 or v3 as on an older processor
	$(ONE_THREAD) $(if $(WITHOUT),$(OLDER) $(WITHOUT)) $(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow and not timing and not audit"

audit: $(VENV)/.installed           ## the long tests: audits, mutants, fuzzers, coverage, wall times; CI runs both
	$(ONE_THREAD) $(if $(WITHOUT),$(OLDER) $(WITHOUT)) $(BIN)/python -m pytest -n 2 --dist worksteal -m "audit and not slow and not timing"
	$(ONE_THREAD) $(if $(WITHOUT),$(OLDER) $(WITHOUT)) $(BIN)/python -m pytest -m "timing and not slow" -p no:xdist $$(grep -rl --include="*.py" "mark\.timing" tests)

count: $(VENV)/.installed           ## how many tests, audits and mutants each of these commands runs
	$(BIN)/python tests/support/suite.py

test-processors: $(VENV)/.installed ## the tests that depend on last bits, as on a processor without AVX2 and FMA
	$(ONE_THREAD) $(OLDER) v3 $(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow and not timing" $(BITS)

$(VENV)/.docs: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[docs]"
	touch $@

docs: $(VENV)/.docs                 ## the site, in build/site; a link that opens nothing ends it
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# Jobs of releasing: each in a fresh environment of its own below build/, so that nothing that is installed helps.
DIST := build/dist
FRESHLY = rm -rf build/$(1) && $(2) -m venv build/$(1) && build/$(1)/bin/python -m pip install --quiet --disable-pip-version-check
# What runs on the base install and pytest alone.
MINIMAL := tests/schema/test_schema_declared.py tests/schema/test_schema_files.py tests/accounting/test_accounting_ledger.py \
  tests/moments/test_moment_ols.py tests/stats/test_means.py tests/results/test_results_wald.py tests/results/test_results_storage.py
CORE := tests/schema tests/accounting/test_accounting_ledger.py tests/accounting/test_ledger_files.py tests/inference tests/results \
  tests/moments tests/stats tests/glm tests/cli
QUIET := -q -p no:cacheprovider -o addopts="-ra --strict-markers" -m "not slow and not timing"

dist:                               ## wheel and sdist in build/dist, and what the package index would say of them
	rm -rf $(DIST)
	$(call FRESHLY,build-tools,$(PYTHON)) build hatchling twine
	build/build-tools/bin/python -m build --no-isolation --outdir $(DIST) .
	build/build-tools/bin/python -m twine check --strict $(DIST)/*

test-minimal: dist                  ## the wheel alone, without extras: the README's twelve lines, and tests that need no more
	$(call FRESHLY,minimal,$(PYTHON)) $(DIST)/*.whl
	cd build && minimal/bin/python ../tests/support/install.py readme
	build/minimal/bin/python -m pip install --quiet --disable-pip-version-check pytest
	build/minimal/bin/pytest $(QUIET) -o pythonpath=tests $(MINIMAL)

test-oldest:                        ## lower bounds of pyproject.toml, exactly: the core's tests
	mkdir -p build && $(PYTHON) tests/support/install.py oldest > build/oldest.txt
	$(call FRESHLY,oldest,$(PYTHON)) -c build/oldest.txt ".[plots,parquet,sklearn,arviz]" pytest hypothesis polars
	build/oldest/bin/python -m pytest $(QUIET) -W ignore::DeprecationWarning $(CORE)  # old ones of new ones: not ours

test-pythons: dist                  ## the same tests on every Python from 3.11 on that is here
	@for one in 3.11 3.12 3.13; do \
	  found=$$(ls $$HOME/.pyenv/versions/$$one.*/bin/python 2>/dev/null | tail -1); found=$${found:-$$(command -v python$$one)}; \
	  if test -z "$$found" || ! $$found -c "" 2>/dev/null; then echo "Python $$one is not here: left out"; continue; fi; \
	  echo "Python $$one"; rm -rf build/python$$one; $$found -m venv build/python$$one || exit 1; \
	  build/python$$one/bin/python -m pip install --quiet --disable-pip-version-check $(DIST)/*.whl pytest || exit 1; \
	  (cd build && python$$one/bin/python ../tests/support/install.py readme) || exit 1; \
	  build/python$$one/bin/pytest $(QUIET) -o pythonpath=tests $(MINIMAL) || exit 1; \
	done

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHONPATH=tests $(BIN)/python -m support.words

vignettes-quick: $(VENV)/.installed ## every vignette with few draws, pages in a scratch folder: five minutes on two cores
	$(BIN)/python vignettes/quick.py

verify-quick: $(VENV)/.installed    ## the audits and the coverage of the long Monte Carlo, in the sizes of the tests
	$(ONE_THREAD) $(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow and not timing" tests/coverages $(wildcard tests/privacy/test_*audit*.py)

verify-smallest: $(VENV)/.installed ## every script of the targets below but the vignettes, to its end, with a few draws
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[datasets]"
	$(BIN)/python benchmarks/small.py

verify: $(VENV)/.installed          ## long Monte Carlo (over an hour on two cores) -> benchmarks/results/
	$(BIN)/python benchmarks/audits.py
	$(BIN)/python tests/accounting/test_accounting_oracle.py benchmarks/results/accounting_oracle.md
	$(BIN)/python benchmarks/calibrate_identification.py
	$(BIN)/python benchmarks/verify.py
	$(BIN)/python benchmarks/small_samples.py
	$(BIN)/python benchmarks/tuning.py --draw $(FRESH)
	$(BIN)/python vignettes/1_modulated_learning.py

verify-curator: $(VENV)/.installed  ## one table, one curator: fits, formulas, bounds that are bought, tests, quantiles
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[datasets]"
	$(BIN)/python benchmarks/one_curator.py
	$(BIN)/python benchmarks/one_release.py
	$(BIN)/python benchmarks/one_or_many.py
	$(BIN)/python benchmarks/formulas.py
	$(BIN)/python benchmarks/effects.py
	$(BIN)/python benchmarks/effects_reported.py
	$(BIN)/python benchmarks/far_group.py 200
	$(BIN)/python benchmarks/rare_groups.py 200
	$(BIN)/python benchmarks/clipping.py --write
	$(BIN)/python benchmarks/loose_bounds.py 200
	$(BIN)/python benchmarks/logistic.py
	$(BIN)/python benchmarks/proportional_hazards.py 200
	$(BIN)/python benchmarks/hazard_tables.py 60
	$(BIN)/python benchmarks/hazard_layers.py 60
	$(BIN)/python benchmarks/hazard_targets.py
	$(BIN)/python benchmarks/hazard_target_tests.py
	$(BIN)/python benchmarks/hazard_scores.py
	$(BIN)/python benchmarks/margins.py --fits 100
	$(BIN)/python benchmarks/negative_binomial.py --fits 500
	$(BIN)/python benchmarks/score_tests.py
	$(BIN)/python benchmarks/find_bounds.py
	$(BIN)/python benchmarks/bought_fits.py
	$(BIN)/python benchmarks/quantiles.py
	$(BIN)/python benchmarks/counts.py
	$(BIN)/python benchmarks/tests_size.py
	$(BIN)/python benchmarks/missing.py
	$(BIN)/python benchmarks/missing_real.py
	$(BIN)/python benchmarks/missing_lasso.py
	$(BIN)/python benchmarks/missing_stats.py
	$(BIN)/python benchmarks/survival.py
	$(BIN)/python benchmarks/tests_published.py
	$(BIN)/python benchmarks/statsmodels_tests.py
	$(BIN)/python benchmarks/planner.py
	$(BIN)/python benchmarks/hazard_plans.py

verify-mixing: $(VENV)/.installed   ## the same for several parties: audits, Monte Carlo, memory, vignettes 2a to 2c
	$(BIN)/python benchmarks/audits_mixing.py
	$(BIN)/python benchmarks/verify_mixing.py
	$(BIN)/python benchmarks/simultaneous.py --only mixing
	$(BIN)/python benchmarks/simultaneous.py --only pairs
	$(BIN)/python benchmarks/mixing_speed.py
	$(BIN)/python benchmarks/release_memory.py
	$(BIN)/python vignettes/2a_synthetic_mixing.py
	$(BIN)/python vignettes/2b_real_data_mixing.py
	$(BIN)/python vignettes/2c_three_clinics.py

verify-examples: $(VENV)/.installed  ## the same for locally private examples: audits, Monte Carlo, vignette 3
	$(BIN)/python benchmarks/audits_examples.py
	$(BIN)/python benchmarks/verify_examples.py
	$(BIN)/python benchmarks/laplace_examples.py
	$(BIN)/python vignettes/3_private_examples.py

verify-lasso: $(VENV)/.installed    ## the same for the debiased lasso: audits, Monte Carlo, vignette 4
	$(BIN)/python benchmarks/audits_lasso.py
	$(BIN)/python benchmarks/top_k.py
	$(BIN)/python benchmarks/verify_lasso.py $(FRESH)
	$(BIN)/python benchmarks/simultaneous.py --only lasso
	$(BIN)/python benchmarks/lasso_paper.py $(FRESH)
	$(BIN)/python benchmarks/sparse_mean.py
	$(BIN)/python benchmarks/lasso_agreement.py
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[datasets]"
	$(BIN)/python benchmarks/lasso_gauntlet.py $(FRESH)
	$(BIN)/python benchmarks/lasso_gauntlet.py --report
	$(BIN)/python benchmarks/lasso_gauntlet.py --group strangers --report
	$(BIN)/python vignettes/4_federated_lasso.py
	$(BIN)/python vignettes/4b_wages.py

verify-federation: $(VENV)/.installed  ## secure sums, regressions over sites, sketches, TLS on loopback, vignettes 5, 5b, 6
	$(BIN)/python benchmarks/secure_sum.py
	$(BIN)/python benchmarks/verify_moments_federated.py $(FRESH)
	$(BIN)/python benchmarks/verify_federated.py $(FRESH)
	$(BIN)/python benchmarks/lasso_secure.py $(FRESH)
	$(BIN)/python benchmarks/lasso_secure_logistic.py
	$(BIN)/python benchmarks/verify_dome.py $(FRESH)
	$(BIN)/python benchmarks/hostile_frames.py
	$(BIN)/python benchmarks/identity_attacks.py
	$(BIN)/python benchmarks/flower_tls.py
	$(BIN)/python benchmarks/release_kills.py
	$(BIN)/python benchmarks/ledger_kills.py
	$(BIN)/python benchmarks/ledger_attacks.py
	$(BIN)/python benchmarks/hospitals.py
	$(BIN)/python vignettes/5_federated_glm.py
	$(BIN)/python vignettes/5b_federated_acs.py --flower
	$(BIN)/python vignettes/6_three_hospitals.py

verify-gate: $(VENV)/.installed      ## the audits of the gate in full, and statistics that were wrong in silence
	$(BIN)/python benchmarks/verify_hc0.py
	$(BIN)/python benchmarks/verify_settled.py
	$(BIN)/python benchmarks/last_bits.py
	$(BIN)/python benchmarks/replay.py
	$(BIN)/python benchmarks/redraws.py
	$(BIN)/python benchmarks/fuzz_files.py
	$(BIN)/python benchmarks/fuzz_queries.py
	$(BIN)/python benchmarks/fuzz_arguments.py
	$(BIN)/python benchmarks/fuzz_rows.py

verify-peers: $(VENV)/.installed     ## other tools beside this one (the network, for their installation; half an hour)
	$(BIN)/python benchmarks/peers/install.py $(VENV)/peers
	$(BIN)/python benchmarks/peers/measure.py $(VENV)/peers
	$(BIN)/python benchmarks/peers/flower_masks.py

gauntlet: $(VENV)/.installed         ## every estimator with intervals on 60 cells: some 40 minutes on two cores
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[datasets]"
	$(BIN)/python benchmarks/gauntlet.py --named $(FRESH)
	$(BIN)/python benchmarks/gauntlet.py --report
	$(BIN)/python benchmarks/gauntlet.py --growth
	$(BIN)/python benchmarks/flags.py 300

lottery: $(VENV)/.installed          ## 300 regressions drawn by lot from tables of R packages: some five hours on one core
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[datasets]"
	$(BIN)/python benchmarks/lottery.py --draw
	$(BIN)/python benchmarks/lottery.py $(FRESH)
	$(BIN)/python benchmarks/lottery.py --report
	$(BIN)/python benchmarks/lottery_division.py --epsilons 1 --fits 10
	$(BIN)/python benchmarks/lottery_division.py --epsilons 2 --fits 20
	$(BIN)/python benchmarks/silent_cells.py --run benchmarks/results/silent_fits.csv
	$(BIN)/python benchmarks/silent_cells.py --report benchmarks/results/silent_fits.csv
	$(BIN)/python benchmarks/long_steps.py --run benchmarks/results/long_steps.jsonl
	$(BIN)/python benchmarks/long_steps.py --lottery benchmarks/results/long_steps_lottery.jsonl --fits 24
	$(BIN)/python benchmarks/long_steps.py --report benchmarks/results/long_steps.jsonl benchmarks/results/long_steps_lottery.jsonl
	$(BIN)/python benchmarks/rare_levels.py --run benchmarks/results/rare_levels.jsonl
	$(BIN)/python benchmarks/rare_levels.py --report benchmarks/results/rare_levels.jsonl
	$(BIN)/python benchmarks/third_layer.py --run benchmarks/results/third_layer.csv
	$(BIN)/python benchmarks/third_layer.py --report benchmarks/results/third_layer.csv

bench: $(VENV)/.installed           ## ratios against statsmodels, numpy and polars -> benchmarks/results/bench.md
	$(BIN)/python benchmarks/bench.py
	$(BIN)/python benchmarks/table_sums.py
	$(BIN)/python benchmarks/streamed_release.py
	$(BIN)/python benchmarks/pushed.py
	$(BIN)/python benchmarks/pushed.py --fits --tables 1000 --rows 300000
	$(BIN)/python benchmarks/large_tables.py  # needs privinf[dask], privinf[spark] and Java for these ways

clean:
	rm -rf $(VENV) demo_output build .pytest_cache .mypy_cache .ruff_cache
