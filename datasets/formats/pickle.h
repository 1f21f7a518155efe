// A reader of the pickles in which CIFAR-10 is distributed for Python: a dictionary of numbers, texts, lists
// of them and NumPy arrays of u8, in protocol 2 as Python 2 writes it. Executes nothing: any other opcode,
// class or function is refused.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace convoy::data {

/// A NumPy array of u8 in row-major order.
struct PickledArray {
  std::vector<std::int64_t> shape;  // one size per axis
  std::string_view bytes;           // as many as the product of the shape
};

/// A list of numbers and texts.
using PickledList = std::vector<std::variant<std::int64_t, std::string_view>>;

/// A value of the dictionary. `monostate` is a value that no reader uses, such as None. Lists are shared,
/// because a pickle may name one several times.
using PickledValue = std::variant<std::monostate, std::int64_t, std::string_view,
                                  std::shared_ptr<const PickledList>, PickledArray>;

/// Parses a pickle and returns its dictionary. Texts and arrays refer to `bytes`, which must outlive them.
/// The number of opcodes is limited, and with it the memory. Throws DataError, which starts with `name` and
/// gives the position, if the pickle is truncated or has other contents.
std::map<std::string_view, PickledValue> parse_pickle(std::string_view bytes, const std::string& name);

}  // namespace convoy::data
