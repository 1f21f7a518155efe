#include "comm/gpu_sharing.h"

#include "kernels/runtime/check.h"

namespace convoy {

void check_gpu_sharing(Rendezvous& rendezvous, const std::string& gpu, bool allow_shared_gpu) {
  const std::vector<std::string> gpus = rendezvous.all_gather(gpu);
  if (allow_shared_gpu) return;
  for (std::size_t rank = 0; rank < gpus.size(); ++rank) {
    const RankInfo& info = rendezvous.all()[rank];
    for (std::size_t before = 0; before < rank; ++before)
      check(gpus[rank].empty() || gpus[rank] != gpus[before] || info.node != rendezvous.all()[before].node,
            "ranks {} and {} of host {} would share one GPU ({}): start as many ranks a host as it has GPUs "
            "(it "
            "has {} ranks now), or say --allow-shared-gpu",
            before, rank, info.host, gpus[rank], info.local_world);
  }
}

}  // namespace convoy
