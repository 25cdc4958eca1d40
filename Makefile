# Everything is installed into .venv, from the lock: Python 3.11 or later and make are all that has to be there.

PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
BIN := .venv/bin
INSTALLED := .venv/.installed
MARIADB_DRIVER := .venv/.mariadb-driver
NODE_MODULES := tests/node/node_modules/.installed
NPM := PATH="$(abspath $(BIN)):$$PATH" NODE_OPTIONS=--use-system-ca npm

# make test: of sqlite, postgres, mariadb and mariadb-repeatable-read. The last two take Debian's mariadb-server and
# mariadb-client too, and gcc, pkg-config and libmariadb-dev to build the driver.
DATABASES ?= sqlite postgres

# make run, make conformance-server: the environment variables DATABASE_URL and REDIS_URL choose the services.
PROJECT := example_project
PORT ?= 8000
SERVER ?= uvicorn
WORKERS ?= 1
THREADS ?= 8

# Several workers of `uvicorn --workers` share a socket without TCP_NODELAY, so gunicorn runs them.
RUNNER = $(if $(filter-out 1,$(WORKERS)),$(SERVER:uvicorn=gunicorn-asgi),$(SERVER))
GUNICORN = $(BIN)/gunicorn --bind 127.0.0.1:$(PORT) --workers $(WORKERS)
SERVE_uvicorn = $(BIN)/uvicorn --host 127.0.0.1 --port $(PORT) --lifespan off $(PROJECT).asgi:application
SERVE_gunicorn = $(GUNICORN) --worker-class gthread --threads $(THREADS) $(PROJECT).wsgi:application
SERVE_gunicorn-asgi = $(GUNICORN) --worker-class uvicorn_worker.UvicornWorker $(PROJECT).asgi:application

.PHONY: demo test faults run conformance conformance-server lint format typecheck lock clean

# Show, line by line, a call that lost its answer and was retried.
demo: $(INSTALLED)
	$(BIN)/python -m example_project.demo

# Run the tests on each of the DATABASES, up to the first that fails; ARGS goes to pytest.
test: $(INSTALLED) $(NODE_MODULES) $(if $(filter mariadb%,$(DATABASES)),$(MARIADB_DRIVER))
	set -e; for database in $(DATABASES); do \
		echo "TEST_DATABASE=$$database"; TEST_DATABASE=$$database $(BIN)/python -m pytest $(ARGS); done

# Do every fault to a call that there is a test for, on each of the DATABASES, and count what came of them.
faults: $(INSTALLED) $(if $(filter mariadb%,$(DATABASES)),$(MARIADB_DRIVER))
	set -e; for database in $(DATABASES); do echo "TEST_DATABASE=$$database"; \
		TEST_DATABASE=$$database TEST_HISTORIES=300 $(BIN)/python -m pytest -m "" $(ARGS) tests/faults; done

# Serve the example; SERVER is uvicorn, gunicorn or gunicorn-asgi.
run: $(INSTALLED)
	$(BIN)/python manage.py migrate --verbosity 0
	$(BIN)/python manage.py demo_data
	exec $(or $(SERVE_$(RUNNER)),$(error SERVER must be uvicorn, gunicorn or gunicorn-asgi, not "$(SERVER)"))

# Run the official conformance suite, both releases, against the servers that tests/conformance/run.py lists; ARGS goes
# to it, as in ARGS="--output DIRECTORY", which keeps what the suite and the servers write.
conformance: $(INSTALLED) $(NODE_MODULES)
	$(BIN)/python -m tests.conformance.run $(ARGS)

# Serve what the suite asks a server for; SERVER as above. With several WORKERS it takes a REDIS_URL.
conformance-server: PROJECT := tests.conformance
conformance-server: $(INSTALLED)
	exec $(or $(SERVE_$(RUNNER)),$(error SERVER must be uvicorn, gunicorn or gunicorn-asgi, not "$(SERVER)"))

lint: $(INSTALLED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

format: $(INSTALLED)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

typecheck: $(INSTALLED)
	$(BIN)/mypy

# Write the locks anew, with the newest releases that pyproject.toml allows.
COMPILE = $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --upgrade --quiet --system-certs \
	--custom-compile-command "make lock"
lock: $(INSTALLED)
	$(COMPILE) --group dev --output-file requirements.lock pyproject.toml
	$(COMPILE) --group mariadb --output-file requirements-mariadb.lock
	$(COMPILE) --group node --output-file requirements-node.lock
	cd tests/node && $(NPM) update --package-lock-only

clean:
	rm -rf .venv tests/node/node_modules .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist *.egg-info db.sqlite3*

$(INSTALLED): requirements.lock pyproject.toml
	$(or $(PYTHON),$(error Python 3.11 or later is needed)) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

$(MARIADB_DRIVER): $(INSTALLED) requirements-mariadb.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --require-hashes \
		-r requirements-mariadb.lock
	touch $@

# Node comes from PyPI as everything else does, so that no other has to be there.
$(NODE_MODULES): $(INSTALLED) requirements-node.lock tests/node/package.json tests/node/package-lock.json
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-node.lock
	cd tests/node && $(NPM) ci --ignore-scripts --silent
	touch $@
