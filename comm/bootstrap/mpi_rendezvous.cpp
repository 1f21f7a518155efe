#include "convoy/comm/bootstrap/mpi_rendezvous.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <numeric>
#include <thread>

#include "convoy/comm/bootstrap/host.h"
#include "convoy/comm/bootstrap/mpi_links.h"
#include "convoy/comm/core/collective.h"
#include "convoy/comm/core/deadline.h"
#include "convoy/comm/core/waits.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

constexpr double kShutdownSecondsAfterError = 1;  // the other ranks may never reach the shutdown

/// Opens, by bind() or connect(), the socket that a rank of this host has while it is in MPI or after it. Its
/// abstract name disappears with the process. Returns the descriptor; -1 if that fails.
int open_mark(decltype(connect)* open, const Launch& launch, int local_rank) {
  const std::string name = fmt::format(
      "convoy-mpi-{}-{}", launch.job.empty() ? std::to_string(getppid()) : launch.job, local_rank);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  const int mark = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (open(mark, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return mark;
  close(mark);
  return -1;
}

/// Returns the ranks that an MPI call may wait for: "local rank 1 of vm has not called it".
std::string missing_ranks(const Launch& launch) {
  std::vector<int> missing;
  for (int local = 0; local < launch.local_world_size.value_or(0); ++local)
    if (const int mark = open_mark(connect, launch, local); mark >= 0)
      close(mark);
    else
      missing.push_back(local);
  if (missing.empty()) return fmt::format("all ranks of {} have called it", this_host().name);
  return fmt::format("local {} of {} {} not called it", format_ranks(missing), this_host().name,
                     missing.size() == 1 ? "has" : "have");
}

/// Returns a thread that ends the process with code 4 if it still exists after `seconds` (Wait::mpi): MPI_Init()
/// and MPI_Finalize() wait for all ranks without a limit, and cannot be interrupted.
std::jthread limit_call(const char* call, const Launch& launch, double seconds) {
  return std::jthread([=](const std::stop_token& stop) {
    const Suspension suspension;
    const Deadline deadline(seconds);
    while (!deadline.passed()) {
      if (stop.stop_requested()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    fmt::print(stderr, "{}: error: [rank {}] {} has not returned after {} s: {}\n",
               program_invocation_short_name, launch.rank, call, seconds, missing_ranks(launch));
    // The mpirun of Open MPI 4 hangs or crashes if ranks leave such a call at the same moment. It ends those that wait.
    std::this_thread::sleep_for(std::chrono::milliseconds(200 * std::min(launch.rank, 10)));
    _exit(static_cast<int>(ExitCode::peer));
  });
}

std::shared_ptr<MpiSession> start_session(const Launch& launch, double seconds) {
  open_mark(bind, launch, launch.local_rank.value_or(0));  // until this process exits
  const std::jthread limit = limit_call("MPI_Init", launch, seconds);
  return std::make_shared<MpiSession>();
}

}  // namespace

MpiRendezvous::MpiRendezvous(const RendezvousPlan& plan, const RendezvousOptions& options)
    : Rendezvous(plan.note),
      timeout_(options.timeout_seconds),
      launch_(plan.launch),
      session_(start_session(plan.launch, timeout_)) {
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
                   Deadline(session_->is_broken() ? kShutdownSecondsAfterError : timeout_));
    session_->allow_finalize();
    finalize_limit_ = limit_call("MPI_Finalize", launch_, timeout_);
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
