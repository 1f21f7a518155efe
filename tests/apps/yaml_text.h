// As much of YAML as a manifest needs.
#pragma once

#include <string>

#include "tests/apps/programs.h"

namespace convoy::testing {

/// Maps and lists by indentation, lists in brackets, plain and "quoted" text, comments of whole lines.
/// Numbers become numbers, as YAML has it. std::runtime_error, with the line, for all else.
Json parse_yaml(const std::string& text);

}  // namespace convoy::testing
