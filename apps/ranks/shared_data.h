// Reading of a data set by all ranks of a job.
#pragma once

#include <memory>

#include "convoy/apps/data/data_source.h"
#include "convoy/apps/ranks/job.h"

namespace convoy {

/// Reads the data set as read_data() does, once for all ranks of this process. With --image-cache, the
/// processes of a host decode a share of the images each. Collective call. Throws what read_data() throws,
/// and PeerError if another rank of the host fails.
std::shared_ptr<const data::DataSet> read_shared_data(Job& job, const DataLocation& location,
                                                      const DataOptions& options, std::uint64_t seed);

}  // namespace convoy
