// --post-mortem: what the flight recorders of all ranks tell about a job that has failed.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "convoy/comm/cluster/control/flight_recorder.h"

namespace convoy::doctor {

/// Returns the report: why the job has ended, what each rank was doing, and its last events. `files` are
/// those of all ranks that have one, in rank order; `ignored` is the number of files of earlier jobs.
std::string format_post_mortem(const std::vector<dist::FlightFile>& files, int ignored);

/// Returns a timeline for Perfetto (https://ui.perfetto.dev): one process per rank, with a row for its phases
/// and one for the collectives of each communicator. A collective that has not completed ends where the
/// recording ends.
std::string timeline_of(const std::vector<dist::FlightFile>& files);

/// Reads the flight recorders in `directory`, or in its subdirectory post-mortem if `directory` is the output
/// of a training. Writes timeline.json next to them and returns the report. Throws DataError if there are
/// none, or if one is damaged.
std::string examine_post_mortem(const std::filesystem::path& directory);

}  // namespace convoy::doctor
