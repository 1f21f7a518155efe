// A helper that expects an exception and returns its message.
#pragma once

#include <gtest/gtest.h>

#include <string>

namespace convoy::testing {

/// Calls `action` and returns the what() of the E that it throws. Returns "" and fails the test if it throws
/// nothing or another type.
template <class E, class F>
std::string message_of(F&& action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "threw another type: " << error.what();
    return "";
  }
  ADD_FAILURE() << "threw nothing";
  return "";
}

}  // namespace convoy::testing
