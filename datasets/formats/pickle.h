// A reader of the pickles in which CIFAR-10 is distributed for Python: a dictionary of numbers, texts, lists
// of them and NumPy arrays of u8, in protocol 2 as Python 2 writes it. Executes nothing: any other opcode,
// class or function is refused.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace convoy::data {

/// A value of a pickle. Copies share their items, because a pickle may name a value several times.
struct PickledValue {
  enum class Kind : std::uint8_t {
    none,
    mark,
    boolean,
    number,
    text,
    function,
    byte_type,  // numpy.dtype('u1')
    tuple,
    list,  // of numbers and texts
    dictionary,
    array,  // of u8, in row-major order
  };
  Kind kind = Kind::none;
  std::int64_t number = 0;     // of a number or a boolean; the depth of a tuple of tuples
  std::string_view text = {};  // also the name of a function
  /// The elements of a tuple or a list; each key of a dictionary and its value; the size of each axis of an
  /// array, and then its bytes, as a text of the size that is their product.
  std::shared_ptr<std::vector<PickledValue>> items = {};

  /// Returns the value of a key of a dictionary; null if there is none.
  const PickledValue* find(std::string_view key) const;
};

/// Parses a pickle and returns its dictionary. Texts and arrays refer to `bytes`, which must outlive them.
/// The number of opcodes is limited, and with it the memory. Throws DataError, which starts with `name` and
/// gives the position, if the pickle is truncated or has other contents.
PickledValue parse_pickle(std::string_view bytes, const std::string& name);

}  // namespace convoy::data
