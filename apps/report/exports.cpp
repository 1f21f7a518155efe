#include "convoy/apps/report/exports.h"

#include <algorithm>
#include <array>
#include <bit>
#include <ctime>
#include <iomanip>
#include <set>
#include <sstream>

#include "convoy/apps/common/text.h"
#include "convoy/kernels/base/json_text.h"

namespace convoy::report {
namespace {

/// Returns whether an event has numbers of its own.
bool is_measurement(const Json& event) {
  const Json& kind = event["event"];
  return kind == "step" || kind == "epoch" || kind == "eval" || kind == "result";
}

/// Returns a value as a field of a CSV file.
std::string field_of(const Json& value) {
  if (value.is_null()) return "";
  return csv_field(value.is_string() ? value.get<std::string>() : json_text(value));
}

static_assert(std::endian::native == std::endian::little, "records and protocol buffers are little-endian");

template <class T>
std::string bytes_of(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

// Protocol buffers: https://protobuf.dev/programming-guides/encoding
enum class WireType : std::uint64_t { varint = 0, fixed64 = 1, length_delimited = 2, fixed32 = 5 };

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}
std::string tag(std::uint64_t field, WireType type) {
  return varint(field << 3 | static_cast<std::uint64_t>(type));
}
std::string message(std::uint64_t field, const std::string& bytes) {
  return tag(field, WireType::length_delimited) + varint(bytes.size()) + bytes;
}

// Fields of tensorflow.Event, Summary and Summary.Value (tensorflow/core/framework/summary.proto, util/event.proto).
constexpr std::uint64_t kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5;
constexpr std::uint64_t kValue = 1, kTag = 1, kSimpleValue = 2;

std::string event_at(double wall_time) { return tag(kWallTime, WireType::fixed64) + bytes_of(wall_time); }

std::string scalar(const std::string& name, float value) {
  return message(kValue, message(kTag, name) + tag(kSimpleValue, WireType::fixed32) + bytes_of(value));
}

/// Returns a record of the TFRecord format: length, masked CRC of the length, bytes, masked CRC of the bytes.
std::string record(const std::string& bytes) {
  const auto masked = [](std::string_view text) {
    return bytes_of(std::rotr(crc32c(text), 15) + 0xa282ead8U);
  };
  const std::string length = bytes_of(std::uint64_t{bytes.size()});
  return length + masked(length) + bytes + masked(bytes);
}

/// Returns the seconds since 1970 of an ISO 8601 time in UTC; 0 if it cannot be parsed, as in logs without times.
double seconds_since_epoch(const Json& event) {
  const Json time = event.value("time", Json());
  if (!time.is_string()) return 0;
  std::tm parts{};
  double fraction = 0;
  std::istringstream text(time.get<std::string>());
  text >> std::get_time(&parts, "%Y-%m-%dT%H:%M:%S");
  if (!text) return 0;
  if (text.peek() == '.') text >> fraction;
  return static_cast<double>(timegm(&parts)) + fraction;
}

}  // namespace

std::string to_csv(const std::vector<RunRecord>& runs) {
  std::vector<std::string> columns;
  for (const RunRecord& run : runs)
    for (const Json& event : run.events)
      if (is_measurement(event))
        for (const auto& [name, ignored] : event.items())
          if (std::find(columns.begin(), columns.end(), name) == columns.end()) columns.push_back(name);
  std::string text = "run";
  for (const std::string& column : columns) text.append(",").append(field_of(column));
  text += kCsvLineEnd;
  for (const RunRecord& run : runs)
    for (const Json& event : run.events) {
      if (!is_measurement(event)) continue;
      text += field_of(run.name);
      for (const std::string& column : columns)
        text.append(",").append(field_of(event.value(column, Json())));
      text += kCsvLineEnd;
    }
  return text;
}

std::uint32_t crc32c(std::string_view bytes) {
  static const auto table = [] {
    std::array<std::uint32_t, 256> entries{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t crc = i;
      for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78U : 0);
      entries[i] = crc;
    }
    return entries;
  }();
  std::uint32_t crc = ~0U;
  for (const char byte : bytes) crc = (crc >> 8) ^ table[(crc ^ static_cast<unsigned char>(byte)) & 0xff];
  return ~crc;
}

std::string to_event_file(const RunRecord& run) {
  static const std::set<std::string> positions = {"step",    "epoch", "elapsed",
                                                  "samples", "steps", "best_step"};
  std::string file =
      record(event_at(seconds_since_epoch(run.events.front())) + message(kFileVersion, "brain.Event:2"));
  for (const Json& event : run.events) {
    const std::string kind = event["event"];
    if (!is_measurement(event)) continue;
    const std::string group = kind == "step"    ? "train/"
                              : kind == "epoch" ? "train/epoch_"
                              : kind == "eval"  ? event.value("split", "test") + "/"
                                                : "result/";
    std::string values;
    for (const auto& [name, value] : event.items())
      if (value.is_number() && !positions.contains(name)) values += scalar(group + name, value.get<float>());
    const Json step = event.value(kind == "result" ? "steps" : "step", Json());
    if (values.empty() || !step.is_number()) continue;
    file += record(event_at(seconds_since_epoch(event)) + tag(kStep, WireType::varint) +
                   varint(step.get<std::uint64_t>()) + message(kSummary, values));
  }
  return file;
}

}  // namespace convoy::report
