#include "convoy/engine/io/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "convoy/kernels/base/check.h"

namespace convoy::io {
namespace {

/// A handler of parser events that accepts only the structure of a header:
/// {"__metadata__": {string: string…}, name: {"dtype": string, "shape": [n…], "data_offsets": [n, n]}…}.
/// Anything else sets `problem` and stops the parser.
class HeaderHandler final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::string problem;
  SafetensorsHeader header;

  bool null() override { return reject("null"); }
  bool boolean(bool) override { return reject("a boolean"); }
  bool number_integer(number_integer_t) override { return reject("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return reject("a number that is not a 64-bit integer");
  }
  bool binary(binary_t&) override { return reject("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (state_ != State::shape && state_ != State::offsets) return reject("a number");
    const std::size_t max_numbers = state_ == State::shape ? std::size_t{Shape::kMaxRank} : 2;
    if (numbers_.size() == max_numbers) return reject(fmt::format("more than {} numbers", max_numbers));
    numbers_.push_back(value);
    return true;
  }

  bool string(string_t& value) override {
    if (state_ == State::metadata) {
      header.metadata[key_] = std::move(value);
      return true;
    }
    if (state_ != State::tensor || key_ != "dtype") return reject("a string");
    entry_.dtype = std::move(value);
    return true;
  }

  bool start_object(std::size_t) override {
    if (state_ == State::start) {
      state_ = State::top;
    } else if (state_ == State::top) {
      state_ = key_ == "__metadata__" ? State::metadata : State::tensor;
      entry_ = {};
      entry_.name = key_;
      inner_keys_.clear();
    } else {
      return reject("an object");
    }
    return true;
  }

  bool key(string_t& value) override {
    std::set<std::string>& seen = state_ == State::top ? names_ : inner_keys_;
    if (!seen.insert(value).second) return fail_with(fmt::format("{} occurs twice", printable(value)));
    if (state_ == State::tensor && value != "dtype" && value != "shape" && value != "data_offsets")
      return fail_with(fmt::format("tensor {}: unknown key {}", printable(entry_.name), printable(value)));
    key_ = std::move(value);
    return true;
  }

  bool end_object() override {
    if (state_ == State::tensor) {
      if (inner_keys_.size() != 3)
        return fail_with(
            fmt::format("tensor {}: expected dtype, shape and data_offsets", printable(entry_.name)));
      header.entries.push_back(std::move(entry_));
    }
    state_ = state_ == State::top ? State::end : State::top;
    return true;
  }

  bool start_array(std::size_t) override {
    if (state_ != State::tensor || key_ == "dtype") return reject("an array");
    state_ = key_ == "shape" ? State::shape : State::offsets;
    numbers_.clear();
    return true;
  }

  bool end_array() override {
    if (state_ == State::offsets) {
      if (numbers_.size() != 2)
        return fail_with(fmt::format("tensor {}: data_offsets must be two numbers", printable(entry_.name)));
      entry_.begin = numbers_[0];
      entry_.end = numbers_[1];
    } else if (!set_shape()) {
      return fail_with(fmt::format("tensor {}: a size of the shape is too large", printable(entry_.name)));
    }
    state_ = State::tensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    return fail_with(fmt::format("the header is not JSON at byte {}", position));
  }

 private:
  enum class State { start, top, tensor, shape, offsets, metadata, end };

  bool fail_with(std::string text) {
    problem = std::move(text);
    return false;
  }
  bool reject(std::string_view found) {
    return fail_with(fmt::format("the header has {} at {}, which the format does not allow", found,
                                 key_.empty() ? "its start" : printable(key_)));
  }
  bool set_shape() {
    std::vector<std::int64_t> sizes;
    for (const std::uint64_t number : numbers_) {
      if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return false;
      sizes.push_back(static_cast<std::int64_t>(number));
    }
    entry_.shape = Shape(std::span<const std::int64_t>(sizes));
    return true;
  }

  State state_ = State::start;
  std::string key_;                           // the last key
  std::set<std::string> names_, inner_keys_;  // keys seen so far
  std::vector<std::uint64_t> numbers_;        // of the current array
  SafetensorsEntry entry_;
};

/// Returns the size of a tensor in bytes; nullopt if it exceeds the range of int64.
std::optional<std::uint64_t> byte_count(const Shape& shape, std::size_t element_size) {
  std::uint64_t bytes = element_size;
  for (const std::int64_t axis : shape.sizes()) {
    const auto size = static_cast<std::uint64_t>(axis);
    // The limit is int64, the type of Shape::numel().
    if (size != 0 && bytes > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) / size)
      return std::nullopt;
    bytes *= size;
  }
  return bytes;
}

}  // namespace

std::size_t safetensors_element_size(std::string_view dtype) {
  if (dtype == "F64" || dtype == "I64") return 8;
  if (dtype == "F32" || dtype == "I32") return 4;
  if (dtype == "F16" || dtype == "BF16") return 2;
  if (dtype == "U8") return 1;
  return 0;
}

SafetensorsHeader parse_safetensors_header(const std::filesystem::path& path, std::string_view json,
                                           std::uint64_t data_bytes) {
  HeaderHandler handler;
  // Writers of the format may pad with spaces after the object, but write nothing before it.
  if (json.empty() || json.front() != '{')
    fail<CheckpointError>("{}: not a safetensors file (its header does not begin with '{{')", path.string());
  if (!nlohmann::json::sax_parse(json, &handler))
    fail<CheckpointError>("{}: {}", path.string(), handler.problem);

  SafetensorsHeader header = std::move(handler.header);
  std::stable_sort(header.entries.begin(), header.entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  std::uint64_t next = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    const auto reject = [&](const std::string& what) {
      fail<CheckpointError>("{}: tensor {}: {}", path.string(), printable(entry.name), what);
    };
    const std::size_t element_size = safetensors_element_size(entry.dtype);
    if (element_size == 0) reject(fmt::format("element type {} is not supported", printable(entry.dtype)));
    const std::optional<std::uint64_t> bytes = byte_count(entry.shape, element_size);
    if (!bytes) reject(fmt::format("shape {} overflows", entry.shape.text()));
    if (entry.end < entry.begin || entry.end - entry.begin != *bytes)
      reject(fmt::format("data_offsets [{}, {}], expected {} bytes for {} {}", entry.begin, entry.end, *bytes,
                         entry.dtype, entry.shape.text()));
    if (entry.begin != next)
      reject(fmt::format("data begin at byte {}, expected {} ({})", entry.begin, next,
                         entry.begin > next ? "a hole" : "an overlap"));
    if (entry.end > data_bytes)
      reject(fmt::format("data end at byte {}, but the file has {} bytes of data", entry.end, data_bytes));
    next = entry.end;
  }
  if (next != data_bytes)
    fail<CheckpointError>("{}: {} bytes of data, expected {} from the header", path.string(), data_bytes,
                          next);
  return header;
}

std::string printable(std::string_view name) {
  constexpr std::size_t kMax = 80;
  std::string text = "\"";
  for (const char c : name.substr(0, kMax))
    text += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return text + (name.size() > kMax ? "…\"" : "\"");
}

}  // namespace convoy::io
