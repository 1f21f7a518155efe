#!/usr/bin/env bash
# scripts/lint.sh [--all | --checks | --format | --words | FILE…]: checks words (scripts/check_words.py), clang-format and
# clang-tidy over the given files, over those that differ from the main branch, or over all (--all). --format and --words
# run that check alone, over all files. --checks: words, the documentation (quoted code, links, the reference of the public
# headers) and, where clang-format is installed, the layout; and warns of long files and of directories that have many
# sources or no README. Continuous integration runs it.
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
  --checks)
    sources '*.h' '*.cpp' '*.cu' | xargs wc -l |
      awk '$2 ~ /\// && $1 > 450 {print "warning: " $2 ": " $1 " lines, more than 450"}'
    for directory in $(sources '*.h' '*.cpp' '*.cu' | xargs -n 1 dirname | sort | uniq -c | awk '$1 > 1 {print $2 "," $1}'); do
      count=${directory#*,} directory=${directory%,*}
      ((count > 30)) && say "warning: $directory: $count sources, more than 30"
      [[ -f $directory/README.md || ($directory == tests/* && -f $directory/../README.md) || $directory == learn/exercises/* ]] || say "warning: $directory: no README.md"
    done
    for check in words quotes reference_filter; do python3 -B tests/architecture/${check}_test.py; done
    python3 -B learn/tests/book_test.py
    if command -v doxygen >/dev/null; then
      cmake -S . -B build/lint -DCONVOY_COMPONENTS="engine;comm;models;datasets" -DCONVOY_PROGRAMS=OFF -DCONVOY_TESTS=OFF
      cmake --build build/lint --target reference
    fi
    command -v clang-format >/dev/null || exit 0
    exec "${BASH_SOURCE[0]}" --format
    ;;
  -h | --help)
    sed -n '2,6s/^# //p' "${BASH_SOURCE[0]}"
    exit 0
    ;;
  '')
    base=$(git merge-base HEAD origin/HEAD 2>/dev/null || git rev-parse HEAD)
    mapfile -t files < <({ git diff --name-only --diff-filter=d "$base"; git ls-files --others --exclude-standard; } |
      grep -E '\.(h|cpp|cu)$' | sort -u)
    ;;
  -*) die "found '$1', expected --all, --checks, --format, --words or files" ;;
  *) files=("$@") ;;
esac
((${#files[@]} == 0)) && exit 0

$tidy && python3 -B scripts/check_words.py "${files[@]}"
command -v clang-format >/dev/null || die "no clang-format; install the package of that name"
clang-format --dry-run --Werror "${files[@]}"
$tidy || exit 0

command -v clang-tidy >/dev/null || die "no clang-tidy; install the package of that name"
[[ -f build/release/compile_commands.json ]] || build release
mapfile -t units < <(printf '%s\n' "${files[@]}" | grep '\.cpp$' | grep -v -e '/cuda_' || true)
((${#units[@]} == 0)) && exit 0
printf '%s\0' "${units[@]}" | xargs -0 -n 1 -P "$(jobs)" clang-tidy --quiet -p build/release
