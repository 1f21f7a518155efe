#!/usr/bin/env bash
# scripts/lint.sh [--all | --format | --words | FILE…]: checks words (scripts/check_words.py), clang-format and clang-tidy
# over the given files, over those that differ from the main branch, or over all (--all). --format and --words run that
# check alone, over all files.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/lib.sh"
cd "$root"

sources() { git ls-files --cached --others --exclude-standard -- "$@" | sort -u; }
tidy=true
files=()
case ${1:-} in
  --all | --format)
    [[ $1 == --format ]] && tidy=false
    mapfile -t files < <(sources '*.h' '*.cpp' '*.cu')
    ;;
  --words) exec python3 -B scripts/check_words.py ;;
  -h | --help)
    sed -n '2,4s/^# //p' "${BASH_SOURCE[0]}"
    exit 0
    ;;
  '')
    base=$(git merge-base HEAD origin/HEAD 2>/dev/null || git rev-parse HEAD)
    mapfile -t files < <({ git diff --name-only --diff-filter=d "$base"; git ls-files --others --exclude-standard; } |
      grep -E '\.(h|cpp|cu)$' | sort -u)
    ;;
  *) files=("$@") ;;
esac
((${#files[@]} == 0)) && exit 0

python3 -B scripts/check_words.py "${files[@]}"
command -v clang-format >/dev/null || die "no clang-format; install the package of that name"
clang-format --dry-run --Werror "${files[@]}"
$tidy || exit 0

command -v clang-tidy >/dev/null || die "no clang-tidy; install the package of that name"
[[ -f build/release/compile_commands.json ]] || build release
mapfile -t units < <(printf '%s\n' "${files[@]}" | grep '\.cpp$' | grep -v -e '/cuda_' || true)
((${#units[@]} == 0)) && exit 0
printf '%s\0' "${units[@]}" | xargs -0 -n 1 -P "$(jobs)" clang-tidy --quiet -p build/release
