// The output of the benchmark: tables in the format of nccl-tests, and JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/collectives/measurement.h"
#include "convoy/apps/common/machine.h"
#include "convoy/comm/bootstrap/host.h"

namespace convoy::bench {

/// The ranks, hardware and software of a run.
struct RunInfo {
  std::string backend;   // "shm"
  std::string ranks;     // "2 on 1 host, shm; rendezvous: …"
  Machine machine;       // of rank 0
  int threads = 0;       // of each rank, to fill and check data
  std::string hardware;  // GPU; empty on the CPU
  std::vector<dist::RankInfo> all;
  std::vector<std::string> devices;  // indexed by rank: "cuda:1"
};

// The text follows nccl-tests: all lines except rows begin with '#'.

/// Returns the lines above all tables: machine, versions, flags and devices.
std::string format_run_info(const RunInfo& run_info, const CollectivePlan& plan);
/// Returns the header of a collective's table: notes and column names.
std::string format_header(Collective collective, const CollectivePlan& plan);
/// Returns one line, and one comment line per placement if MPI was measured.
std::string format_row(const RowResult& row);
/// Returns the lines below all tables: the number of wrong elements and the average bus bandwidth.
std::string format_footer(const std::vector<RowResult>& rows);

/// Returns the contents of the file of --output_file: the header lines and columns of nccl-tests, which pandas reads with
/// header=[0, 1, 2]. #wrong is -1 without a check.
std::string to_csv(const std::vector<RowResult>& rows);
/// Returns the contents of the file of --json.
nlohmann::ordered_json json_of(const RunInfo& run_info, const CollectivePlan& plan,
                               const std::vector<RowResult>& rows);

/// Returns the wrong elements of all rows and placements, of Convoy and MPI.
std::int64_t count_wrong(const std::vector<RowResult>& rows);
/// Returns the mean bus bandwidth of all rows and placements, in GB/s.
double average_bus_bandwidth(const std::vector<RowResult>& rows);

}  // namespace convoy::bench
