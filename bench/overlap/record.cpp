#include "bench/overlap/record.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "convoy/engine/io/file.h"
#include "convoy/kernels/base/check.h"

namespace convoy::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;
constexpr std::uint64_t kMaxBytes = 8 << 20;  // a gradient takes about 100 bytes

DType dtype_of(const std::string& name) {
  for (const DType dtype : {DType::f32, DType::f64})
    if (name == to_string(dtype)) return dtype;
  fail<UsageError>("found gradients in {}, expected f32 or f64", name);
}

StepRecord parsed(const std::string& text) {
  const Json json = Json::parse(text);
  if (const int format = json.at("format"); format != kFormat)
    fail<UsageError>("found format {}, expected {}", format, kFormat);
  StepRecord record{.model = json.at("model"),
                    .batch = json.at("batch"),
                    .precision = json.at("precision"),
                    .device = json.at("device"),
                    .dtype = dtype_of(json.at("gradients_are")),
                    .step_ms = json.at("step_ms"),
                    .backward_ms = json.at("backward_ms"),
                    .is_scaled = json.at("is_scaled")};
  for (const Json& each : json.at("gradients"))
    record.gradients.push_back(
        {.name = each.at("name"), .numel = each.at("numel"), .ready_ms = each.at("ready_ms")});
  return record;
}

void check_record(const StepRecord& record) {
  check(std::isfinite(record.step_ms) && record.backward_ms > 0 && record.backward_ms <= record.step_ms,
        "found a backward of {} ms in a step of {} ms, expected at most the step", record.backward_ms,
        record.step_ms);
  check(!record.gradients.empty(), "found no gradients, expected at least one");
  for (const StepRecord::Gradient& gradient : record.gradients) {
    check(gradient.numel > 0, "{}: found {} elements, expected at least 1", gradient.name, gradient.numel);
    check(gradient.ready_ms >= 0 && gradient.ready_ms <= record.backward_ms,
          "{}: found a ready time of {} ms in a backward of {} ms, expected a time within it", gradient.name,
          gradient.ready_ms, record.backward_ms);
  }
}

}  // namespace

std::vector<std::int64_t> StepRecord::numels() const {
  std::vector<std::int64_t> all;
  for (const Gradient& gradient : gradients) all.push_back(gradient.numel);
  return all;
}

std::vector<double> StepRecord::ready_ms() const {
  std::vector<double> all;
  for (const Gradient& gradient : gradients) all.push_back(gradient.ready_ms);
  return all;
}

std::size_t StepRecord::bytes() const {
  std::size_t bytes = 0;
  for (const Gradient& gradient : gradients)
    bytes += static_cast<std::size_t>(gradient.numel) * size_of(dtype);
  return bytes;
}

StepRecord scaled_to(StepRecord record, double step_ms) {
  check(step_ms > 0, "--scale-to: found {} ms, expected more than 0", step_ms);
  const double factor = step_ms / record.step_ms;
  record.step_ms = step_ms;
  record.backward_ms *= factor;
  for (StepRecord::Gradient& gradient : record.gradients) gradient.ready_ms *= factor;
  record.is_scaled = true;
  return record;
}

void write_record(const StepRecord& record, const std::filesystem::path& file) {
  Json gradients = Json::array();
  for (const StepRecord::Gradient& gradient : record.gradients)
    gradients.push_back(
        {{"name", gradient.name}, {"numel", gradient.numel}, {"ready_ms", gradient.ready_ms}});
  const Json json{{"format", kFormat},
                  {"model", record.model},
                  {"batch", record.batch},
                  {"precision", record.precision},
                  {"device", record.device},
                  {"gradients_are", to_string(record.dtype)},
                  {"step_ms", record.step_ms},
                  {"backward_ms", record.backward_ms},
                  {"is_scaled", record.is_scaled},
                  {"gradients", std::move(gradients)}};
  io::write_file_atomically(file, json.dump(1) + "\n");
}

StepRecord read_record(const std::filesystem::path& file) {
  try {
    StepRecord record = parsed(io::read_text_file(file, kMaxBytes));
    check_record(record);
    return record;
  } catch (const nlohmann::json::exception& error) {
    fail<UsageError>("--replay {}: found no valid record of a step, expected a file written by --record: {}",
                     file.string(), error.what());
  } catch (const Error& error) {
    fail<UsageError>("--replay {}: {}", file.string(), error.what());
  }
}

}  // namespace convoy::bench
