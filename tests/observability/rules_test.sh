#!/usr/bin/env bash
# Prometheus takes what deploy/observability has, and each alert fires when it should and not else.
set -euo pipefail
promtool=${PARLEY_TEST_PROMTOOL:-${HOME:-/root}/.cache/parley/tools/promtool}
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
cp -L deploy/observability/*.yml tests/observability/rules_test.yml "$here"
"$promtool" check config "$here/prometheus.yml"
"$promtool" test rules "$here/rules_test.yml"
