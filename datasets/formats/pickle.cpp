// A pickle is a program for a machine with a stack and a memo
// (https://github.com/python/cpython/blob/main/Lib/pickletools.py describes the opcodes).
#include "convoy/datasets/formats/pickle.h"

#include <algorithm>
#include <utility>

#include "convoy/kernels/base/check.h"

namespace convoy::data {
namespace {

// A batch of CIFAR-10 has about 30,000 opcodes. Each makes at most one value.
constexpr int kMaxOpcodes = 200'000;
// Of tuples: an array's state is a tuple with the tuple of its shape. Bounds recursion.
constexpr int kMaxDepth = 4;
constexpr std::size_t kMaxRank = 4;  // of arrays

struct Mark {};
struct Tuple;
struct Array : PickledArray {
  bool is_built = false;  // whether it has its shape and its bytes
};
enum class Global : std::uint8_t { reconstruct, ndarray, dtype };
struct ByteType {};  // numpy.dtype('u1')
struct Dictionary;
/// A value on the stack. `monostate` is None.
using Value = std::variant<std::monostate, Mark, bool, std::int64_t, std::string_view, Global, ByteType,
                           std::shared_ptr<Tuple>, std::shared_ptr<PickledList>, std::shared_ptr<Array>,
                           std::shared_ptr<Dictionary>>;
struct Tuple {
  std::vector<Value> items;
  int depth = 1;
};
struct Dictionary {
  std::map<std::string_view, Value> items;
};

class PickleMachine {
 public:
  PickleMachine(std::string_view bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  std::map<std::string_view, PickledValue> run() {
    if (byte() != 0x80 || byte() != 2) refuse("another beginning, expected a pickle of protocol 2");
    for (int count = 0; count < kMaxOpcodes; ++count) {
      at_ = next_;
      const std::uint8_t opcode = byte();
      if (opcode == '.') return result();
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

  void push(Value value) { stack_.push_back(std::move(value)); }
  Value pop() {
    if (stack_.empty()) refuse("an opcode that lacks its operand");
    Value value = std::move(stack_.back());
    stack_.pop_back();
    return value;
  }
  /// Pops a value of type T.
  template <class T>
  T pop_as(const char* expected) {
    Value value = pop();
    T* const found = std::get_if<T>(&value);
    if (found == nullptr) refuse(fmt::format("another operand than {}", expected));
    return std::move(*found);
  }
  /// Removes the values above the last mark, and the mark.
  std::vector<Value> pop_to_mark() {
    const auto mark = std::find_if(stack_.rbegin(), stack_.rend(),
                                   [](const Value& value) { return std::holds_alternative<Mark>(value); });
    if (mark == stack_.rend()) refuse("an opcode that lacks its mark");
    std::vector<Value> values(std::make_move_iterator(mark.base()), std::make_move_iterator(stack_.end()));
    stack_.erase(mark.base() - 1, stack_.end());
    return values;
  }
  std::vector<Value> pop_some(std::size_t count) {
    std::vector<Value> values(count);
    for (std::size_t i = count; i-- > 0;) values[i] = pop();
    return values;
  }

  // ---- The opcodes ----

  void execute(std::uint8_t opcode) {
    switch (opcode) {
      case 'N': return push(std::monostate());
      case 0x88: return push(true);
      case 0x89: return push(false);
      case 'K': return push(std::int64_t{byte()});
      case 'M': return push(std::int64_t{little_endian(2)});
      case 'J': return push(std::int64_t{static_cast<std::int32_t>(little_endian(4))});
      case 'U': return push(take(byte()));
      case 'T': return push(take(little_endian(4)));  // a negative length is larger than any file
      case '(': return push(Mark());
      case ')': return push_tuple({});
      case 0x85: return push_tuple(pop_some(1));
      case 0x86: return push_tuple(pop_some(2));
      case 0x87: return push_tuple(pop_some(3));
      case 't': return push_tuple(pop_to_mark());
      case ']': return push(std::make_shared<PickledList>());
      case 'a': return append(pop_some(1));
      case 'e': return append(pop_to_mark());
      case '}': return push(std::make_shared<Dictionary>());
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

  void push_tuple(std::vector<Value> items) {
    auto tuple = std::make_shared<Tuple>();
    for (const Value& item : items) {
      if (std::holds_alternative<Mark>(item)) refuse("a mark in a tuple");
      if (const auto* inner = std::get_if<std::shared_ptr<Tuple>>(&item))
        tuple->depth = std::max(tuple->depth, (*inner)->depth + 1);
    }
    if (tuple->depth > kMaxDepth) refuse(fmt::format("tuples nested {} deep", tuple->depth));
    tuple->items = std::move(items);
    push(std::move(tuple));
  }

  void append(std::vector<Value> items) {
    const auto list = pop_as<std::shared_ptr<PickledList>>("a list");
    for (const Value& item : items) {
      if (const auto* number = std::get_if<std::int64_t>(&item))
        list->emplace_back(*number);
      else if (const auto* text = std::get_if<std::string_view>(&item))
        list->emplace_back(*text);
      else
        refuse("an element of a list that is neither a number nor a text");
    }
    push(list);
  }

  void set_items(std::vector<Value> items) {
    const auto dictionary = pop_as<std::shared_ptr<Dictionary>>("a dictionary");
    if (items.size() % 2 != 0) refuse("a key without a value");
    for (std::size_t i = 0; i < items.size(); i += 2) {
      const auto* key = std::get_if<std::string_view>(&items[i]);
      if (key == nullptr) refuse("a key that is not a text");
      // It could contain itself.
      if (std::holds_alternative<std::shared_ptr<Dictionary>>(items[i + 1])) refuse("a nested dictionary");
      dictionary->items[*key] = std::move(items[i + 1]);
    }
    push(dictionary);
  }

  void store(std::uint32_t index) {
    if (stack_.empty() || std::holds_alternative<Mark>(stack_.back()))
      refuse("an opcode that lacks its operand");
    memo_[index] = stack_.back();
  }
  void recall(std::uint32_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) refuse(fmt::format("a reference to value {}, which is not stored", index));
    push(found->second);
  }

  void push_global() {
    const std::string_view module = line(), function = line();
    if (module == "numpy.core.multiarray" && function == "_reconstruct") return push(Global::reconstruct);
    if (module == "numpy" && function == "ndarray") return push(Global::ndarray);
    if (module == "numpy" && function == "dtype") return push(Global::dtype);
    refuse("a class or a function other than those of NumPy's arrays");
  }

  /// _reconstruct(ndarray, (0,), 'b') makes an array without contents; dtype('u1', …) a type.
  void reduce() {
    const auto arguments = pop_as<std::shared_ptr<Tuple>>("arguments");
    const auto function = pop_as<Global>("a function");
    if (function == Global::reconstruct) return push(std::make_shared<Array>());
    const auto* type =
        arguments->items.empty() ? nullptr : std::get_if<std::string_view>(&arguments->items.front());
    if (function != Global::dtype || type == nullptr || *type != "u1")
      refuse("an array of another type than u1");
    push(ByteType());
  }

  /// Sets the state of an array: (version, shape, type, is column-major, bytes). That of u1 says nothing new.
  void build() {
    const auto state = pop_as<std::shared_ptr<Tuple>>("a state");
    Value object = pop();
    if (std::holds_alternative<ByteType>(object)) return push(object);
    auto* const array = std::get_if<std::shared_ptr<Array>>(&object);
    const std::vector<Value>& items = state->items;
    if (array == nullptr || (*array)->is_built || items.size() != 5) refuse("a state of something unknown");
    const auto* shape = std::get_if<std::shared_ptr<Tuple>>(&items[1]);
    const auto* column_major = std::get_if<bool>(&items[3]);
    const auto* contents = std::get_if<std::string_view>(&items[4]);
    if (shape == nullptr || !std::holds_alternative<ByteType>(items[2]) || column_major == nullptr ||
        *column_major || contents == nullptr)
      refuse("an array that is not of u1 in row-major order");
    if ((*shape)->items.size() > kMaxRank) refuse(fmt::format("an array of {} axes", (*shape)->items.size()));
    std::uint64_t count = 1;
    for (const Value& axis : (*shape)->items) {
      const auto* size = std::get_if<std::int64_t>(&axis);
      if (size == nullptr || *size < 0) refuse("an array with an invalid size");
      (*array)->shape.push_back(*size);
      count *= static_cast<std::uint64_t>(*size);  // both factors have at most 32 bits
      if (count > contents->size()) break;
    }
    if (count != contents->size())
      refuse(fmt::format("an array of another shape than its {} bytes", contents->size()));
    (*array)->bytes = *contents;
    (*array)->is_built = true;
    push(object);
  }

  std::map<std::string_view, PickledValue> result() {
    const auto dictionary = pop_as<std::shared_ptr<Dictionary>>("a dictionary");
    if (!stack_.empty()) refuse("an end with values left over");
    std::map<std::string_view, PickledValue> values;
    for (auto& [key, value] : dictionary->items) {
      PickledValue& to = values[key];
      if (const auto* number = std::get_if<std::int64_t>(&value)) to = *number;
      if (const auto* text = std::get_if<std::string_view>(&value)) to = *text;
      if (const auto* list = std::get_if<std::shared_ptr<PickledList>>(&value)) to = *list;
      if (const auto* array = std::get_if<std::shared_ptr<Array>>(&value)) to = PickledArray(**array);
    }
    return values;
  }

  std::string_view bytes_;
  const std::string& name_;
  std::size_t next_ = 0;  // position of the next byte
  std::size_t at_ = 0;    // position of the current opcode
  std::vector<Value> stack_;
  std::map<std::uint32_t, Value> memo_;
};

}  // namespace

std::map<std::string_view, PickledValue> parse_pickle(std::string_view bytes, const std::string& name) {
  return PickleMachine(bytes, name).run();
}

}  // namespace convoy::data
