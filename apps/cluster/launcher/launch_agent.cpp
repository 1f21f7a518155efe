// The agent of convoy-launch on one host: it starts the ranks of this host, passes on their output and how
// they end, and ends them when the launcher does.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <map>
#include <memory>

#include "convoy/apps/cluster/launcher/child_process.h"
#include "convoy/apps/cluster/launcher/launcher_messages.h"
#include "convoy/apps/common/output_queue.h"
#include "convoy/apps/common/signals.h"
#include "convoy/comm/bootstrap/environment.h"
#include "convoy/comm/core/deadline.h"
#include "convoy/comm/core/endpoint.h"
#include "convoy/engine/io/file.h"
#include "convoy/kernels/base/check.h"

namespace convoy::launcher {
namespace {

using Clock = std::chrono::steady_clock;

/// Returns a TCP port that no process of this machine uses.
int find_port() { return dist::local_port_of(dist::listen_at({.host = "0.0.0.0", .port = 0})); }

std::int64_t load(std::int64_t& shared) { return std::atomic_ref(shared).load(std::memory_order_relaxed); }

class HostAgent {
 public:
  HostAgent() : launcher_(dist::Socket(dup(STDIN_FILENO)), LineReader::kMaxMessageBytes) {}

  int run() {
    const StopSignals signals;
    send(kind::kReady, find_port());
    while (launcher_.is_open() || !ranks_.empty()) {
      wait();
      if (Clock::now() >= beat_at_) {
        for (const auto& [id, progress] : progress_) saved_ = std::max(saved_, load(progress->saved));
        send(kind::kBeat, saved_);
        beat_at_ = Clock::now() + kBeatPeriod;
      }
      if (const int signal = StopSignals::received(); signal != forwarded_) {
        send(kind::kDrain, signal);
        end_ranks(forwarded_ = signal);
      }
      if (launcher_.is_open()) {
        launcher_.read([&](const std::string& line) { handle(parse_message(line)); });
        if (!launcher_.is_open()) {  // it has ended, or the connection to it is lost
          send_to_ranks(SIGTERM);
          deadline_.emplace(grace_);
        }
      }
      read_ranks();
      if (ends_) kill_stopped_ranks();
      if (regroup_end_ && regroup_end_->passed()) end_waits();  // Wait::regroup
      if (deadline_ && deadline_->passed()) ranks_.clear();     // kills them
    }
    return 0;
  }

 private:
  void wait() const {
    std::vector<pollfd> descriptors;
    if (launcher_.is_open())
      descriptors.push_back({.fd = launcher_.descriptor(), .events = POLLIN, .revents = 0});
    for (const auto& [id, rank] : ranks_) rank->add_descriptors(descriptors);
    poll(descriptors.data(), descriptors.size(), 200);
  }

  void handle(const Message& message) {
    if (message.kind == kind::kStart) start(message.content.get<Start>());
    if (message.kind == kind::kSignal) end_ranks(message.content.get<int>());
    if (message.kind == kind::kFindPort) send(kind::kReady, find_port());
    if (message.kind == kind::kGroup) regroup(message.content.get<Group>());
    if (message.kind == kind::kEnd) end_waits();
    if (message.kind == kind::kFinish) ends_ = true;
    if (message.kind == kind::kKill)
      for (const int id : message.content.get<std::vector<int>>())
        if (const auto found = ranks_.find(id); found != ranks_.end()) found->second->send(SIGKILL);
  }

  void start(const Start& start) {
    grace_ = start.grace_seconds;
    std::map<std::string, std::string> environment = start.environment;
    for (const auto& [name, value] : dist::environment_variables())
      if (!name.starts_with("OMPI_") && !name.starts_with("PMI_") && !name.starts_with("PMIX_"))
        environment.emplace(name, value);  // the others describe the agent to MPI, and not the ranks
    for (const RankPlace& place : start.group.ranks) {
      for (const auto& [name, value] : variables_of(start.group, place)) environment[name] = value;
      const dist::Socket memory(memfd_create("convoy-progress", MFD_CLOEXEC));
      if (!memory || ftruncate(memory.descriptor(), sizeof(Progress)) != 0)
        fail<DeviceError>("shared memory of a rank: {}", std::strerror(errno));
      progress_[place.id] = std::static_pointer_cast<Progress>(io::map_file(
          memory.descriptor(), 0, sizeof(Progress), io::MapAccess::write, "shared memory of a rank"));
      *progress_[place.id] = {};
      ranks_[place.id] =
          std::make_unique<ChildProcess>(ChildOptions{.command = start.command,
                                                      .environment = environment,
                                                      .directory = start.directory,
                                                      .dies_with_parent = true,
                                                      .link_variable = kLinkVariable,
                                                      .inherited = memory.descriptor(),
                                                      .inherited_variable = kProgressVariable});
    }
  }

  /// Tells the ranks that wait for a new group that there is none.
  void end_waits() {
    regroup_end_.reset();
    for (const auto& [id, rank] : ranks_) rank->write_link(to_line(kind::kEnd));
  }

  /// Tells each rank its place in a new group.
  void regroup(const Group& group) {
    regroup_end_.reset();
    for (const RankPlace& place : group.ranks) {
      const auto found = ranks_.find(place.id);
      if (found == ranks_.end()) continue;
      Group own = group;
      own.ranks = {place};
      found->second->write_link(to_line(kind::kGroup, own));
    }
  }

  void read_ranks() {
    for (auto rank = ranks_.begin(); rank != ranks_.end();) {
      const int id = rank->first;
      const std::optional<ExitStatus> status = rank->second->poll_exit();  // before its last lines
      rank->second->read_lines([&](Stream stream, const std::string& line) {
        if (stream == Stream::link) {
          if (!regroup_end_) regroup_end_.emplace(kMaxGraces * grace_);
          return send(kind::kRegroup, Regroup{.id = id,
                                              .step = parse_message(line).content.get<int64_t>(),
                                              .saved = load(progress_.at(id)->saved)});
        }
        send(kind::kOutput, Output{.id = id, .is_error = stream == Stream::error, .text = line});
      });
      if (!status) {
        ++rank;
        continue;
      }
      Progress& progress = *progress_.at(id);
      send(kind::kExit, Exit{.id = id,
                             .code = status->code,
                             .signal = status->signal,
                             .step = load(progress.step),
                             .saved = load(progress.saved)});
      rank = ranks_.erase(rank);
    }
  }

  /// Kills the ranks that a signal stops for good while the others end.
  void kill_stopped_ranks() {
    std::vector<int> stopped;
    for (const auto& [id, rank] : ranks_)
      if (rank->is_stopped()) stopped.push_back(id);
    if (stopped.empty()) return stopped_end_.reset();
    if (!stopped_end_) stopped_end_.emplace(grace_);  // Wait::grace
    if (!stopped_end_->passed()) return;
    for (const int id : stopped) {
      const std::string text = fmt::format(
          "a signal has stopped this process for {:g} s while the ranks end: it is killed", grace_);
      send(kind::kOutput, Output{.id = id, .is_error = true, .text = text});
      ranks_.at(id)->send(SIGKILL);
    }
    stopped_end_.reset();
  }

  void end_ranks(int signal) {
    ends_ = true;
    send_to_ranks(signal);
  }

  void send_to_ranks(int signal) const {
    for (const auto& [id, rank] : ranks_) rank->send(signal);
  }

  void send(const char* kind, const nlohmann::json& content) {
    const std::string_view name = kind;
    output_.push(to_line(kind, content) + "\n", /*important=*/name != kind::kOutput && name != kind::kBeat);
  }

  static constexpr std::chrono::seconds kBeatPeriod{1};
  static constexpr double kMaxGraces = 3;  // after two, the launcher has lost the hosts of late ranks

  OutputQueue output_{STDOUT_FILENO};
  LineReader launcher_;
  std::map<int, std::unique_ptr<ChildProcess>> ranks_;  // by id
  std::map<int, std::shared_ptr<Progress>> progress_;   // by id
  std::int64_t saved_ = -1;                             // Progress::saved of all ranks
  double grace_ = 30;                                   // seconds
  const dist::Suspension suspension_;
  std::optional<dist::Deadline> regroup_end_;  // for the answer to ranks that wait for a new group
  bool ends_ = false;  // the ranks have a signal to end, or one has ended with success
  std::optional<dist::Deadline> stopped_end_;  // for ranks that are stopped to continue
  std::optional<dist::Deadline> deadline_;
  Clock::time_point beat_at_{};
  int forwarded_ = 0;  // the last signal that was sent to all ranks
};

}  // namespace

int run_host_agent() {
  std::signal(SIGPIPE, SIG_IGN);
  return HostAgent().run();
}

}  // namespace convoy::launcher
