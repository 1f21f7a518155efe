#include "convoy/comm/bootstrap/gpu_sharing.h"

#include "convoy/kernels/base/option_error.h"

namespace convoy::dist {

void check_gpu_sharing(Rendezvous& rendezvous, const std::string& gpu, bool allow_shared_gpu) {
  const std::vector<std::string> gpus = rendezvous.all_gather(gpu);
  if (allow_shared_gpu) return;
  for (std::size_t rank = 0; rank < gpus.size(); ++rank) {
    const RankInfo& info = rendezvous.all()[rank];
    for (std::size_t other = 0; other < rank; ++other)
      if (!gpus[rank].empty() && gpus[rank] == gpus[other] && info.node == rendezvous.all()[other].node)
        throw ErrorWithRemedy<UsageError>(
            fmt::format("ranks {} and {} of host {}, which has {} ranks, would share one GPU ({})", other,
                        rank, info.host, info.local_world_size, gpus[rank]),
            "start at most one rank per GPU, or set allow_shared_gpu");
  }
}

}  // namespace convoy::dist
