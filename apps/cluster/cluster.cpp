// Composes the component cluster for the ranks of a program, and connects a rank to convoy-launch if that has started it.
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "convoy/apps/cluster/launcher/launcher_messages.h"
#include "convoy/apps/ranks/cluster.h"
#include "convoy/comm/cluster/control/control_plane.h"
#include "convoy/comm/cluster/hierarchical/hierarchical_communicator.h"
#include "convoy/comm/cluster/net/socket.h"
#include "convoy/comm/cluster/store/store_rendezvous.h"
#include "convoy/comm/cluster/tcp/tcp_communicator.h"
#include "convoy/engine/io/file.h"

namespace convoy {
namespace {

/// Under convoy-launch, which has chosen the port, a port in use is no error of the user.
std::unique_ptr<dist::Rendezvous> rendezvous_by_store(const dist::RendezvousPlan& plan,
                                                      const dist::RendezvousOptions& options) try {
  return dist::rendezvous_by_store(plan, options);
} catch (const dist::PortInUse& error) {
  if (std::getenv(launcher::kLinkVariable) == nullptr) throw;
  throw PeerError(error.what());
}

/// The other ranks may wait in exchanges of the rendezvous, before the control plane can tell them the cause.
std::unique_ptr<dist::JobControl> connect(dist::Rendezvous& rendezvous, dist::ControlOptions options) try {
  return dist::connect_control_plane(rendezvous, std::move(options));
} catch (const std::exception& error) {
  dist::tell_failure(rendezvous, error.what());
  throw;
}

int number_in(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

/// Returns the next line, without its end; an empty string if the agent has ended.
std::string read_line(int descriptor) {
  std::string line;
  while (true) {
    char next = 0;
    const ssize_t count = read(descriptor, &next, 1);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return "";
    if (next == '\n') return line;
    line += next;
  }
}

std::optional<std::map<std::string, std::string>> request_group(std::int64_t step) {
  const int link = number_in(launcher::kLinkVariable, -1);
  const std::string request = launcher::to_line(launcher::kind::kRegroup, step) + "\n";
  if (write(link, request.data(), request.size()) != static_cast<ssize_t>(request.size()))
    return std::nullopt;
  // Wait::regroup: the agent closes the link if it ends.
  const launcher::Message answer = launcher::parse_message(read_line(link));
  if (answer.kind != launcher::kind::kGroup) return std::nullopt;
  const auto group = answer.content.get<launcher::Group>();
  std::map<std::string, std::string> variables = variables_of(group, group.ranks.at(0));
  variables[kGroupSeconds] = std::to_string(group.seconds);
  return variables;
}

/// Returns the memory that convoy-launch has given to this process; null without it.
std::shared_ptr<void> progress_memory() {
  const int descriptor = number_in(launcher::kProgressVariable, -1);
  struct stat status {};
  // A process that was started by another one may have the variable, and another file under this number.
  const bool is_memory = descriptor >= 0 && fstat(descriptor, &status) == 0 && status.st_nlink == 0 &&
                         status.st_size == sizeof(launcher::Progress);
  return is_memory ? io::map_file(descriptor, 0, sizeof(launcher::Progress), io::MapAccess::write, "progress")
                   : nullptr;
}

void report_progress(std::int64_t step, std::int64_t saved_step) {
  static const auto kProgress = std::static_pointer_cast<launcher::Progress>(progress_memory());
  if (!kProgress) return;
  std::atomic_ref(kProgress->step).store(step, std::memory_order_relaxed);
  std::atomic_ref(kProgress->saved).store(saved_step, std::memory_order_relaxed);
}

}  // namespace

const Cluster& cluster() {
  static const Cluster kCluster{
      .by_store = rendezvous_by_store,
      .communicators = {{"tcp", dist::make_tcp_communicator},
                        {"hierarchical",
                         [](dist::Rendezvous& rendezvous, const dist::CommOptions& options) {
                           return dist::make_hierarchical_communicator(rendezvous, {.comm = options});
                         }}},
      .connect = connect,
      .restarts_of_job = [] { return number_in(launcher::kRestartsVariable, 0); },
      .may_regroup =
          [] {
            return number_in(launcher::kRegroupVariable, 0) != 0 &&
                   number_in(launcher::kLinkVariable, -1) >= 0;
          },
      .request_group = request_group,
      .report_progress = report_progress};
  return kCluster;
}

}  // namespace convoy
