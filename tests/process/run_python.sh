#!/usr/bin/env bash
# Runs a Python test with the environment that deploy/bootstrap makes (PARLEY_TEST_PYTHON, set by deploy/test).
exec "${PARLEY_TEST_PYTHON:-${HOME:-/root}/.cache/parley/venv/bin/python}" -u "$@"
