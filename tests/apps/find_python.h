// A Python that has the modules that a test needs.
#pragma once

#include <cstdlib>
#include <sstream>
#include <string>

#include "tests/testing/support/process.h"

namespace convoy::testing {

/// Returns the first Python that has `modules`, such as "onnx, onnxruntime": one of those that
/// CONVOY_PYTHONS names, separated by colons, or /usr/bin/python3. Returns an empty string if there is none.
/// Does not import them: a module that is installed and does not work is an error of the test.
inline std::string find_python(const std::string& modules) {
  const char* const named = std::getenv("CONVOY_PYTHONS");
  std::istringstream names((named != nullptr ? named + std::string(":") : "") + "/usr/bin/python3");
  for (std::string python; std::getline(names, python, ':');)
    if (run_program({python, "-c",
                     "import importlib.util, sys\n"
                     "sys.exit(not all(importlib.util.find_spec(name) for name in sys.argv[1].split(', ')))",
                     modules})
            .exit_code == 0)
      return python;
  return "";
}

/// Returns the reason to skip a test where find_python() finds none.
inline std::string no_python(const std::string& modules) {
  return "needs a Python that has " + modules + "; CONVOY_PYTHONS names interpreters, separated by colons";
}

}  // namespace convoy::testing
