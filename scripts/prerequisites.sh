#!/bin/sh
# Prints one line naming the first missing prerequisite among the arguments, and nothing when all are there.
# `interpreter` prints the Python to create the environment with. Run by the Makefile.

interpreter() {
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        # Run it: version managers leave launchers on the path for versions that are not installed.
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' > /dev/null 2>&1; then
            echo "$candidate"
            return 0
        fi
    done
    return 1
}

# Whether version $1 is at least version $2 (major.minor).
at_least() {
    awk -v have="$1" -v want="$2" 'BEGIN {
        split(have, h, "."); split(want, w, ".")
        exit !(h[1] + 0 > w[1] + 0 || (h[1] + 0 == w[1] + 0 && h[2] + 0 >= w[2] + 0))
    }'
}

check() {
    case $1 in
    python)
        if ! python=$(interpreter); then
            echo "threadteam needs Python 3.11 or newer on the path${PYTHON:+ (PYTHON=$PYTHON is not)}"
        elif ! "$python" -c 'import venv, ensurepip' > /dev/null 2>&1; then
            echo "threadteam needs Python's venv module, which $python lacks (on Debian: apt install python3-venv)"
        fi
        ;;
    cargo)
        wanted=$(sed -n 's/^rust-version = "\([0-9.]*\)".*/\1/p' Cargo.toml)
        if ! found=$(cargo --version 2> /dev/null); then
            echo "threadteam needs cargo, Rust $wanted or newer, on the path (https://rustup.rs installs it)"
        elif found=${found#cargo } && ! at_least "${found%% *}" "$wanted"; then
            echo "threadteam needs Rust $wanted or newer, found ${found%% *} (rustup update)"
        fi
        ;;
    components)
        cargo fmt --version > /dev/null 2>&1 && cargo clippy --version > /dev/null 2>&1 ||
            echo "threadteam's checks need rustfmt and clippy (rustup component add rustfmt clippy)"
        ;;
    esac
}

if [ "$1" = interpreter ]; then
    interpreter
    exit
fi
for item in "$@"; do
    problem=$(check "$item")
    if [ -n "$problem" ]; then
        echo "$problem"
        exit
    fi
done
