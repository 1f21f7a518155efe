#include "engine/io/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "kernels/runtime/check.h"

namespace convoy {
namespace {

/// Receives the parser's events and follows the one structure that a header may have:
/// {"__metadata__": {string: string…}, name: {"dtype": string, "shape": [n…], "data_offsets": [n, n]}…}.
/// Anything else sets `problem` and stops the parse.
class HeaderHandler final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::string problem;
  SafetensorsHeader header;

  bool null() override { return refuse("null"); }
  bool boolean(bool) override { return refuse("a boolean"); }
  bool number_integer(number_integer_t) override { return refuse("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return refuse("a number that is no 64-bit integer");
  }
  bool binary(binary_t&) override { return refuse("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::shape && place_ != Place::offsets) return refuse("a number");
    const std::size_t most = place_ == Place::shape ? std::size_t{Shape::kMaxRank} : 2;
    if (numbers_.size() == most) return refuse(fmt::format("more than {} numbers", most));
    numbers_.push_back(value);
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::metadata) {
      header.metadata[key_] = std::move(value);
      return true;
    }
    if (place_ != Place::tensor || key_ != "dtype") return refuse("a string");
    entry_.dtype = std::move(value);
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::start) {
      place_ = Place::top;
    } else if (place_ == Place::top) {
      place_ = key_ == "__metadata__" ? Place::metadata : Place::tensor;
      entry_ = {};
      entry_.name = key_;
      inner_keys_.clear();
    } else {
      return refuse("an object");
    }
    return true;
  }

  bool key(string_t& value) override {
    std::set<std::string>& seen = place_ == Place::top ? names_ : inner_keys_;
    if (!seen.insert(value).second) return fail_with(fmt::format("{} occurs twice", printable(value)));
    if (place_ == Place::tensor && value != "dtype" && value != "shape" && value != "data_offsets")
      return fail_with(fmt::format("tensor {}: unknown key {}", printable(entry_.name), printable(value)));
    key_ = std::move(value);
    return true;
  }

  bool end_object() override {
    if (place_ == Place::tensor) {
      if (inner_keys_.size() != 3)
        return fail_with(
            fmt::format("tensor {}: expected dtype, shape and data_offsets", printable(entry_.name)));
      header.entries.push_back(std::move(entry_));
    }
    place_ = place_ == Place::top ? Place::end : Place::top;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::tensor || key_ == "dtype") return refuse("an array");
    place_ = key_ == "shape" ? Place::shape : Place::offsets;
    numbers_.clear();
    return true;
  }

  bool end_array() override {
    if (place_ == Place::offsets) {
      if (numbers_.size() != 2)
        return fail_with(fmt::format("tensor {}: data_offsets must be two numbers", printable(entry_.name)));
      entry_.begin = numbers_[0];
      entry_.end = numbers_[1];
    } else if (!set_shape()) {
      return fail_with(fmt::format("tensor {}: a size of the shape is too large", printable(entry_.name)));
    }
    place_ = Place::tensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    return fail_with(fmt::format("the header is not JSON at byte {}", position));
  }

 private:
  enum class Place { start, top, tensor, shape, offsets, metadata, end };

  bool fail_with(std::string text) {
    problem = std::move(text);
    return false;
  }
  bool refuse(std::string_view found) {
    return fail_with(fmt::format("the header has {} at {}, which the format has no place for", found,
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

  Place place_ = Place::start;
  std::string key_;                           // the last one
  std::set<std::string> names_, inner_keys_;  // seen so far
  std::vector<std::uint64_t> numbers_;        // of the array being read
  SafetensorsEntry entry_;
};

/// Product of the sizes and the element size; nullopt where it exceeds 64 bits.
std::optional<std::uint64_t> byte_count(const Shape& shape, std::size_t element_size) {
  std::uint64_t bytes = element_size;
  for (const std::int64_t axis : shape.sizes()) {
    const auto size = static_cast<std::uint64_t>(axis);
    // Limited to int64, in which Shape counts its elements.
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
  // The format's writers pad with spaces behind the object and put nothing before it.
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
    const auto refuse = [&](const std::string& what) {
      fail<CheckpointError>("{}: tensor {}: {}", path.string(), printable(entry.name), what);
    };
    const std::size_t element_size = safetensors_element_size(entry.dtype);
    if (element_size == 0) refuse(fmt::format("element type {} is not supported", printable(entry.dtype)));
    const std::optional<std::uint64_t> bytes = byte_count(entry.shape, element_size);
    if (!bytes) refuse(fmt::format("shape {} overflows", entry.shape.text()));
    if (entry.end < entry.begin || entry.end - entry.begin != *bytes)
      refuse(fmt::format("data_offsets [{}, {}], expected {} bytes for {} {}", entry.begin, entry.end, *bytes,
                         entry.dtype, entry.shape.text()));
    if (entry.begin != next)
      refuse(fmt::format("data begin at byte {}, expected {} ({})", entry.begin, next,
                         entry.begin > next ? "a hole" : "an overlap"));
    if (entry.end > data_bytes)
      refuse(fmt::format("data end at byte {}, but the file has {} bytes of data", entry.end, data_bytes));
    next = entry.end;
  }
  if (next != data_bytes)
    fail<CheckpointError>("{}: {} bytes of data, expected {} from the header", path.string(), data_bytes,
                          next);
  return header;
}

std::string printable(std::string_view name) {
  constexpr std::size_t kMost = 80;
  std::string text = "\"";
  for (const char c : name.substr(0, kMost))
    text += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return text + (name.size() > kMost ? "…\"" : "\"");
}

}  // namespace convoy
