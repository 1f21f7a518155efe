// The files of the flight recorder: one JSON file per rank, written when a job fails.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "convoy/comm/bootstrap/host.h"
#include "convoy/comm/cluster/control/host_memory.h"
#include "convoy/comm/cluster/control/rank_status.h"

namespace convoy::dist {

/// An event of a flight recorder as text, for reports and timelines.
struct RecordedEvent {
  std::int64_t time = 0;  // nanoseconds since the epoch, of the host's wall clock
  std::string kind;       // "phase", "launched", "started", "completed", "allocation", "warning", "failure"
  std::string phase;      // at the time of the event: "data"
  std::int64_t step = 0;  // of the training
  std::string communicator;  // "gradients"; empty without a collective
  std::uint64_t number = 0;  // of the collective on its communicator
  std::string text;          // the collective, the bytes or the message
};

/// The contents of one file.
struct FlightFile {
  std::string job;  // a random name, equal on all ranks of a job
  int world_size = 0;
  std::string verdict;                // why the job has ended
  std::int64_t time = 0;              // at which the file was written, as in RecordedEvent
  RankStatus status;                  // at that time
  std::vector<RecordedEvent> events;  // oldest first
};

/// Writes `directory`/rank-N.json for each rank of this host, and creates the directory. Throws DataError if
/// that fails.
void write_flight_files(const HostMemory& memory, const std::vector<RankInfo>& all, const std::string& job,
                        const std::filesystem::path& directory);

/// Reads all files rank-N.json of a directory, in rank order. Files of an earlier job are left out, and
/// counted in `ignored`. Throws DataError if there is none, or if one is damaged.
std::vector<FlightFile> read_flight_files(const std::filesystem::path& directory, int& ignored);

}  // namespace convoy::dist
