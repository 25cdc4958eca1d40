# Everything is installed into .venv, from the lock: Python 3.11 or later and make are all that has to be there.

PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
BIN := .venv/bin
INSTALLED := .venv/.installed

# make run: the environment variables DATABASE_URL and REDIS_URL choose the services.
PORT ?= 8000
SERVER ?= uvicorn
WORKERS ?= 1
THREADS ?= 8

# Several workers of `uvicorn --workers` share a socket without TCP_NODELAY, so gunicorn runs them.
RUNNER = $(if $(filter-out 1,$(WORKERS)),$(SERVER:uvicorn=gunicorn-asgi),$(SERVER))
GUNICORN = $(BIN)/gunicorn --bind 127.0.0.1:$(PORT) --workers $(WORKERS)
SERVE_uvicorn = $(BIN)/uvicorn --host 127.0.0.1 --port $(PORT) --lifespan off example_project.asgi:application
SERVE_gunicorn = $(GUNICORN) --worker-class gthread --threads $(THREADS) example_project.wsgi:application
SERVE_gunicorn-asgi = $(GUNICORN) --worker-class uvicorn_worker.UvicornWorker example_project.asgi:application

.PHONY: demo test run lint format typecheck lock clean

# Show, line by line, a call that lost its answer and was retried.
demo: $(INSTALLED)
	$(BIN)/python -m example_project.demo

# Run the tests on both databases; ARGS goes to pytest.
test: $(INSTALLED)
	TEST_DATABASE=sqlite $(BIN)/python -m pytest $(ARGS)
	TEST_DATABASE=postgres $(BIN)/python -m pytest $(ARGS)

# Serve the example; SERVER is uvicorn, gunicorn or gunicorn-asgi.
run: $(INSTALLED)
	$(BIN)/python manage.py migrate --verbosity 0
	$(BIN)/python manage.py demo_data
	exec $(or $(SERVE_$(RUNNER)),$(error SERVER must be uvicorn, gunicorn or gunicorn-asgi, not "$(SERVER)"))

lint: $(INSTALLED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

format: $(INSTALLED)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

typecheck: $(INSTALLED)
	$(BIN)/mypy

# Write the lock anew, with the newest releases that pyproject.toml allows.
lock: $(INSTALLED)
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --upgrade --quiet --system-certs \
		--custom-compile-command "make lock" --group dev --output-file requirements.lock pyproject.toml

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist *.egg-info db.sqlite3*

$(INSTALLED): requirements.lock pyproject.toml
	$(or $(PYTHON),$(error Python 3.11 or later is needed)) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@
