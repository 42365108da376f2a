#!/usr/bin/env bash
# Outside suites, from the folder named by GLASSHOUSE_CORPORA. Run by hand.
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ -z "${GLASSHOUSE_CORPORA:-}" ]; then
	echo "skipped: GLASSHOUSE_CORPORA names no folder; put bare repositories below one and name it"
	echo "0 passed, 0 failed, 1 skipped"
	exit 0
fi
go test -count=1 -timeout 60m -v -run Corpora ./backend/review
