#include "convoy/comm/bootstrap/thread_rendezvous.h"

#include <fmt/format.h>

#include <utility>

#include "convoy/comm/bootstrap/host.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {

ThreadRendezvous::ThreadRendezvous(std::shared_ptr<ThreadRounds<Contribution>> rounds,
                                   std::vector<RankInfo> all, int rank, double timeout_seconds)
    : Rendezvous(fmt::format("{} threads of one process", all.size())),
      rounds_(std::move(rounds)),
      timeout_(timeout_seconds) {
  set_positions(rank, std::move(all));
}

ThreadRendezvous::~ThreadRendezvous() {
  rounds_->abort(fmt::format("rank {} exited before finishing", info().rank));
}

std::vector<std::string> ThreadRendezvous::all_gather(const std::string& local) {
  rounds_->enter(info().rank, Deadline(timeout_), {.text = local, .shared = nullptr});
  std::vector<std::string> texts;
  for (int rank = 0; rank < rounds_->size(); ++rank) texts.push_back(rounds_->of(rank).text);
  return texts;
}

std::shared_ptr<void> ThreadRendezvous::share(std::shared_ptr<void> local) {
  constexpr double kForever = 1e9;  // seconds
  rounds_->enter(info().rank, Deadline(kForever), {.text = "", .shared = std::move(local)});
  return rounds_->of(0).shared;
}

std::vector<std::unique_ptr<ThreadRendezvous>> rendezvous_in_threads(int ranks, double timeout_seconds) {
  check(ranks >= 1, "number of ranks: found {}, expected 1 or more", ranks);
  const std::vector<HostId> hosts(static_cast<std::size_t>(ranks), this_host());
  const auto rounds = std::make_shared<ThreadRounds<ThreadRendezvous::Contribution>>(ranks);
  std::vector<std::unique_ptr<ThreadRendezvous>> by_rank;
  for (int rank = 0; rank < ranks; ++rank)
    by_rank.push_back(
        std::make_unique<ThreadRendezvous>(rounds, make_rank_infos(hosts, "threads"), rank, timeout_seconds));
  return by_rank;
}

}  // namespace convoy::dist
