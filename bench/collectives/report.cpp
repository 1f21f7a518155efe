#include "bench/collectives/report.h"

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "convoy/kernels/base/check.h"
#include "convoy/version.h"

namespace convoy::bench {
namespace {

constexpr double kGiga = 1e9;
constexpr double kMicro = 1e6;

using Json = nlohmann::ordered_json;

std::string to_string(Placement placement) {
  return placement == Placement::in_place ? "in-place" : "out-of-place";
}

/// Formats microseconds in seven columns with a precision that decreases with the magnitude.
std::string format_time(double seconds) {
  const double us = seconds * kMicro;
  return fmt::format("{:>7.{}f}", us, us < 100 ? 2 : us < 10000 ? 1 : 0);
}

std::string format_redop(const Case& one) { return adds(one.collective) ? "sum" : "none"; }

std::string format_placement(const Case& one, const PlacementResult& result) {
  return fmt::format("  {}  {:>6.2f}  {:>6.2f}  {:>6}", format_time(result.seconds),
                     algorithm_bandwidth(one, result.seconds) / kGiga,
                     bus_bandwidth(one, result.seconds) / kGiga,
                     result.wrong ? fmt::format("{}", *result.wrong) : "N/A");
}

std::string format_singles(const PlacementResult& result) {
  return result.singles
             ? fmt::format("  {}  {}", format_time(result.singles->p50), format_time(result.singles->p99))
             : "";
}

std::string format_mpi(Placement placement, const PlacementResult& result) {
  const MpiBaseline& mpi = *result.mpi;
  return fmt::format("#   {:>12}: MPI {} us, {:.2f} times Convoy's ({:.2f} to {:.2f}, {} {}); #wrong {}\n",
                     to_string(placement), format_time(mpi.seconds), mpi.ratio, mpi.lowest, mpi.highest,
                     mpi.rounds, mpi.rounds == 1 ? "round" : "rounds",
                     mpi.wrong ? fmt::format("{}", *mpi.wrong) : "N/A");
}

/// Returns one of the header rows: the titles of the case, of each placement and of its percentiles.
std::string format_columns(const std::string& of_case, const std::string& per_placement,
                           const std::string& singles) {
  return of_case + per_placement + per_placement + singles + singles + "\n";
}

Json json_of(const Case& one, const PlacementResult& result) {
  Json json{{"time_us", result.seconds * kMicro},
            {"algbw", algorithm_bandwidth(one, result.seconds) / kGiga},
            {"busbw", bus_bandwidth(one, result.seconds) / kGiga},
            {"wrong", result.wrong ? Json(*result.wrong) : Json()}};
  if (result.singles) {
    json["p50_us"] = result.singles->p50 * kMicro;
    json["p99_us"] = result.singles->p99 * kMicro;
  }
  if (result.mpi)
    json["mpi"] = Json{{"time_us", result.mpi->seconds * kMicro},
                       {"ratio", result.mpi->ratio},
                       {"lowest", result.mpi->lowest},
                       {"highest", result.mpi->highest},
                       {"rounds", result.mpi->rounds},
                       {"wrong", result.mpi->wrong ? Json(*result.mpi->wrong) : Json()}};
  return json;
}

}  // namespace

std::string format_run_info(const RunInfo& run_info, const CollectivePlan& plan) {
  std::string text = fmt::format("# convoy-bench-allreduce {}: {}\n", kVersion, run_info.ranks);
  text += fmt::format("# {}, {} of {} cores, {}; {}\n", run_info.machine.processor,
                      run_info.machine.cores.size(), run_info.machine.online_cores, run_info.machine.system,
                      fmt::join(run_info.machine.libraries, ", "));
  if (!run_info.hardware.empty()) text += fmt::format("# {}\n", run_info.hardware);
  text += fmt::format(
      "# nThread {} nGpus 1 minBytes {} maxBytes {} step: {}({}) warmup iters: {} iters: {} agg iters: 1 validation: {} "
      "graph: 0 blocking: 0 average: 1\n",
      plan.ranks_per_process, plan.min_bytes, plan.max_bytes, plan.step, plan.is_factor ? "factor" : "bytes",
      plan.warmup_iters, plan.iters, plan.checks);
  text += "#\n# Using devices\n";
  for (const dist::RankInfo& rank : run_info.all)
    text += fmt::format("#  Rank {:>2} on {:>10} device {}\n", rank.rank, rank.host,
                        run_info.devices[static_cast<std::size_t>(rank.rank)]);
  return text;
}

std::string format_header(Collective collective, const CollectivePlan& plan) {
  std::string text = fmt::format("#\n# {}\n", to_string(collective));
  if (collective == Collective::all_reduce)
    text += "# The collective is in-place; out-of-place includes a copy of the input.\n";
  if (collective == Collective::broadcast)
    text += "# The collective is in-place; out-of-place includes a copy of the input on the root.\n";
  const bool singles = plan.percentiles;
  text += "#\n";
  text += fmt::format("# {:52}  {:^31}  {:^31}", "", "out-of-place", "in-place");
  if (singles) text += fmt::format("  {:^16}  {:^16}", "out-of-place", "in-place");
  text += "\n";
  text += format_columns("#       size         count      type   redop    root",
                         "     time   algbw   busbw  #wrong", singles ? "      p50      p99" : "");
  text += format_columns("#        (B)    (elements)                          ",
                         "     (us)  (GB/s)  (GB/s)        ", singles ? "     (us)     (us)" : "");
  return text;
}

std::string format_row(const RowResult& row) {
  const Case& one = row.one;
  std::string text = fmt::format("{:>12}  {:>12}  {:>8}  {:>6}  {:>6}", one.bytes(), one.count,
                                 nccl_type_name(one.dtype), format_redop(one), one.root);
  for (const Placement placement : kPlacements) text += format_placement(one, row.of(placement));
  for (const Placement placement : kPlacements) text += format_singles(row.of(placement));
  text += "\n";
  for (const Placement placement : kPlacements)
    if (row.of(placement).mpi) text += format_mpi(placement, row.of(placement));
  return text;
}

std::string format_footer(const std::vector<RowResult>& rows) {
  const std::int64_t wrong = count_wrong(rows);
  return fmt::format("# Out of bounds values : {} {}\n# Avg bus bandwidth    : {:.6g}\n#\n", wrong,
                     wrong == 0 ? "OK" : "FAILED", average_bus_bandwidth(rows));
}

std::string to_csv(const std::vector<RowResult>& rows) {
  std::string text =
      ",,,,,out-of-place,out-of-place,out-of-place,out-of-place,in-place,in-place,in-place,in-place\n"
      "size, count, type, redop, root, time, algbw, busbw, #wrong, time, algbw, busbw, #wrong\n"
      "(B), (elements),,,,(us),(GB/s),(GB/s),,(us),(GB/s),(GB/s),\n";
  for (const RowResult& row : rows) {
    text += fmt::format("{},{},{},{},{}", row.one.bytes(), row.one.count, nccl_type_name(row.one.dtype),
                        format_redop(row.one), row.one.root);
    for (const Placement placement : kPlacements) {
      const PlacementResult& result = row.of(placement);
      text += fmt::format(",{:.2f},{:.6f},{:.6f},{}", result.seconds * kMicro,
                          algorithm_bandwidth(row.one, result.seconds) / kGiga,
                          bus_bandwidth(row.one, result.seconds) / kGiga, result.wrong.value_or(-1));
    }
    text += "\n";
  }
  return text;
}

nlohmann::ordered_json json_of(const RunInfo& run_info, const CollectivePlan& plan,
                               const std::vector<RowResult>& rows) {
  Json devices = Json::array();
  for (const dist::RankInfo& rank : run_info.all)
    devices.push_back(Json{{"rank", rank.rank},
                           {"host", rank.host},
                           {"device", run_info.devices[static_cast<std::size_t>(rank.rank)]}});
  Json table = Json::array();
  for (const RowResult& row : rows)
    table.push_back(Json{{"collective", to_string(row.one.collective)},
                         {"size", row.one.bytes()},
                         {"count", row.one.count},
                         {"type", nccl_type_name(row.one.dtype)},
                         {"redop", format_redop(row.one)},
                         {"root", row.one.root},
                         {"out_of_place", json_of(row.one, row.out_of_place)},
                         {"in_place", json_of(row.one, row.in_place)}});
  return Json{
      {"program", "convoy-bench-allreduce"},
      {"version", kVersion},
      {"machine",
       {{"processor", run_info.machine.processor},
        {"cores", run_info.machine.cores.size()},
        {"machine_cores", run_info.machine.online_cores},
        {"system", run_info.machine.system},
        {"gpu", run_info.hardware},
        {"libraries", run_info.machine.libraries}}},
      {"backend", run_info.backend},
      {"ranks", run_info.all.size()},
      {"met", run_info.ranks},
      {"threads", run_info.threads},
      {"devices", devices},
      {"settings", {{"warmup_iters", plan.warmup_iters}, {"iters", plan.iters}, {"check", plan.checks}}},
      {"rows", table},
      {"out_of_bounds", count_wrong(rows)},
      {"average_busbw", average_bus_bandwidth(rows)}};
}

std::int64_t count_wrong(const std::vector<RowResult>& rows) {
  std::int64_t wrong = 0;
  for (const RowResult& row : rows)
    for (const Placement placement : kPlacements) {
      wrong += row.of(placement).wrong.value_or(0);
      if (row.of(placement).mpi) wrong += row.of(placement).mpi->wrong.value_or(0);
    }
  return wrong;
}

double average_bus_bandwidth(const std::vector<RowResult>& rows) {
  double sum = 0;
  for (const RowResult& row : rows)
    for (const Placement placement : kPlacements)
      sum += bus_bandwidth(row.one, row.of(placement).seconds) / kGiga;
  return rows.empty() ? 0 : sum / static_cast<double>(2 * rows.size());
}

}  // namespace convoy::bench
