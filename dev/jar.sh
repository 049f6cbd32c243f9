#!/bin/sh
# Compiles what is in Java (src/skep/spark/jvm) into its jar, or into the file that is named, against the Spark that is installed.
# Needs javac. The jar is checked in, so that nobody needs a JDK to install or to test; where there is one, a test runs this
# and compares (tests/unit/spark/test_spark_jar.py).
set -eu
cd "$(dirname "$0")/.."
folder=src/skep/spark/jvm
jar=${1:-$folder/skep-spark.jar}
jars=$("${PYTHON:-.venv/bin/python}" -c 'import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent / "jars")')
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
# -J: for a dozen files, a compiler that is compiled less takes half the time.
javac -J-XX:TieredStopAtLevel=1 -J-XX:+UseSerialGC --release 17 -g:lines -proc:none -Xlint:all,-path,-classfile -Werror \
    -cp "$jars/*" -d "$made" "$folder"/skep/spark/*.java
mkdir "$made/META-INF"
cp -r "$folder/META-INF/services" "$made/META-INF/"
cat "$folder"/skep/spark/*.java | sha256sum | cut -d ' ' -f 1 > "$made/META-INF/sources.sha256"
jar -J-XX:TieredStopAtLevel=1 -J-XX:+UseSerialGC --create --no-manifest --date=2026-01-01T00:00:00Z --file "$jar" -C "$made" META-INF -C "$made" skep
