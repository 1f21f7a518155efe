// What a person, a script that reads nccl-tests, and --json see of the measurement.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "bench/collective_bench.h"
#include "comm/rank_info.h"

namespace convoy::bench {

/// Where it was measured.
struct Scene {
  std::string backend;               // "shm"
  std::string ranks;                 // "2 on 1 host, shm; met by …"
  std::string processor;             // of rank 0's host
  std::string system;                // "Linux 6.1.0, x86_64"
  int cores = 0, machine_cores = 0;  // that rank 0 may use; that its host has
  int threads = 0;                   // of each rank, that fill and check
  std::string hardware;              // of a GPU
  std::vector<std::string> libraries;
  std::vector<RankInfo> all;
  std::vector<std::string> devices;  // by rank: "cuda:1"
};

// Lines as nccl-tests have them: what is no row begins with '#'.

std::string text_of_scene(const Scene& scene, const CollectivePlan& plan);
/// What its columns are called, and what of its rows must be known.
std::string text_of_header(Collective collective, const CollectivePlan& plan);
/// One line, and where MPI was beside another one, for each way.
std::string text_of_row(const RowResult& row);
std::string text_of_footer(const std::vector<RowResult>& rows);

nlohmann::ordered_json json_of(const Scene& scene, const CollectivePlan& plan,
                               const std::vector<RowResult>& rows);

/// Of all rows and ways, Convoy's and MPI's.
std::int64_t count_wrong(const std::vector<RowResult>& rows);
/// GB/s, the mean of all rows and ways.
double average_bus_bandwidth(const std::vector<RowResult>& rows);

}  // namespace convoy::bench
