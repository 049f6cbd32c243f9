#!/bin/sh
# Pin everything a checkout installs, with hashes, for every supported Python and platform. The files name no package
# index: whichever one a machine is set up with serves them. Arguments go to uv: `dev/lock.sh --upgrade`.
set -eu
cd "$(dirname "$0")/.."
uv=.venv/bin/uv
[ -x "$uv" ] || uv=uv

pin() { # pin OUTPUT [uv arguments…]
    output=$1
    shift
    "$uv" pip compile --quiet --system-certs --universal --python-version 3.11 --generate-hashes \
        --no-header --no-annotate --no-emit-index-url --no-emit-find-links --output-file "$output" "$@"
}

pin requirements/dev.lock pyproject.toml --extra all --group dev "$@"
pin requirements/installer.lock --group installer "$@"
pin tests/sqs/query/requirements.lock tests/sqs/query/requirements.in "$@"
