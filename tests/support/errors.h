// Expectations about errors.
#pragma once

#include <gtest/gtest.h>

#include <string>

namespace convoy::testing {

/// what() of the E that `action` throws; "" (and a failed test) where it throws nothing or something else.
template <class E, class F>
std::string message_of(F&& action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another type of error: " << error.what();
    return "";
  }
  ADD_FAILURE() << "no error";
  return "";
}

}  // namespace convoy::testing
