#include "comm/mpi_rendezvous.h"

#include <numeric>

#include "comm/host.h"
#include "comm/mpi_links.h"
#include "kernels/runtime/check.h"

namespace convoy {
namespace {

// Seconds until all ranks have come to the end. Where something went wrong there is little to wait for.
constexpr double kFarewell = 600;
constexpr double kFarewellOfTheBroken = 1;

}  // namespace

MpiRendezvous::MpiRendezvous(const MeetingPlan& plan, const RendezvousOptions& options)
    : timeout_(options.timeout_seconds), note_(plan.note), session_(std::make_shared<MpiSession>()) {
  // A program that the mpirun of another MPI has started is a job of one, N times.
  check(plan.world == 0 || plan.world == session_->size(),
        "{}: rank {} of {}, but {} knows of {}: use the mpirun of that MPI, or --rendezvous tcp://HOST:PORT",
        plan.note, plan.rank, plan.world, MpiSession::library(), session_->size());
  std::vector<int> everybody(static_cast<std::size_t>(session_->size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  links_ = std::make_unique<MpiLinks>(session_, everybody, MpiSession::kMeetingTag);
  std::vector<HostId> hosts;
  for (const std::string& text : all_gather(text_of(this_host()))) hosts.push_back(parse_host(text));
  all_ = infos_of(hosts, plan.source);
}

MpiRendezvous::~MpiRendezvous() {
  if (std::uncaught_exceptions() != exceptions_)
    links_->abort(fmt::format("rank {} left before the end", session_->rank()));
  MpiLinks farewell(session_, links_->world_ranks(), MpiSession::kFarewellTag);
  try {
    exchange_texts(farewell, "", Deadline(session_->is_broken() ? kFarewellOfTheBroken : kFarewell));
    session_->allow_finalize();
  } catch (const std::exception& error) {
    farewell.abort(error.what());  // whoever waits for this rank's farewell need not any more
  }
}

const RankInfo& MpiRendezvous::info() const { return all_[static_cast<std::size_t>(session_->rank())]; }

std::vector<std::string> MpiRendezvous::all_gather(const std::string& mine) {
  return exchange_texts(*links_, mine, Deadline(timeout_));
}

std::unique_ptr<MessageLinks> MpiRendezvous::new_links() {
  const std::string name = all_gather(links_->new_group_name()).front();
  return links_->make_group(links_->world_ranks(), name, Deadline(timeout_));
}

std::unique_ptr<Rendezvous> meet_by_mpi(const MeetingPlan& plan, const RendezvousOptions& options) {
  return std::make_unique<MpiRendezvous>(plan, options);
}

}  // namespace convoy
