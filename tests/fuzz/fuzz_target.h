// Parsers of untrusted bytes, as functions that take any input.
#pragma once

#include <ostream>
#include <span>
#include <string>
#include <vector>

namespace convoy::testing {

/// A parser and valid inputs for it. It may refuse an input with the error that it documents. Any other
/// exception, a crash, and an endless loop are bugs.
struct FuzzTarget {
  const char* name;
  void (*parse)(const std::string& bytes);
  std::vector<std::string> (*valid_inputs)();
};

inline void PrintTo(const FuzzTarget& target, std::ostream* out) { *out << target.name; }

/// Returns all targets.
std::span<const FuzzTarget> fuzz_targets();

}  // namespace convoy::testing
