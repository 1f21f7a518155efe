#include "convoy/comm/cluster/control/host_memory.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

#include "convoy/comm/cluster/control/thread_stack.h"
#include "convoy/comm/cluster/net/secret.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

/// The part of /proc/PID/stat that matters here.
struct ProcessState {
  char state = 0;     // R, S, D, T (stopped), t (stopped by a debugger), Z (exited)
  int exit_code = 0;  // as of wait(), of a process that exits or has exited, if this user may see it
};

std::optional<ProcessState> read_process_state(int process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string text;
  std::getline(file, text, '\0');  // all of it; an iterator would throw where the process exits meanwhile
  const std::size_t name_end = text.rfind(')');  // the name may contain spaces
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  ProcessState found;
  fields >> found.state;
  constexpr int kExitCodeField = 52, kStateField = 3;  // proc(5)
  std::string field;
  for (int i = kStateField; i < kExitCodeField && fields >> field; ++i)
    found.exit_code = std::atoi(field.c_str());
  return found;
}

/// Sets the life of a rank, and the signal that has ended it.
void observe_process(const HostMemory& memory, int index, RankStatus& status) {
  using Life = RankStatus::Life;
  RankSlot& slot = memory.slot(index);
  if (slot.death.load() == 0 && !memory.is_alive(index)) {
    const std::optional<ProcessState> process = read_process_state(status.process);
    // The kernel closes the files of a process, by which its death is noticed, before the state becomes Z.
    const bool is_known = process && WIFSIGNALED(process->exit_code);
    std::int32_t alive = 0;
    slot.death.compare_exchange_strong(alive, is_known ? 2 + WTERMSIG(process->exit_code) : 1);
  }
  if (slot.state.load() == RankSlot::State::left) {  // read after the death: a rank leaves before it exits
    status.life = Life::left;
  } else if (const std::int32_t death = slot.death.load(); death != 0) {
    status.life = Life::dead;
    status.signal = death - 2 > 0 ? death - 2 : 0;
  } else if (const std::optional<ProcessState> process =
                 status.process == getpid() ? std::nullopt : read_process_state(status.process);
             process && (process->state == 'T' || process->state == 't')) {
    status.life = process->state == 'T' ? Life::stopped : Life::traced;
  }
}

double seconds_since(std::int64_t time, std::int64_t now) {
  return static_cast<double>(std::max<std::int64_t>(now - time, 0)) * 1e-9;
}

/// Returns "all-reduce 417 (1024 f32), bucket 3": the collective with this number of the communicator at
/// index `communicator` of the slot, as its flight recorder has it.
std::string collective_text(const RankSlot& slot, std::size_t communicator, std::uint64_t number) {
  for (const FlightEvent& event : slot.ring.events()) {
    const bool is_collective =
        event.kind == FlightEvent::Kind::launched || event.kind == FlightEvent::Kind::started;
    if (!is_collective || event.communicator != communicator || event.collective.number != number) continue;
    return to_string(event.collective);
  }
  return fmt::format("collective {}", number);
}

}  // namespace

// The kernel provides the memory filled with zeros, which is a valid state of every member.
static_assert(std::atomic<std::int64_t>::is_always_lock_free && std::atomic<Phase>::is_always_lock_free);

HostMemory::HostMemory(Rendezvous& rendezvous) : index_(rendezvous.info().local_rank) {
  for (const RankInfo& other : rendezvous.all())
    if (other.node == rendezvous.info().node) ranks_.push_back(other.rank);
  std::string failure;
  try {
    if (index_ == 0)
      memory_ = std::make_unique<SharedMemory>(sizeof(HostSlot) + ranks_.size() * sizeof(RankSlot));
  } catch (const std::exception& error) {
    failure = error.what();
  }
  // Also when this rank failed: the others wait for it.
  const std::vector<std::string> texts = rendezvous.all_gather(
      (rendezvous.info().rank == 0 ? random_token() : "") + "\n" + (memory_ ? memory_->address() : ""));
  job_ = texts.front().substr(0, texts.front().find('\n'));
  const std::string& of_host = texts[static_cast<std::size_t>(ranks_.front())];
  const std::string address = of_host.substr(of_host.find('\n') + 1);
  try {
    if (address.empty()) fail<PeerError>("rank {} has no shared memory", ranks_.front());
    if (index_ != 0) memory_ = std::make_unique<SharedMemory>(address);
    memory_->hold(index_);
  } catch (const std::exception& error) {
    if (failure.empty()) failure = error.what();
  }
  const std::vector<std::string> failures = rendezvous.all_gather(failure);
  for (std::size_t other = 0; other < failures.size(); ++other)
    if (!failures[other].empty()) fail<PeerError>("control plane of rank {}: {}", other, failures[other]);
}

HostSlot& HostMemory::host() const { return *reinterpret_cast<HostSlot*>(memory_->data()); }

RankSlot& HostMemory::slot(int index) const {
  return reinterpret_cast<RankSlot*>(memory_->data() + sizeof(HostSlot))[index];
}

RankSlot& HostMemory::process_slot(const RankSlot& rank) const {
  int index = 0;
  while (slot(index).process.load() != rank.process.load()) ++index;
  return slot(index);
}

std::vector<RankStatus> HostMemory::observe(const std::vector<RankInfo>& all) const {
  std::vector<RankStatus> statuses;
  for (int index = 0; index < ranks(); ++index) {
    RankSlot& rank = slot(index);
    const RankInfo& info = all[static_cast<std::size_t>(rank_at(index))];
    RankStatus status{.rank = info.rank, .host = info.host, .process = rank.process.load()};
    observe_process(*this, index, status);
    const std::int64_t now = steady_nanoseconds();
    status.phase = rank.phase.load();
    status.step = rank.step.load();
    status.phase_seconds = seconds_since(rank.phase_since.load(), now);
    status.progress_seconds = seconds_since(rank.progress.load(), now);
    status.beat_seconds = seconds_since(rank.beat.load(), now);
    status.io_seconds = std::min(status.phase_seconds, seconds_since(process_slot(rank).io.load(), now));
    status.stop_points = rank.stop_points.load();
    status.stop_code = rank.stop_code.load();
    status.stack = status.life == RankStatus::Life::stopped ? kernel_state_of(status.process, status.process)
                                                            : rank.stack.get();
    status.failure = rank.failure.get();
    status.failed_seconds = seconds_since(rank.failed_at.load(), now);
    status.failed_by_peer = rank.failed_by_peer.load() != 0;
    status.pace = {.block = rank.block.load(),
                   .step_seconds = rank.step_seconds.load(),
                   .own_seconds = {rank.own_seconds.begin(), rank.own_seconds.end()}};
    for (std::size_t c = 0; c < RankSlot::kCommunicators; ++c) {
      const RankSlot::Collectives& collectives = rank.communicators[c];
      const std::string name = collectives.name.get();
      if (name.empty()) continue;
      status.progress.push_back({name, collectives.launched.load(), collectives.completed.load()});
      const std::uint64_t executing = collectives.executing.load();
      if (executing == 0) continue;
      status.collectives.push_back({.communicator = name,
                                    .number = executing - 1,
                                    .text = "",
                                    .seconds = seconds_since(collectives.executing_since.load(), now)});
      // Reading the ring takes longer than all else here and is needed only for messages.
      constexpr double kWorthTelling = 0.2;
      RankStatus::Collective& last = status.collectives.back();
      const bool is_told = last.seconds > kWorthTelling || !status.failure.empty();
      last.text = is_told ? collective_text(rank, c, last.number) : fmt::format("collective {}", last.number);
    }
    statuses.push_back(std::move(status));
  }
  return statuses;
}

void HostMemory::wake() const noexcept {
  host().changes.fetch_add(1);
  futex_wake_all(host().changes);
}

}  // namespace convoy::dist
