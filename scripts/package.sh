#!/usr/bin/env bash
# scripts/package.sh [--no-check]: builds what users install, for CPUs, into build/packages, and tests it:
#
#   convoy_0.1.0_amd64.deb                              a Debian package, from the preset package
#   convoy-0.1.0-linux-x86_64.tar.xz                    a relocatable archive, from the preset archive, without MPI
#   convoy-0.1.0-py3-none-manylinux_2_36_x86_64.whl     the same as a Python wheel, with the package convoy
#   SHA256SUMS
#
# The tests (scripts/packaging/check.py) install each in a new root file system of this machine's distribution, train on
# MNIST there, and run the second stage of scripts/docker/Dockerfile with the Debian package. They need root, mmdebstrap
# and a mirror of the distribution. --no-check leaves them out. CONVOY_DATA=DIR: DIR/mnist has MNIST; without it the
# trainings are on generated images.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/lib.sh"

check=true
for argument in "$@"; do
  case $argument in
    -h | --help)
      sed -n '2,/^$/{/^#/!q;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    --no-check) check=false ;;
    *)
      say "package.sh: found '$argument', expected --no-check or nothing"
      exit 2
      ;;
  esac
done
if $check; then
  ((EUID == 0)) || die "the tests of the packages need root; --no-check leaves them out"
  command -v mmdebstrap >/dev/null || die "the tests of the packages need mmdebstrap; install the package of that name, or --no-check"
fi
"$root/scripts/setup.sh" --quiet
if [[ -z ${CONVOY_DATA:-} && -d $root/data ]]; then export CONVOY_DATA=$root/data; fi
# The times of files in the packages are that of the commit.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct)}
export SOURCE_DATE_EPOCH

packages=$root/build/packages
rm -rf "$packages"
build package
quietly "$root/build/package.cpack.log" "packing the Debian package" \
  cpack --config "$root/build/package/CPackConfig.cmake" -B "$packages"
rm -rf "$packages/_CPack_Packages"
build archive
rm -rf "$root/build/archive.prefix"
quietly "$root/build/archive.install.log" "installing archive" \
  cmake --install "$root/build/archive" --strip --prefix "$root/build/archive.prefix"
version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$root/build/archive/CMakeCache.txt")
quietly "$root/build/bundle.log" "packing the archive and the wheel" \
  python3 -B "$root/scripts/packaging/bundle.py" "$root/build/archive.prefix" --version "$version" --out "$packages"
(cd "$packages" && sha256sum -- * >SHA256SUMS)
$check && quietly "$root/build/packages.check.log" "testing the packages" \
  python3 -B "$root/scripts/packaging/check.py" "$packages" --work "$root/build/packages.check"
minutes
ls -l "$packages" >&2
$check && grep '^measured: ' "$root/build/packages.check.log" >&2
exit 0
