#!/usr/bin/env bash
# Finds or installs what the build needs. What was set up once is remembered in .deps/ and reused.
#
#   tools/setup.sh          LibTorch, and the packages that make building and testing quick
#   tools/setup.sh lint     clang-format and clang-tidy, for `make format` and `make lint`
#   tools/setup.sh peers    JAX, for `make bench-models`, into .venv-peers; goes on without it
#
# LibTorch is looked for in this order: $TORCH_DIR (the folder that has include/ and lib/), the torch
# package of python3, a torch package installed into .venv by this script.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p .deps

readonly TORCH_OLDEST=2.11 TORCH_NEWEST=2.13 TORCH_TO_INSTALL=2.13.0
readonly CLANG_FORMAT_VERSION=14.0.6 CLANG_TIDY_VERSION=18.1.8 JAX_VERSION=0.10.2

say() { echo "setup: $*"; }
fail() { echo "setup: $*" >&2; exit 1; }

# --- LibTorch ---------------------------------------------------------------------------------------

# Prints "2.13" for a folder that holds LibTorch 2.13.x, and nothing for any other folder.
torch_series() {
  local header="$1/include/torch/headeronly/version.h"
  [ -f "$header" ] && [ -e "$1/lib/libtorch_cpu.so" ] || return 0
  sed -nE 's/^#define TORCH_VERSION_(MAJOR|MINOR) +([0-9]+).*/\2/p' "$header" | paste -sd.
}

torch_fits() {
  local series
  series=$(torch_series "$1")
  [ -n "$series" ] &&
    printf '%s\n' "$TORCH_OLDEST" "$series" "$TORCH_NEWEST" | sort --check=quiet --version-sort
}

# Prints the folder of the torch package that the given Python would import, without importing it.
torch_of_python() {
  "$1" -c 'import importlib.util as u; s = u.find_spec("torch"); print(s.submodule_search_locations[0] if s else "")' \
    2>/dev/null || true
}

use_torch() {
  say "using LibTorch $(torch_series "$1") in $1"
  echo "$1" > .deps/torch_dir
}

make_venv() {
  [ -x .venv/bin/pip ] && return
  say "creating .venv"
  python3 -m venv .venv >/dev/null 2>&1 || {
    rm -rf .venv
    apt_install python3-venv && python3 -m venv .venv
  } || fail "python3 cannot create a virtual environment; install python3-venv, or set TORCH_DIR"
}

pip_install() {
  make_venv
  .venv/bin/pip install -qq --disable-pip-version-check --progress-bar off "$@"
}

setup_torch() {
  local found
  if [ -n "${TORCH_DIR:-}" ]; then
    torch_fits "$TORCH_DIR" || fail "TORCH_DIR=$TORCH_DIR does not hold LibTorch $TORCH_OLDEST to $TORCH_NEWEST"
    found=$(realpath "$TORCH_DIR")
    [ "$(cat .deps/torch_dir 2>/dev/null)" = "$found" ] || use_torch "$found"
    return
  fi
  if [ -f .deps/torch_dir ] && torch_fits "$(cat .deps/torch_dir)"; then return; fi
  for python in python3 .venv/bin/python; do
    found=$(torch_of_python "$python")
    if torch_fits "$found"; then use_torch "$found"; return; fi
  done
  say "installing torch $TORCH_TO_INSTALL into .venv (this takes a few minutes)"
  pip_install "torch==$TORCH_TO_INSTALL" numpy
  found=$(torch_of_python .venv/bin/python)
  torch_fits "$found" || fail "the torch package in .venv has no LibTorch $TORCH_OLDEST to $TORCH_NEWEST"
  use_torch "$found"
}

# --- System packages --------------------------------------------------------------------------------

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

apt_usable() {
  command -v apt-get >/dev/null || return 1
  [ "$(id -u)" = 0 ] || { command -v sudo >/dev/null && sudo -n true 2>/dev/null; }
}

apt_install() {
  apt_usable || return 1
  say "installing $* with apt-get"
  as_root apt-get update -qq >.deps/apt.log 2>&1 &&
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" \
      >>.deps/apt.log 2>&1
}

has_header() {
  echo "#include <$1>" | "${CXX:-g++}" -std=c++20 -E -x c++ - >/dev/null 2>&1
}

setup_packages() {
  [ -f .deps/packages ] && return
  local missing=()
  has_header gtest/gtest.h || missing+=(libgtest-dev)
  has_header gmock/gmock.h || missing+=(libgmock-dev)
  has_header benchmark/benchmark.h || missing+=(libbenchmark-dev)
  command -v ninja >/dev/null || missing+=(ninja-build)
  command -v ccache >/dev/null || missing+=(ccache)
  if [ ${#missing[@]} -gt 0 ] && ! apt_install "${missing[@]}"; then
    say "going on without ${missing[*]}; CMake downloads the libraries it needs"
  fi
  touch .deps/packages
}

# --- Formatter and linter ---------------------------------------------------------------------------

# Versions are pinned, since another version would format the same code differently.
setup_lint() {
  if [ ! -x .deps/clang-format ] || [ ! -x .deps/clang-tidy ]; then
    say "installing clang-format $CLANG_FORMAT_VERSION and clang-tidy $CLANG_TIDY_VERSION into .venv"
    pip_install "clang-format==$CLANG_FORMAT_VERSION" "clang-tidy==$CLANG_TIDY_VERSION"
    ln -sf ../.venv/bin/clang-format ../.venv/bin/clang-tidy .deps/
  fi
}

# --- Peers of the benchmarks ------------------------------------------------------------------------

# In a place of its own, since JAX wants other versions of packages than torch.
setup_peers() {
  .venv-peers/bin/python -c 'import jax' 2>/dev/null && return
  say "installing jax $JAX_VERSION into .venv-peers"
  { python3 -m venv .venv-peers && .venv-peers/bin/pip install -qq --disable-pip-version-check \
      --progress-bar off "jax==$JAX_VERSION" "jaxlib==$JAX_VERSION"; } >.deps/peers.log 2>&1 || {
    rm -rf .venv-peers
    say "JAX cannot be installed, so it is left out; .deps/peers.log says why"
  }
}

case "${1:-build}" in
  build) setup_packages; setup_torch ;;
  lint) setup_lint ;;
  peers) setup_peers ;;
  *) fail "unknown argument '$1'; use 'build', 'lint' or 'peers'" ;;
esac
