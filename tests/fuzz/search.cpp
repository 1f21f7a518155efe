// The program of libFuzzer, which searches for inputs that break a parser: scripts/fuzz.sh.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/fuzz/fuzz_target.h"

namespace {

/// Returns the target that the environment variable CONVOY_FUZZ_TARGET names.
const convoy::testing::FuzzTarget& chosen_target() {
  const char* const name = std::getenv("CONVOY_FUZZ_TARGET");
  for (const convoy::testing::FuzzTarget& target : convoy::testing::fuzz_targets())
    if (name != nullptr && std::string(name) == target.name) return target;
  std::fprintf(stderr, "CONVOY_FUZZ_TARGET: found '%s', expected one of", name == nullptr ? "" : name);
  for (const convoy::testing::FuzzTarget& target : convoy::testing::fuzz_targets())
    std::fprintf(stderr, " %s", target.name);
  std::fprintf(stderr, "\n");
  std::exit(2);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const convoy::testing::FuzzTarget& target = chosen_target();
  target.parse({reinterpret_cast<const char*>(data), size});
  return 0;
}
