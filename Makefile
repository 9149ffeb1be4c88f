PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: test test-slow run lint docs

# Everything but torch; a second call finds the stamp and installs nothing.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[control,sweep,dev]'
	touch $(STAMP)

test: $(STAMP)
	$(BIN)/pytest -n 2 -m 'not slow'

test-slow: $(STAMP)
	command -v chromium >/dev/null || (apt-get update -qq && apt-get install -y -qq chromium)
	$(BIN)/pytest -m slow

run: $(STAMP)
	$(BIN)/cvaml garnet --out runs/garnet

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
