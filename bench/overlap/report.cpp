#include "bench/overlap/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "convoy/engine/io/file.h"
#include "convoy/kernels/base/check.h"

namespace convoy::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kFastGbS = 475;  // bus bandwidth of eight H200 connected by NVLink
constexpr double kFastOfStep = 0.03;
constexpr double kSlowGbS = 25;  // a network of 200 Gbit/s
constexpr double kSlowOfPytorch = 0.25;

/// Returns null if there is no such row.
const OverlapRow* find_row(const std::vector<OverlapRow>& rows, DType sent, double gb_s,
                           const std::string& plan) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const OverlapRow& row) {
    return row.sent == sent && row.link.gb_s == gb_s && row.plan == plan;
  });
  return found == rows.end() ? nullptr : &*found;
}

double megabytes(std::size_t bytes) { return static_cast<double>(bytes) * 1e-6; }

std::string table_of(const StepRecord& record, const std::vector<OverlapRow>& rows, DType sent) {
  const bool has_real = rows.front().real.has_value();
  std::string text = fmt::format(
      "\ngradients sent in {}\n\n| GB/s | plan | buckets | last bucket, MB | communication, ms | "
      "exposed, ms | exposed, % of step | hidden |{}\n|---|---|---|---|---|---|---|---|{}\n",
      to_string(sent), has_real ? " real: waited, ms | additional step time, ms |" : "",
      has_real ? "---|---|" : "");
  for (const OverlapRow& row : rows) {
    if (row.sent != sent) continue;
    const Exposure& exposure = row.exposure;
    text += fmt::format("| {} | {} | {} | {:.3f} | {:.3f} | {:.3f} | {:.2f} % | {:.1f} % |", row.link.gb_s,
                        row.plan, exposure.transfers.size(), megabytes(exposure.transfers.back().bytes),
                        exposure.comm_ms, exposure.exposed_ms, 100 * exposure.exposed_ms / record.step_ms,
                        100 * exposure.hidden());
    if (row.real) text += fmt::format(" {:.3f} | {:.3f} |", row.real->waited_ms, row.real->longer_ms);
    text += "\n";
  }
  return text;
}

Json json_of(const OverlapRow& row, double step_ms) {
  const Exposure& exposure = row.exposure;
  Json transfers = Json::array();
  for (const Transfer& transfer : exposure.transfers)
    transfers.push_back(
        {{"bytes", transfer.bytes}, {"begin_ms", transfer.begin_ms}, {"end_ms", transfer.end_ms}});
  Json json{{"gb_s", row.link.gb_s},
            {"plan", row.plan},
            {"sent", to_string(row.sent)},
            {"buckets", exposure.transfers.size()},
            {"last_bytes", exposure.transfers.back().bytes},
            {"comm_ms", exposure.comm_ms},
            {"exposed_ms", exposure.exposed_ms},
            {"of_step", exposure.exposed_ms / step_ms},
            {"hidden", exposure.hidden()},
            {"transfers", std::move(transfers)}};
  if (row.real) {
    json["real_waited_ms"] = row.real->waited_ms;
    json["real_longer_ms"] = row.real->longer_ms;
  }
  return json;
}

}  // namespace

std::vector<OverlapRow> simulate_all(const StepRecord& record, const std::vector<NamedPlan>& plans,
                                     const std::vector<Link>& links) {
  std::vector<OverlapRow> rows;
  for (const DType sent : {record.dtype, DType::bf16})
    for (const Link& link : links)
      for (const NamedPlan& plan : plans)
        rows.push_back({.sent = sent,
                        .link = link,
                        .plan = plan.name,
                        .exposure = simulate(record, plan.plan, sent, link),
                        .real = {}});
  return rows;
}

std::vector<Goal> goals_of(const StepRecord& record, const std::vector<OverlapRow>& rows) {
  std::vector<Goal> goals;
  if (const OverlapRow* ours = find_row(rows, record.dtype, kFastGbS, kConvoyPlan))
    goals.push_back({.text = fmt::format("exposed at {} GB/s, of the step", kFastGbS),
                     .found = ours->exposure.exposed_ms / record.step_ms,
                     .maximum = kFastOfStep});
  const OverlapRow* ours = find_row(rows, record.dtype, kSlowGbS, kConvoyPlan);
  const OverlapRow* pytorch = find_row(rows, record.dtype, kSlowGbS, kPytorchPlan);
  if (ours != nullptr && pytorch != nullptr && pytorch->exposure.exposed_ms > 0)
    goals.push_back({.text = fmt::format("exposed at {} GB/s, of that of {}", kSlowGbS, kPytorchPlan),
                     .found = ours->exposure.exposed_ms / pytorch->exposure.exposed_ms,
                     .maximum = kSlowOfPytorch});
  return goals;
}

std::string to_string(const StepRecord& record, const std::vector<OverlapRow>& rows) {
  const Link& link = rows.front().link;
  std::string text = fmt::format(
      "{}, batch {}, {}, on {}: step {:.3f} ms{}, of which backward {:.3f} ms; {} gradients, {:.2f} MB\n"
      "link: {} ranks, {} us per transfer\n",
      record.model, record.batch, record.precision, record.device, record.step_ms,
      record.is_scaled ? " (scaled: a projection)" : "", record.backward_ms, record.gradients.size(),
      megabytes(record.bytes()), link.ranks, link.latency_us);
  text += table_of(record, rows, record.dtype) + table_of(record, rows, DType::bf16);
  const std::vector<Goal> goals = goals_of(record, rows);
  if (!goals.empty()) text += "\n| goal | at most | found | |\n|---|---|---|---|\n";
  for (const Goal& goal : goals)
    text += fmt::format("| {} | {:.1f} % | {:.2f} % | {} |\n", goal.text, 100 * goal.maximum,
                        100 * goal.found, goal.met() ? "met" : "missed");
  return text;
}

void write_json(const StepRecord& record, const std::vector<OverlapRow>& rows,
                const std::filesystem::path& file) {
  const Link& link = rows.front().link;
  Json json_rows = Json::array(), goals = Json::array();
  for (const OverlapRow& row : rows) json_rows.push_back(json_of(row, record.step_ms));
  for (const Goal& goal : goals_of(record, rows))
    goals.push_back(
        {{"goal", goal.text}, {"most", goal.maximum}, {"found", goal.found}, {"met", goal.met()}});
  const Json json{{"model", record.model},
                  {"batch", record.batch},
                  {"precision", record.precision},
                  {"device", record.device},
                  {"step_ms", record.step_ms},
                  {"is_scaled", record.is_scaled},
                  {"backward_ms", record.backward_ms},
                  {"gradient_bytes", record.bytes()},
                  {"ranks", link.ranks},
                  {"latency_us", link.latency_us},
                  {"goals", std::move(goals)},
                  {"rows", std::move(json_rows)}};
  io::write_file_atomically(file, json.dump(1) + "\n");
}

}  // namespace convoy::bench
