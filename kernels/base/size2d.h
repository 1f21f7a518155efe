// A pair of numbers for the two axes of images.
#pragma once

#include <compare>
#include <string>

namespace convoy {

/// A number for the rows and one for the columns of images, such as the height and the width of a window. An
/// integer converts to a pair of it: {.stride = 2} is {.stride = {2, 2}}.
struct Size2d {
  int height;  // of the rows
  int width;   // of the columns

  /// Makes a pair of equal numbers.
  // NOLINTNEXTLINE: an integer converts implicitly.
  constexpr Size2d(int both) : height(both), width(both) {}
  /// Makes a pair of two numbers.
  constexpr Size2d(int of_rows, int of_columns) : height(of_rows), width(of_columns) {}
  /// Returns "3" for equal numbers, otherwise "3x5".
  std::string text() const {
    return std::to_string(height) + (height == width ? "" : "x" + std::to_string(width));
  }
  /// Compares the heights, then the widths. Equality is written out, since nvcc 13 does not emit the default.
  friend constexpr auto operator<=>(const Size2d&, const Size2d&) = default;
  /// Compares both numbers.
  friend constexpr bool operator==(const Size2d& a, const Size2d& b) {
    return a.height == b.height && a.width == b.width;
  }
};

}  // namespace convoy
