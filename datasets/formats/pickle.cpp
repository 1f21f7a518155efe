// A pickle is a program for a machine with a stack and a memo
// (https://github.com/python/cpython/blob/main/Lib/pickletools.py describes the opcodes).
#include "convoy/datasets/formats/parsers.h"

#include <algorithm>
#include <map>
#include <utility>

#include "convoy/kernels/base/check.h"

namespace convoy::data {
namespace {

using Kind = PickledValue::Kind;
using Values = std::vector<PickledValue>;

// A batch of CIFAR-10 has about 30,000 opcodes, the training set of CIFAR-100 200,000. Each makes at most one value.
constexpr int kMaxOpcodes = 1'000'000;
// Of tuples: an array's state is a tuple with the tuple of its shape. Bounds recursion.
constexpr int kMaxDepth = 4;
constexpr std::size_t kMaxRank = 4;  // of arrays

class PickleMachine {
 public:
  PickleMachine(std::string_view bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  PickledValue run() {
    if (byte() != 0x80 || byte() != 2) refuse("another beginning, expected a pickle of protocol 2");
    for (int count = 0; count < kMaxOpcodes; ++count) {
      at_ = next_;
      const std::uint8_t opcode = byte();
      if (opcode == '.') {
        PickledValue result = pop(Kind::dictionary, "a dictionary");
        if (!stack_.empty()) refuse("an end with values left over");
        return result;
      }
      execute(opcode);
    }
    refuse(fmt::format("more than {} opcodes", kMaxOpcodes));
  }

 private:
  [[noreturn]] void refuse(const std::string& found) const {
    fail<DataError>(
        "{}: found {} at byte {}; expected a batch of CIFAR-10 for Python as in cifar-10-python.tar.gz",
        name_, found, at_);
  }

  // ---- The bytes ----

  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size() - next_)
      refuse(fmt::format("{} bytes up to the end of the file, where {} are announced", bytes_.size() - next_,
                         count));
    const std::string_view taken = bytes_.substr(next_, static_cast<std::size_t>(count));
    next_ += taken.size();
    return taken;
  }
  std::uint8_t byte() { return static_cast<std::uint8_t>(take(1).front()); }
  std::uint32_t little_endian(int size) {
    std::uint32_t value = 0;
    for (int i = 0; i < size; ++i) value |= std::uint32_t{byte()} << (8 * i);
    return value;
  }
  std::string_view line() {
    constexpr std::size_t kMaxLine = 64;  // the longest name has 21 characters
    const std::size_t length = bytes_.substr(next_, kMaxLine).find('\n');
    if (length == std::string_view::npos) refuse("a long name of a module or a class");
    return take(length + 1).substr(0, length);
  }

  // ---- The stack ----

  void push(PickledValue value) { stack_.push_back(std::move(value)); }
  void push_number(std::int64_t number) { push({.kind = Kind::number, .number = number}); }
  void push_text(std::string_view text) { push({.kind = Kind::text, .text = text}); }
  void push_empty(Kind kind) { push({.kind = kind, .items = std::make_shared<Values>()}); }
  PickledValue pop() {
    if (stack_.empty()) refuse("an opcode that lacks its operand");
    PickledValue value = std::move(stack_.back());
    stack_.pop_back();
    return value;
  }
  PickledValue pop(Kind kind, const char* expected) {
    PickledValue value = pop();
    if (value.kind != kind) refuse(fmt::format("another operand than {}", expected));
    return value;
  }
  /// Removes the values above the last mark, and the mark.
  Values pop_to_mark() {
    const auto mark = std::find_if(stack_.rbegin(), stack_.rend(),
                                   [](const PickledValue& value) { return value.kind == Kind::mark; });
    if (mark == stack_.rend()) refuse("an opcode that lacks its mark");
    Values values(std::make_move_iterator(mark.base()), std::make_move_iterator(stack_.end()));
    stack_.erase(mark.base() - 1, stack_.end());
    return values;
  }
  Values pop_some(std::size_t count) {
    Values values(count);
    for (std::size_t i = count; i-- > 0;) values[i] = pop();
    return values;
  }

  // ---- The opcodes ----

  void execute(std::uint8_t opcode) {
    switch (opcode) {
      case 'N': return push({});
      case 0x88: return push({.kind = Kind::boolean, .number = 1});
      case 0x89: return push({.kind = Kind::boolean});
      case 'K': return push_number(byte());
      case 'M': return push_number(little_endian(2));
      case 'J': return push_number(static_cast<std::int32_t>(little_endian(4)));
      case 'U': return push_text(take(byte()));
      case 'T': return push_text(take(little_endian(4)));  // a negative length is larger than any file
      case '(': return push({.kind = Kind::mark});
      case ')': return push_tuple({});
      case 0x85: return push_tuple(pop_some(1));
      case 0x86: return push_tuple(pop_some(2));
      case 0x87: return push_tuple(pop_some(3));
      case 't': return push_tuple(pop_to_mark());
      case ']': return push_empty(Kind::list);
      case 'a': return append(pop_some(1));
      case 'e': return append(pop_to_mark());
      case '}': return push_empty(Kind::dictionary);
      case 's': return set_items(pop_some(2));
      case 'u': return set_items(pop_to_mark());
      case 'q': return store(byte());
      case 'r': return store(little_endian(4));
      case 'h': return recall(byte());
      case 'j': return recall(little_endian(4));
      case 'c': return push_global();
      case 'R': return reduce();
      case 'b': return build();
      default: refuse(fmt::format("opcode 0x{:02x}", opcode));
    }
  }

  void push_tuple(Values items) {
    std::int64_t depth = 1;
    for (const PickledValue& item : items) {
      if (item.kind == Kind::mark) refuse("a mark in a tuple");
      if (item.kind == Kind::dictionary) refuse("a dictionary in a tuple");  // which it could contain
      if (item.kind == Kind::tuple) depth = std::max(depth, item.number + 1);
    }
    if (depth > kMaxDepth) refuse(fmt::format("tuples nested {} deep", depth));
    push({.kind = Kind::tuple, .number = depth, .items = std::make_shared<Values>(std::move(items))});
  }

  void append(const Values& items) {
    PickledValue list = pop(Kind::list, "a list");
    for (const PickledValue& item : items)
      if (item.kind != Kind::number && item.kind != Kind::text)
        refuse("an element of a list that is neither a number nor a text");
    list.items->insert(list.items->end(), items.begin(), items.end());
    push(std::move(list));
  }

  void set_items(const Values& items) {
    PickledValue dictionary = pop(Kind::dictionary, "a dictionary");
    if (items.size() % 2 != 0) refuse("a key without a value");
    for (std::size_t i = 0; i < items.size(); i += 2) {
      if (items[i].kind != Kind::text) refuse("a key that is not a text");
      // It could contain itself.
      if (items[i + 1].kind == Kind::dictionary) refuse("a nested dictionary");
    }
    dictionary.items->insert(dictionary.items->end(), items.begin(), items.end());
    push(std::move(dictionary));
  }

  void store(std::uint32_t index) {
    if (stack_.empty() || stack_.back().kind == Kind::mark) refuse("an opcode that lacks its operand");
    memo_[index] = stack_.back();
  }
  void recall(std::uint32_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) refuse(fmt::format("a reference to value {}, which is not stored", index));
    push(found->second);
  }

  void push_global() {
    const std::string_view module = line(), function = line();
    const bool is_known = (module == "numpy.core.multiarray" && function == "_reconstruct") ||
                          (module == "numpy" && (function == "ndarray" || function == "dtype"));
    if (!is_known) refuse("a class or a function other than those of NumPy's arrays");
    push({.kind = Kind::function, .text = function});
  }

  /// _reconstruct(ndarray, (0,), 'b') makes an array without contents; dtype('u1', …) a type.
  void reduce() {
    const PickledValue arguments = pop(Kind::tuple, "arguments");
    const PickledValue function = pop(Kind::function, "a function");
    if (function.text == "_reconstruct") return push_empty(Kind::array);
    if (function.text != "dtype" || arguments.items->empty() || arguments.items->front().text != "u1")
      refuse("an array of another type than u1");
    push({.kind = Kind::byte_type});
  }

  /// Sets the state of an array: (version, shape, type, is column-major, bytes). That of u1 says nothing new.
  void build() {
    const Values state = *pop(Kind::tuple, "a state").items;
    PickledValue array = pop();
    if (array.kind == Kind::byte_type) return push(std::move(array));
    if (array.kind != Kind::array || !array.items->empty() || state.size() != 5)
      refuse("a state of something unknown");
    const PickledValue &shape = state[1], &is_column_major = state[3], &contents = state[4];
    if (shape.kind != Kind::tuple || state[2].kind != Kind::byte_type ||
        is_column_major.kind != Kind::boolean || is_column_major.number != 0 || contents.kind != Kind::text)
      refuse("an array that is not of u1 in row-major order");
    if (shape.items->size() > kMaxRank) refuse(fmt::format("an array of {} axes", shape.items->size()));
    std::uint64_t count = 1;
    for (const PickledValue& size : *shape.items) {
      if (size.kind != Kind::number || size.number < 0) refuse("an array with an invalid size");
      count *= static_cast<std::uint64_t>(size.number);  // both factors have at most 32 bits
      if (count > contents.text.size()) break;
    }
    if (count != contents.text.size())
      refuse(fmt::format("an array of another shape than its {} bytes", contents.text.size()));
    *array.items = *shape.items;
    array.items->push_back(contents);
    push(std::move(array));
  }

  std::string_view bytes_;
  const std::string& name_;
  std::size_t next_ = 0;  // position of the next byte
  std::size_t at_ = 0;    // position of the current opcode
  Values stack_;
  std::map<std::uint32_t, PickledValue> memo_;
};

}  // namespace

const PickledValue* PickledValue::find(std::string_view key) const {
  for (std::size_t i = items->size(); i >= 2; i -= 2)  // the last value of a key counts
    if ((*items)[i - 2].text == key) return &(*items)[i - 1];
  return nullptr;
}

PickledValue parse_pickle(std::string_view bytes, const std::string& name) {
  return PickleMachine(bytes, name).run();
}

}  // namespace convoy::data
