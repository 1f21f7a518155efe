// A parser of the subset of YAML that Kubernetes manifests need.
#pragma once

#include <string>

#include "tests/apps/programs.h"

namespace convoy::testing {

/// Parses maps and lists by indentation, lists in brackets, plain and "quoted" text, literal blocks in lists, integers,
/// true and false, and comments on lines of their own. Throws std::runtime_error with the line number for anything else.
Json parse_yaml(const std::string& text);

}  // namespace convoy::testing
