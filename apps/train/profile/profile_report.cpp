#include "convoy/apps/train/profile/profile_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "convoy/kernels/runtime/memory/memory.h"

namespace convoy {
namespace {

/// The calls of one operation of one module.
struct Row {
  std::string module, name;
  std::string result;  // of the first call
  double forward_ms = 0, backward_ms = 0;
  Cost cost;
  std::int64_t allocations = 0;
  std::size_t allocated_bytes = 0;

  double ms() const { return forward_ms + backward_ms; }
  /// Adds the times, the cost and the allocations of another row.
  void operator+=(const Row& other) {
    forward_ms += other.forward_ms;
    backward_ms += other.backward_ms;
    cost += other.cost;
    allocations += other.allocations;
    allocated_bytes += other.allocated_bytes;
  }
};

/// Returns a number of operations or bytes per second, in units of 1e9; "-" without any.
std::string rate(std::int64_t amount, double ms) {
  return amount == 0 || ms == 0 ? "-" : fmt::format("{:.1f}", static_cast<double>(amount) / ms * 1e-6);
}

std::vector<Row> rows_of(const StepProfile& profile) {
  std::map<std::pair<std::string, std::string>, Row> rows;
  for (const ProfiledCall& call : profile.calls()) {
    Row& row = rows[{call.module, call.name}];
    row.module = call.module;
    row.name = call.name;
    (call.is_backward ? row.backward_ms : row.forward_ms) += call.ms;
    row.cost += call.cost;
    row.allocations += call.allocations;
    row.allocated_bytes += call.allocated_bytes;
    if (row.result.empty() && !call.is_stage)
      row.result = fmt::format("{} {}", to_string(call.dtype), call.result.text());
  }
  std::vector<Row> sorted;
  for (auto& [key, row] : rows) sorted.push_back(std::move(row));
  std::stable_sort(sorted.begin(), sorted.end(), [](const Row& a, const Row& b) { return a.ms() > b.ms(); });
  return sorted;
}

std::string label_of(const std::string& module, const std::string& name, bool is_backward) {
  return fmt::format("{}{}{}{}", module, module.empty() ? "" : " ", name, is_backward ? ", backward" : "");
}

}  // namespace

std::string format_profile(const StepProfile& profile, std::size_t rows) {
  const std::vector<Row> all = rows_of(profile);
  const auto steps = static_cast<double>(profile.steps());
  std::size_t width = 6, name_width = 9;
  for (std::size_t i = 0; i < std::min(rows, all.size()); ++i) {
    width = std::max(width, all[i].module.size());
    name_width = std::max(name_width, all[i].name.size());
  }
  std::string table = fmt::format("{:<{}}  {:<{}} {:>7} {:>7} {:>5} {:>7} {:>6} {:>6} {:>7}  {}\n", "module",
                                  width, "operation", name_width, "fwd ms", "bwd ms", "%", "GFLOP/s", "GB/s",
                                  "allocs", "MiB", "result");
  const auto line = [&](const std::string& module, const Row& row) {
    table += fmt::format("{:<{}}  {:<{}} {:>7.3f} {:>7.3f} {:>5.1f} {:>7} {:>6} {:>6.0f} {:>7.2f}", module,
                         width, row.name, name_width, row.forward_ms / steps, row.backward_ms / steps,
                         100 * row.ms() / profile.total_ms(), rate(row.cost.flops, row.ms()),
                         rate(row.cost.bytes, row.ms()), static_cast<double>(row.allocations) / steps,
                         static_cast<double>(row.allocated_bytes) / (1 << 20) / steps);
    table += row.result.empty() ? "\n" : "  " + row.result + "\n";
  };
  Row others, sum;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i < rows)
      line(all[i].module, all[i]);
    else
      others += all[i];
    sum += all[i];
  }
  if (all.size() > rows) line(fmt::format("{} more", all.size() - rows), others);
  line("step", sum);
  return table;
}

std::size_t bytes_of(const nn::Module& module) {
  std::size_t bytes = 0;
  for (const nn::NamedParameter& parameter : module.parameters()) {
    bytes += parameter.variable.value().bytes();
    if (const Tensor& copy = parameter.variable.low_precision_copy(); copy.defined()) bytes += copy.bytes();
  }
  for (const nn::NamedBuffer& buffer : module.buffers()) bytes += buffer.tensor.bytes();
  return bytes;
}

std::string format_memory(const MemoryPeak& peak,
                          const std::vector<std::pair<std::string, std::size_t>>& known, std::size_t rows) {
  std::string text =
      fmt::format("memory at the peak: {}, in {}\n", format_bytes(peak.bytes),
                  label_of(peak.module, peak.name.empty() ? "the step" : peak.name, peak.is_backward));
  const auto line = [&](std::size_t bytes, const std::string& what) {
    text += fmt::format("  {:>11}  {}\n", format_bytes(bytes), what);
  };
  std::size_t rest = peak.before_step;
  for (const auto& [what, bytes] : known) {
    if (bytes == 0) continue;
    line(bytes, what);
    rest -= std::min(rest, bytes);
  }
  line(rest, "other memory from before the step: data, temporary memory of kernels");
  std::size_t others = 0;
  for (std::size_t i = 0; i < peak.living.size(); ++i) {
    const LivingMemory& each = peak.living[i];
    if (i < rows)
      line(each.bytes,
           each.name.empty() ? "other threads" : label_of(each.module, each.name, each.is_backward));
    else
      others += each.bytes;
  }
  if (others > 0) line(others, fmt::format("{} more", peak.living.size() - rows));
  return text;
}

std::string profile_trace(const StepProfile& profile) {
  using Json = nlohmann::ordered_json;
  Json events = Json::array();
  events.push_back(
      {{"ph", "M"}, {"pid", 0}, {"name", "process_name"}, {"args", {{"name", "training step"}}}});
  double step_begin = 0, step_end = 0;
  std::int64_t step = 0;
  for (const ProfiledCall& call : profile.calls()) {
    if (call.step != step) {
      step = call.step;
      step_begin = step_end;
    }
    const double begin = step_begin + call.begin_ms;
    step_end = begin + call.ms;
    Json arguments = {
        {"step", call.step}, {"allocations", call.allocations}, {"allocated_bytes", call.allocated_bytes}};
    if (!call.is_stage) {
      arguments["module"] = call.module;
      arguments["result"] = fmt::format("{} {}", to_string(call.dtype), call.result.text());
      arguments["flops"] = call.cost.flops;
      arguments["bytes"] = call.cost.bytes;
    }
    events.push_back({{"ph", "X"},
                      {"pid", 0},
                      {"tid", call.is_stage      ? 2
                              : call.is_backward ? 1
                                                 : 0},
                      {"name", label_of(call.module, call.name, false)},
                      {"cat", call.is_stage      ? "stage"
                              : call.is_backward ? "backward"
                                                 : "forward"},
                      {"ts", begin * 1e3},
                      {"dur", call.ms * 1e3},
                      {"args", arguments}});
    events.push_back({{"ph", "C"},
                      {"pid", 0},
                      {"name", "memory in use (MiB)"},
                      {"ts", step_end * 1e3},
                      {"args", {{"memory", static_cast<double>(call.memory) / (1 << 20)}}}});
  }
  for (const auto& [row, name] : {std::pair(0, "forward"), std::pair(1, "backward"), std::pair(2, "stages")})
    events.push_back(
        {{"ph", "M"}, {"pid", 0}, {"tid", row}, {"name", "thread_name"}, {"args", {{"name", name}}}});
  return Json{{"traceEvents", events}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace convoy
