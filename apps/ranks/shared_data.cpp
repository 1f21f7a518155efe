#include "convoy/apps/ranks/shared_data.h"

#include "convoy/comm/parallel/broadcast.h"

namespace convoy {
namespace {

/// Returns the processes of this host, seen from this rank.
data::HostRanks host_ranks(Job& job) {
  if (job.is_alone() || job.in_threads()) return {};
  dist::Communicator& host = *job.host();
  return {.rank = host.rank(), .size = host.size(), .all_gather = [&host](const std::string& local) {
            return dist::all_gather_texts(host, local);
          }};
}

}  // namespace

std::shared_ptr<const data::DataSet> read_shared_data(Job& job, const DataLocation& location,
                                                      const DataOptions& options, std::uint64_t seed) {
  const dist::PhaseScope phase(&job.control_plane(), dist::Phase::read);
  const data::HostRanks host = options.image_cache.empty() ? data::HostRanks() : host_ranks(job);
  DataOptions own = options;
  own.checks_files = job.is_first() || job.in_threads();
  if (job.in_threads()) own.workers *= job.info().world_size;  // those of the ranks that wait for this one
  return job.make_once<data::DataSet>([&] { return read_data(location, own, seed, host); });
}

}  // namespace convoy
