#include "bench/collective_report.h"

#include <fmt/ranges.h>

#include "apps/version.h"
#include "kernels/runtime/check.h"

namespace convoy::bench {
namespace {

constexpr double kGiga = 1e9;
constexpr double kMicro = 1e6;

using Json = nlohmann::ordered_json;

std::string name_of(Way way) { return way == Way::in_place ? "in-place" : "out-of-place"; }

/// In seven columns, with as many digits as matter.
std::string text_of_time(double seconds) {
  const double us = seconds * kMicro;
  return fmt::format("{:>7.{}f}", us, us < 100 ? 2 : us < 10000 ? 1 : 0);
}

std::string text_of_redop(const Case& one) { return adds(one.collective) ? "sum" : "none"; }

std::string text_of_way(const Case& one, const WayResult& result) {
  return fmt::format("  {}  {:>6.2f}  {:>6.2f}  {:>6}", text_of_time(result.seconds),
                     algorithm_bandwidth(one, result.seconds) / kGiga,
                     bus_bandwidth(one, result.seconds) / kGiga,
                     result.wrong ? fmt::format("{}", *result.wrong) : "N/A");
}

std::string text_of_singles(const WayResult& result) {
  return result.singles
             ? fmt::format("  {}  {}", text_of_time(result.singles->p50), text_of_time(result.singles->p99))
             : "";
}

std::string text_of_mpi(Way way, const WayResult& result) {
  const BesideMpi& mpi = *result.mpi;
  return fmt::format("#   {:>12}: MPI {} us, {:.2f} times Convoy's ({:.2f} to {:.2f}, {} {}); #wrong {}\n",
                     name_of(way), text_of_time(mpi.seconds), mpi.ratio, mpi.lowest, mpi.highest, mpi.rounds,
                     mpi.rounds == 1 ? "round" : "rounds", mpi.wrong ? fmt::format("{}", *mpi.wrong) : "N/A");
}

/// Of the three rows above a table.
std::string text_of_columns(const std::vector<std::string>& first, const std::vector<std::string>& of_way,
                            const std::vector<std::string>& singles, bool has_singles) {
  std::string text =
      fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", first[0], first[1], first[2], first[3], first[4]);
  for (int way = 0; way < 2; ++way)
    text += fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", of_way[0], of_way[1], of_way[2], of_way[3]);
  if (has_singles)
    for (int way = 0; way < 2; ++way) text += fmt::format("  {:>7}  {:>7}", singles[0], singles[1]);
  return text + "\n";
}

Json json_of(const Case& one, const WayResult& result) {
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

std::string text_of_scene(const Scene& scene, const CollectivePlan& plan) {
  std::string text = fmt::format("# convoy-bench-allreduce {}: {}\n", kVersion, scene.ranks);
  text += fmt::format("# {}, {} of {} cores, {}; {}\n", scene.processor, scene.cores, scene.machine_cores,
                      scene.system, fmt::join(scene.libraries, ", "));
  if (!scene.hardware.empty()) text += fmt::format("# {}\n", scene.hardware);
  text += fmt::format(
      "# minbytes {} maxbytes {} step: {}({}) warmup iters: {} iters: {} validation: {} blocking: {} "
      "average: {}\n",
      plan.sizes.front(), plan.sizes.back(), plan.step, plan.is_factor ? "factor" : "bytes",
      plan.warmup_iters, plan.iters, plan.checks, static_cast<int>(plan.blocking),
      static_cast<int>(plan.over_ranks));
  text += "#\n# Using devices\n";
  for (const RankInfo& info : scene.all)
    text += fmt::format("#  Rank {:>2} on {:>10} device {}\n", info.rank, info.host,
                        scene.devices[static_cast<std::size_t>(info.rank)]);
  return text;
}

std::string text_of_header(Collective collective, const CollectivePlan& plan) {
  std::string text = fmt::format("#\n# {}\n", name_of(collective));
  if (collective == Collective::all_reduce)
    text += "# It is in place alone: out-of-place is a copy, and then that.\n";
  if (collective == Collective::broadcast)
    text += "# It is in place alone: out-of-place is a copy by the root, and then that.\n";
  const bool singles = plan.percentiles;
  text += "#\n";
  text += fmt::format("# {:52}  {:^31}  {:^31}", "", "out-of-place", "in-place");
  if (singles) text += fmt::format("  {:^16}  {:^16}", "out-of-place", "in-place");
  text += "\n";
  text += text_of_columns({"size", "count", "type", "redop", "root"}, {"time", "algbw", "busbw", "#wrong"},
                          {"p50", "p99"}, singles);
  text += text_of_columns({"(B)", "(elements)", "", "", ""}, {"(us)", "(GB/s)", "(GB/s)", ""},
                          {"(us)", "(us)"}, singles);
  return text;
}

std::string text_of_row(const RowResult& row) {
  const Case& one = row.one;
  std::string text = fmt::format("{:>12}  {:>12}  {:>8}  {:>6}  {:>6}", one.bytes(), one.count,
                                 nccl_name_of(one.dtype), text_of_redop(one), one.root);
  for (const Way way : kWays) text += text_of_way(one, row.of(way));
  for (const Way way : kWays) text += text_of_singles(row.of(way));
  text += "\n";
  for (const Way way : kWays)
    if (row.of(way).mpi) text += text_of_mpi(way, row.of(way));
  return text;
}

std::string text_of_footer(const std::vector<RowResult>& rows) {
  const std::int64_t wrong = count_wrong(rows);
  return fmt::format("# Out of bounds values : {} {}\n# Avg bus bandwidth    : {:.6g}\n#\n", wrong,
                     wrong == 0 ? "OK" : "FAILED", average_bus_bandwidth(rows));
}

nlohmann::ordered_json json_of(const Scene& scene, const CollectivePlan& plan,
                               const std::vector<RowResult>& rows) {
  Json devices = Json::array();
  for (const RankInfo& info : scene.all)
    devices.push_back(Json{{"rank", info.rank},
                           {"host", info.host},
                           {"device", scene.devices[static_cast<std::size_t>(info.rank)]}});
  Json table = Json::array();
  for (const RowResult& row : rows)
    table.push_back(Json{{"collective", name_of(row.one.collective)},
                         {"size", row.one.bytes()},
                         {"count", row.one.count},
                         {"type", nccl_name_of(row.one.dtype)},
                         {"redop", text_of_redop(row.one)},
                         {"root", row.one.root},
                         {"out_of_place", json_of(row.one, row.out_of_place)},
                         {"in_place", json_of(row.one, row.in_place)}});
  return Json{{"program", "convoy-bench-allreduce"},
              {"version", kVersion},
              {"machine",
               {{"processor", scene.processor},
                {"cores", scene.cores},
                {"machine_cores", scene.machine_cores},
                {"system", scene.system},
                {"gpu", scene.hardware},
                {"libraries", scene.libraries}}},
              {"backend", scene.backend},
              {"ranks", scene.all.size()},
              {"met", scene.ranks},
              {"threads", scene.threads},
              {"devices", devices},
              {"settings",
               {{"warmup_iters", plan.warmup_iters},
                {"iters", plan.iters},
                {"check", plan.checks},
                {"blocking", static_cast<int>(plan.blocking)},
                {"average", static_cast<int>(plan.over_ranks)}}},
              {"rows", table},
              {"out_of_bounds", count_wrong(rows)},
              {"average_busbw", average_bus_bandwidth(rows)}};
}

std::int64_t count_wrong(const std::vector<RowResult>& rows) {
  std::int64_t wrong = 0;
  for (const RowResult& row : rows)
    for (const Way way : kWays) {
      wrong += row.of(way).wrong.value_or(0);
      if (row.of(way).mpi) wrong += row.of(way).mpi->wrong.value_or(0);
    }
  return wrong;
}

double average_bus_bandwidth(const std::vector<RowResult>& rows) {
  double sum = 0;
  for (const RowResult& row : rows)
    for (const Way way : kWays) sum += bus_bandwidth(row.one, row.of(way).seconds) / kGiga;
  return rows.empty() ? 0 : sum / static_cast<double>(2 * rows.size());
}

}  // namespace convoy::bench
