#include "convoy/comm/cluster/control/control_plane.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "convoy/comm/cluster/control/host_agent.h"
#include "convoy/comm/cluster/control/host_memory.h"
#include "convoy/comm/cluster/control/thread_stack.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/runtime/stream_wait.h"

namespace convoy::dist {
namespace {

constexpr double kDumpSeconds = 2;        // for the flight recorders to be written
constexpr double kMovedBytes = 64 << 10;  // count as progress of a rank that reads or writes files
constexpr std::chrono::seconds kReadBytesPeriod(1);
constexpr double kMinBlockSteps = 4;  // also of long ones, so that one of them is no block

enum : std::uint32_t { kNotDumped, kDumping, kDumped };  // values of HostSlot::is_dumped

/// Returns an event of this moment, with the step and the phase of the rank.
FlightEvent event_now(const RankSlot& rank, FlightEvent::Kind kind) {
  return {.time = steady_nanoseconds(), .step = rank.step.load(), .kind = kind, .phase = rank.phase.load()};
}

/// Returns the seconds in a variable of the environment.
double seconds_in(const char* variable, double otherwise) {
  const char* const text = std::getenv(variable);
  char* end = nullptr;
  const double seconds = text == nullptr ? otherwise : std::strtod(text, &end);
  check(text == nullptr || (*end == '\0' && seconds >= 2), "{}={}: expected seconds, at least 2", variable,
        text == nullptr ? "" : text);
  return seconds;
}

/// Returns the bytes that `task`, "self" or "thread-self", has read and written (proc(5)).
double bytes_of(const char* task) {
  std::ifstream file(fmt::format("/proc/{}/io", task));
  double sum = 0, value = 0;
  for (std::string name; file >> name >> value;)
    if (!name.starts_with("sysc")) sum += value;
  return sum;
}

/// Publishes the collectives of one communicator. Shares the memory, because a communicator may outlive the
/// control plane.
class Monitor final : public CollectiveMonitor {
 public:
  Monitor(std::shared_ptr<HostMemory> memory, std::size_t index)
      : memory_(std::move(memory)), index_(index) {}

  void launched(const CollectiveSignature& collective) noexcept override {
    mine().launched = collective.number + 1;
    add(FlightEvent::Kind::launched, collective);
  }
  void started(const CollectiveSignature& collective) noexcept override {
    mine().executing_since = steady_nanoseconds();
    mine().executing = collective.number + 1;
    add(FlightEvent::Kind::started, collective);
  }
  void progressed() noexcept override { memory_->mine().progress = steady_nanoseconds(); }
  void completed(const CollectiveSignature& collective) noexcept override {
    mine().completed = collective.number + 1;
    mine().executing = 0;
    add(FlightEvent::Kind::completed, collective);
    progressed();
  }

 private:
  RankSlot::Collectives& mine() { return memory_->mine().communicators[index_]; }
  void add(FlightEvent::Kind kind, const CollectiveSignature& collective) noexcept {
    RankSlot& slot = memory_->mine();
    slot.ring.add({.time = steady_nanoseconds(),
                   .step = slot.step.load(),
                   .collective = collective,
                   .kind = kind,
                   .phase = slot.phase.load(),
                   .communicator = static_cast<std::uint8_t>(index_)});
  }

  std::shared_ptr<HostMemory> memory_;
  std::size_t index_;
};

/// See connect_control_plane().
class ControlPlane final : public JobControl {
 public:
  ControlPlane(Rendezvous& rendezvous, ControlOptions options)
      : options_(std::move(options)), all_(rendezvous.all()), rank_(rendezvous.info().rank) {
    const Deadline deadline(options_.timeout_seconds);
    memory_ = std::make_shared<HostMemory>(rendezvous);
    RankSlot& mine = memory_->mine();
    mine.process = getpid();
    mine.beat = mine.io = steady_nanoseconds();
    mine.state = RankSlot::State::running;
    account();
    enter(Phase::start);
    std::unique_ptr<AgentTree> tree = AgentTree::connect(rendezvous, deadline);
    rendezvous.barrier();  // all slots are filled
    if (all_.size() == 1) return;
    agent_ = std::make_unique<HostAgent>(
        *memory_, all_, std::move(tree),
        HostAgent::Options{
            .timeout_seconds = options_.timeout_seconds,
            .io_timeout_seconds = options_.io_timeout_seconds,
            .host_timeout_seconds = seconds_in(kHostTimeoutVariable, row_of(Wait::host).seconds),
            .warn_after_seconds = options_.warn_after_seconds,
            .window_seconds = window_seconds_,
            .on_warning = options_.on_warning,
            .on_straggler = [this](const std::string& text) {
              const std::lock_guard lock(mutex_);
              stragglers_.push_back(text);
            }});
    thread_ = std::thread([this] { watch(); });
  }

  /// Calls leave().
  ~ControlPlane() override { leave(); }

  Phase enter(Phase phase) override {
    RankSlot& mine = memory_->mine();
    account();
    const Phase previous = mine.phase.exchange(phase);
    const bool is_change = previous != phase || mine.phase_since.load() == 0;
    const FlightEvent entered = event_now(mine, FlightEvent::Kind::phase);
    mine.progress = entered.time;
    if (!is_change) return previous;
    mine.phase_since = entered.time;
    mine.ring.add(entered);
    return previous;
  }

  void set_step(std::int64_t step) override {
    RankSlot& mine = memory_->mine();
    mine.step = step;
    account();
    ++block_steps_;
    if (accounted_at_ < block_ends_at_ || block_steps_ < kMinBlockSteps) return;
    const double steps = std::exchange(block_steps_, 0);
    mine.step_seconds = std::exchange(in_steps_, 0) / steps;
    for (std::size_t phase = 0; phase < own_.size(); ++phase)
      mine.own_seconds[phase] = std::exchange(own_[phase], 0) / steps;
    ++mine.block;
    block_ends_at_ =
        accounted_at_ + static_cast<std::int64_t>(1e9 * window_seconds_ / StragglerWatch::kBlocks);
  }
  /// Blocks only if a rank has a code: until the ranks agree on the point at which they stop, which is this
  /// one or the next one.
  int stop_code(int local) override {
    if (agent_ == nullptr) return local;
    RankSlot& mine = memory_->mine();
    HostSlot& host = memory_->host();
    // The order matters (HostAgent::decide_stop): first publish the point, then look for a request.
    const std::uint64_t point = mine.stop_points.fetch_add(1) + 1;
    set_stop_code(local);
    if (host.stop_requested.load() == 0) return 0;
    const Deadline deadline(options_.timeout_seconds, floor_.get());  // Wait::stop
    while (host.stop_point.load() == 0) {
      const std::uint32_t seen = host.changes.load();
      if (host.stop_point.load() == 0) futex_wait(host.changes, seen, HostAgent::kPeriod);
      if (const std::string verdict = memory_->get(kVerdict); !verdict.empty()) throw PeerError(verdict);
      if (deadline.passed())
        convoy::fail<PeerError>("rank {} waited {} s for the ranks to agree where they stop", rank_,
                                deadline.seconds());
    }
    return point >= host.stop_point.load() ? host.stop_code.load() : 0;
  }

  /// Also passes the warning on to rank 0, whose on_warning receives it with the name of the rank: at most
  /// RankSlot::kWarnings warnings of a rank, without those that rank 0 has as well.
  void warn(const std::string& text) override {
    RankSlot& mine = memory_->mine();
    FlightEvent warning = event_now(mine, FlightEvent::Kind::warning);
    warning.set_text(text);
    mine.ring.add(warning);
    for (auto& place : mine.warnings)
      if (place.set(text)) break;
  }

  std::vector<std::string> take_warnings() override {
    const std::lock_guard lock(mutex_);
    return std::exchange(stragglers_, {});
  }

  /// Returns null for a fifth name.
  std::shared_ptr<CollectiveMonitor> monitor(const std::string& name) override {
    for (std::size_t i = 0; i < RankSlot::kCommunicators; ++i)
      if (memory_->mine().communicators[i].name.set(name)) return std::make_shared<Monitor>(memory_, i);
    return nullptr;
  }

  std::shared_ptr<const DeadlineFloor> deadline_floor() const override { return floor_; }
  std::function<void(std::size_t)> allocation_recorder() const override {
    return [memory = memory_](std::size_t bytes) {
      FlightEvent allocation = event_now(memory->mine(), FlightEvent::Kind::allocation);
      allocation.collective.count = static_cast<std::int64_t>(bytes);
      memory->mine().ring.add(allocation);
    };
  }

  void fail(const std::string& reason, bool is_consequence) noexcept override {
    RankSlot& mine = memory_->mine();
    if (!mine.failure.get().empty()) return;
    FlightEvent failure = event_now(mine, FlightEvent::Kind::failure);
    failure.set_text(reason);
    mine.ring.add(failure);
    mine.failed_at = failure.time;
    mine.failed_by_peer = is_consequence ? 1 : 0;
    mine.failure.set(reason);
    if (agent_ == nullptr && memory_->set(kVerdict, reason)) dump();
    memory_->wake();
  }

  std::string verdict(double wait_seconds) override {
    HostSlot& host = memory_->host();
    wait_until([&] { return !memory_->get(kVerdict).empty(); }, wait_seconds);
    const std::string verdict = memory_->get(kVerdict);
    if (!verdict.empty() && !memory_->get(kDumpDirectory).empty())
      wait_until([&] { return host.is_dumped.load() == kDumped; }, kDumpSeconds);
    return verdict;
  }

  void set_dump_directory(const std::filesystem::path& directory) override {
    memory_->set(kDumpDirectory, std::filesystem::absolute(directory).string());
  }

  void leave() override {
    memory_->mine().state = RankSlot::State::left;
    is_leaving_ = true;
    memory_->wake();
    if (thread_.joinable()) thread_.join();
    wait_until([&] { return memory_->host().is_dumped.load() != kDumping; }, kDumpSeconds);
  }

 private:
  /// Adds the time since the last call to that of the present phase.
  void account() {
    const std::int64_t now = steady_nanoseconds(), waited = StreamWait::total.count();
    const double passed = 1e-9 * static_cast<double>(now - std::exchange(accounted_at_, now));
    const double own = passed - 1e-9 * static_cast<double>(waited - std::exchange(waited_, waited));
    const int phase = static_cast<int>(memory_->mine().phase.load()) - kFirstStepPhase;
    if (phase < 0 || phase >= kStepPhases) return;
    in_steps_ += passed;
    own_[static_cast<std::size_t>(phase)] += own;
  }

  template <class F>
  void wait_until(const F& is_done, double seconds) {
    HostSlot& host = memory_->host();
    for (const Deadline deadline(seconds); !is_done() && !deadline.passed();) {
      const std::uint32_t seen = host.changes.load();
      if (!is_done())
        futex_wait(host.changes, seen,
                   std::min<std::chrono::nanoseconds>(deadline.left(), HostAgent::kPeriod));
    }
  }

  void set_stop_code(int code) {
    if (code != 0 && memory_->mine().stop_code.exchange(code) == 0) memory_->wake();
  }

  void watch() {
    HostSlot& host = memory_->host();
    const Suspension suspension;
    while (!is_leaving_) {
      const std::uint32_t seen = host.changes.load();
      memory_->mine().beat = steady_nanoseconds();
      Suspension::total();
      try {
        watch_bytes();
        watch_progress();
        if (options_.stop_code) set_stop_code(options_.stop_code());
        agent_->serve();
        floor_->raise(
            DeadlineFloor::Clock::time_point(std::chrono::duration_cast<DeadlineFloor::Clock::duration>(
                std::chrono::nanoseconds(host.deadline_floor.load()))));
        act_on_verdict();
      } catch (const std::bad_alloc&) {  // the thread that needs the memory reports it
      }
      if (!agent_->has_connections() && !is_leaving_) futex_wait(host.changes, seen, HostAgent::kPeriod);
    }
    agent_->leave();
  }

  /// Publishes when this process has last moved bytes, without those of this thread, which reads /proc.
  void watch_bytes() {
    RankSlot& mine = memory_->mine();
    if (&memory_->process_slot(mine) != &mine || Deadline::Clock::now() < read_bytes_at_) return;
    read_bytes_at_ = Deadline::Clock::now() + kReadBytesPeriod;
    const double own = bytes_of("thread-self"), bytes = bytes_of("self") - own;
    if (bytes < moved_bytes_ + kMovedBytes) return;
    moved_bytes_ = bytes;
    mine.io = steady_nanoseconds();
  }

  /// Publishes where the thread of the rank is before a warning or a verdict, if it neither makes progress nor
  /// waits in a collective.
  void watch_progress() {
    RankSlot& mine = memory_->mine();
    if (const std::int64_t progress = mine.progress; std::exchange(seen_progress_, progress) != progress) {
      stalled_.emplace(std::min(options_.warn_after_seconds, options_.timeout_seconds) / 2);
      mine.stack.reset();
    }
    const auto& all = mine.communicators;
    const bool waits =
        std::any_of(all.begin(), all.end(), [](const auto& each) { return each.executing != 0; });
    if (waits || !stalled_ || !stalled_->passed()) return;
    stalled_.reset();
    mine.stack.set(stack_of(rank_thread_));
  }

  void act_on_verdict() {
    if (!exit_) {
      const std::string verdict = memory_->get(kVerdict);
      if (verdict.empty()) return;
      exit_.emplace(options_.timeout_seconds);
      if (options_.on_verdict) options_.on_verdict(verdict);
      dump();
    }
    // Wait::exit: the main thread may not return from a file system that hangs.
    const double idle =
        1e-9 * static_cast<double>(steady_nanoseconds() - memory_->process_slot(memory_->mine()).io.load());
    if (!exit_->passed() || idle < exit_->seconds()) return;
    if (options_.on_warning)
      options_.on_warning(fmt::format("{}; this rank does not return from {} and exits",
                                      memory_->get(kVerdict), to_string(memory_->mine().phase.load())));
    _exit(static_cast<int>(ExitCode::peer));
  }

  /// Writes the flight recorders of this host, unless another rank does, on a thread: the file system may hang.
  void dump() {
    HostSlot& host = memory_->host();
    const std::string directory = memory_->get(kDumpDirectory);
    std::uint32_t expected = kNotDumped;
    if (directory.empty() || !host.is_dumped.compare_exchange_strong(expected, kDumping)) return;
    const auto write = [memory = memory_, all = all_, directory] {
      try {
        write_flight_files(*memory, all, directory);
      } catch (const std::exception&) {  // such as of a full disk: the error that ends the job matters more
      }
      memory->host().is_dumped = kDumped;
      memory->wake();
    };
    try {
      std::thread(write).detach();
    } catch (const std::system_error&) {  // there is no memory for a thread
      write();
    }
  }

  ControlOptions options_;
  const std::vector<RankInfo>& all_;
  int rank_;
  std::shared_ptr<HostMemory> memory_;
  std::shared_ptr<DeadlineFloor> floor_ = std::make_shared<DeadlineFloor>();
  std::unique_ptr<HostAgent> agent_;  // null if there is one rank
  std::atomic<bool> is_leaving_ = false;
  double moved_bytes_ = 0;  // at the time RankSlot::io
  Deadline::Clock::time_point read_bytes_at_{};
  std::optional<Deadline> exit_;  // after the verdict

  const pid_t rank_thread_ = gettid();
  std::int64_t seen_progress_ = 0;   // RankSlot::progress
  std::optional<Deadline> stalled_;  // since then; empty once the stack is published

  // RankSlot::block: what the thread of the rank measures.
  const double window_seconds_ = seconds_in(kStragglerWindowVariable, StragglerWatch::kWindowSeconds);
  std::int64_t accounted_at_ = 0, waited_ = 0, block_ends_at_ = 0;  // nanoseconds; StreamWait::total
  double block_steps_ = 0, in_steps_ = 0;                           // of the block
  std::array<double, kStepPhases> own_{};
  std::mutex mutex_;                     // guards stragglers_
  std::vector<std::string> stragglers_;  // that take_warnings() has not returned
  std::thread thread_;                   // not started if there is one rank
};

}  // namespace

std::unique_ptr<JobControl> connect_control_plane(Rendezvous& rendezvous, ControlOptions options) {
  return std::make_unique<ControlPlane>(rendezvous, std::move(options));
}

}  // namespace convoy::dist
