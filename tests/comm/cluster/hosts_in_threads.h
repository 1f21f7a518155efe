// A rendezvous of threads on several pretended hosts.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "convoy/comm/bootstrap/thread_rendezvous.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {

/// A rendezvous of threads that places `ranks_per_host` ranks on each host.
class HostsInThreads final : public Rendezvous {
 public:
  HostsInThreads(std::unique_ptr<ThreadRendezvous> threads, int ranks_per_host)
      : Rendezvous(threads->note()), threads_(std::move(threads)) {
    std::vector<RankInfo> all = threads_->all();
    const int world = static_cast<int>(all.size());
    for (RankInfo& info : all) {
      info.node = info.rank / ranks_per_host;
      info.nodes = (world + ranks_per_host - 1) / ranks_per_host;
      info.local_rank = info.rank % ranks_per_host;
      info.local_world_size = std::min(ranks_per_host, world - info.node * ranks_per_host);
      info.host = fmt::format("host-{}", info.node);
      info.address = "127.0.0.1";
    }
    set_positions(threads_->info().rank, std::move(all));
  }
  std::vector<std::string> all_gather(const std::string& local) override {
    return threads_->all_gather(local);
  }

 private:
  std::unique_ptr<ThreadRendezvous> threads_;
};

}  // namespace convoy::dist
