#!/bin/sh
# Compiles what is in Java (src/skep/spark/jvm) into its jar, against the Spark that is installed; needs javac.
# The jar is checked in, so that nobody needs a JDK to install or to test; a test holds its sources to those beside it.
set -eu
cd "$(dirname "$0")/.."
folder=src/skep/spark/jvm
jars=$("${PYTHON:-.venv/bin/python}" -c 'import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent / "jars")')
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
javac --release 17 -g:lines -Xlint:all,-path -Werror -cp "$jars/*" -d "$made" "$folder"/skep/spark/*.java
mkdir "$made/META-INF"
cat "$folder"/skep/spark/*.java | sha256sum | cut -d ' ' -f 1 > "$made/META-INF/sources.sha256"
jar --create --no-manifest --date=2026-01-01T00:00:00Z --file "$folder/skep-spark.jar" -C "$made" META-INF -C "$made" skep
