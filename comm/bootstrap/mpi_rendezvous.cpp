#include "convoy/comm/bootstrap/mpi_rendezvous.h"

#include <chrono>
#include <numeric>
#include <thread>

#include "convoy/comm/bootstrap/host.h"
#include "convoy/comm/bootstrap/mpi_links.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

// Timeouts of the shutdown in seconds. After an error the other ranks may never reach it.
constexpr double kShutdownSeconds = 600;
constexpr double kShutdownSecondsAfterError = 1;

}  // namespace

MpiRendezvous::MpiRendezvous(const RendezvousPlan& plan, const RendezvousOptions& options)
    : Rendezvous(plan.note), timeout_(options.timeout_seconds), session_(std::make_shared<MpiSession>()) {
  // If the program was started by the mpirun of another MPI, each process is an MPI job of one rank.
  check(plan.launch.world_size == 0 || plan.launch.world_size == session_->size(),
        "{}: found rank {} of {}, but {} reports a world size of {}; use the mpirun of that MPI, or "
        "a rendezvous at tcp://HOST:PORT",
        plan.note, plan.launch.rank, plan.launch.world_size, MpiSession::library(), session_->size());
  std::vector<int> all_ranks(static_cast<std::size_t>(session_->size()));
  std::iota(all_ranks.begin(), all_ranks.end(), 0);
  links_ = std::make_unique<MpiLinks>(session_, all_ranks, MpiSession::kRendezvousTag);
  std::vector<HostId> hosts;
  for (const std::string& text : all_gather(to_string(this_host()))) hosts.push_back(parse_host(text));
  set_positions(session_->rank(), make_rank_infos(hosts, plan.source));
}

MpiRendezvous::~MpiRendezvous() {
  if (std::uncaught_exceptions() != exceptions_)
    links_->abort(fmt::format("rank {} exited before finishing", session_->rank()));
  if (session_->is_abandoned()) {
    // mpirun ends all ranks when the first one exits. This is time for the others to print their errors.
    std::this_thread::sleep_for(std::chrono::duration<double>(kShutdownSecondsAfterError));
    return;
  }
  MpiLinks shutdown_links(session_, links_->world_ranks(), MpiSession::kShutdownTag);
  try {
    exchange_texts(shutdown_links, "",
                   Deadline(session_->is_broken() ? kShutdownSecondsAfterError : kShutdownSeconds));
    session_->allow_finalize();
  } catch (const std::exception& error) {
    shutdown_links.abort(error.what());  // ends the wait of ranks that wait for this one
  }
}

std::vector<std::string> MpiRendezvous::all_gather(const std::string& local) {
  return exchange_texts(*links_, local, Deadline(timeout_));
}

std::unique_ptr<MessageLinks> MpiRendezvous::new_links() {
  const std::string name = all_gather(links_->new_group_name()).front();
  return links_->make_group(links_->world_ranks(), name, Deadline(timeout_));
}

std::unique_ptr<Rendezvous> rendezvous_by_mpi(const RendezvousPlan& plan, const RendezvousOptions& options) {
  return std::make_unique<MpiRendezvous>(plan, options);
}

}  // namespace convoy::dist
