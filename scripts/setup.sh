#!/usr/bin/env bash
# scripts/setup.sh [--quiet] [--train]: installs what building and testing needs, on Debian 12, Ubuntu 24.04 and later.
# Does nothing where all is there. --train: only what the programs of scripts/train.sh need. --quiet: says nothing if
# nothing is missing.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/lib.sh"

packages=(
  g++ cmake ninja-build ca-certificates                                      # tools
  libdnnl-dev libopenblas-openmp-dev                                         # convolutions and products
  libcli11-dev nlohmann-json3-dev libfmt-dev libxxhash-dev                   # the programs
  libopenmpi-dev openmpi-bin                                                 # ranks
  libarchive-dev libcurl4-openssl-dev libssl-dev zlib1g-dev libstb-dev       # data sets
  libjpeg-dev libwebp-dev                                                    # images
  node-d3                                                                    # the pages of convoy-report
)
development=(
  git ccache pkg-config                                                      # tools
  libgtest-dev libgmock-dev libbenchmark-dev python3-jsonschema              # tests and benchmarks
  python3-numpy                                                              # the Python package, and the pages
  doxygen                                                                    # the reference of the public headers
  dpkg-dev file python3-venv                                                 # the Debian package that cpack makes; the wheel
)

quiet=false train=false
for argument in "$@"; do
  case $argument in
    --quiet) quiet=true ;;
    --train) train=true ;;
    -h | --help)
      say "usage: scripts/setup.sh [--quiet] [--train]   installs, where missing: ${packages[*]}; without --train also: ${development[*]}"
      exit 0
      ;;
    *)
      say "setup.sh: found '$argument', expected --quiet, --train or nothing"
      exit 2
      ;;
  esac
done
$train || packages+=("${development[@]}")

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  # Another system: whether its own packages suffice, CMake finds out.
  $quiet || say "setup.sh: no apt here. Convoy needs what these Debian packages hold: ${packages[*]}"
  exit 0
fi

installed=$(dpkg-query --show --showformat '${db:Status-Status} ${Package}\n' "${packages[@]}" 2>/dev/null || true)
missing=()
for package in "${packages[@]}"; do
  grep -qx "installed $package" <<<"$installed" || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  $quiet || say "setup.sh: all ${#packages[@]} packages are installed"
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  command -v sudo >/dev/null || die "not root and no sudo; ask for: apt-get install ${missing[*]}"
  as_root=(sudo)
fi

say "setup.sh: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt_get() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -y -q -o Dpkg::Use-Pty=0 -o Acquire::Retries=2 "$@"
}
install() { apt_get update && apt_get install --no-install-recommends "${missing[@]}"; }
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! install >"$log" 2>&1; then
  say "setup.sh: that failed; trying once more"
  sleep 5
  if ! install >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    die "apt-get could not install: ${missing[*]}"
  fi
fi
