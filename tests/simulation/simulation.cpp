#include "tests/simulation/simulation.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <memory>
#include <regex>
#include <set>

#include "tests/simulation/launcher.h"
#include "tests/simulation/machine.h"
#include "tests/simulation/rank.h"

namespace simulation {
namespace {

using Kind = Fault::Kind;

constexpr int kPort = 29500;
constexpr double kSlack = 2;  // seconds beyond the limit of a wait
constexpr double kInOrder =
    4;  // for a rank to leave once its wait has ended: the store, the agents and the verdict
constexpr double kSilent =
    1;  // after the timeout, until a silent rank is the cause (HostAgent::overdue_of())
constexpr Time kMaxStart = 30 * kMillisecond;     // between the starts of the first and the last rank
constexpr double kLoaded = 20;                    // slowness of a host
constexpr int kFloods = 4;                        // clients of one flood
constexpr Time kFloodPause = 120 * kMicrosecond;  // of a client, between two connections

Time nanoseconds(double seconds) { return static_cast<Time>(seconds * 1e9); }

/// The job while it runs.
class Simulation {
 public:
  Simulation(const Schedule& schedule, bool traces) : schedule_(schedule), scheduler_(schedule.seed) {
    set_scheduler(&scheduler_);
    set_network(&network_);
    if (traces)
      network_.trace = [this](const std::string& text) {
        fmt::print("{:12.6f} s  {}\n", 1e-9 * static_cast<double>(scheduler_.now()), text);
        std::fflush(stdout);
      };
    for (int host = 0; host < schedule_.hosts; ++host) network_.add_host(fmt::format("host-{}", host));
    ranks_.resize(static_cast<std::size_t>(schedule_.ranks));
    for (int rank = 0; rank < schedule_.ranks; ++rank)
      ranks_[static_cast<std::size_t>(rank)].process =
          network_.add_process(host_of(schedule_.host_of(rank)), fmt::format("rank {}", rank));
    if (schedule_.may_regroup) launcher_ = std::make_unique<Launcher>(schedule_, ranks_);
  }
  ~Simulation() {
    set_scheduler(nullptr);
    set_network(nullptr);
  }

  Result run() {
    start_ranks();
    for (const Fault& fault : schedule_.faults) scheduler_.at(fault.at, [&] { begin(fault); });
    const auto has_ended = [](const RankRecord& rank) { return rank.process->has_ended; };
    const auto is_over = [&] { return std::all_of(ranks_.begin(), ranks_.end(), has_ended); };
    // Looks now and then whether a rank waits for too long.
    while (!is_over() && !is_overdue()) scheduler_.run(scheduler_.now() + kSecond / 2, is_over);
    check();
    result_.end = scheduler_.now();
    result_.events = scheduler_.events();
    return result_;
  }

 private:
  Host* host_of(int host) const { return network_.hosts()[static_cast<std::size_t>(host)].get(); }

  void start_ranks() {
    const bool by_name = schedule_.seed % 2 == 0;
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      RankRecord& record = ranks_[static_cast<std::size_t>(rank)];
      std::map<std::string, std::string> variables = {
          {"RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(schedule_.ranks)},
          {"MASTER_ADDR", by_name ? "host-0" : "10.0.0.2"},
          {"MASTER_PORT", std::to_string(kPort)},
          {"CONVOY_JOB", "job"},
          {"CONVOY_HOST_TIMEOUT", fmt::format("{}", schedule_.host_timeout)}};
      if (schedule_.has_secret) variables["CONVOY_SECRET"] = "0123456789abcdef0123";
      if (launcher_) {
        variables["CONVOY_LAUNCH_FD"] = std::to_string(launcher_->descriptor_of(rank));
        variables["CONVOY_REGROUP"] = "1";
      }
      record.process->set_environment(variables);
      const Time start = static_cast<Time>(scheduler_.random(kMaxStart));
      record.last_progress = start;
      scheduler_.at(start, [this, &record] {
        if (!record.process->has_ended)
          scheduler_.start(record.process, [this, &record] { run_rank(schedule_, record); });
      });
    }
    if (launcher_) scheduler_.start(launcher_->process(), [this] { launcher_->run(); });
  }

  // ---- Faults

  void begin(const Fault& fault) {
    network_.note("fault: " + describe(fault));
    const auto target = static_cast<std::size_t>(fault.target);
    last_fault_ = std::max(last_fault_, scheduler_.now());
    switch (fault.kind) {
      case Kind::kill:
        note_fault_of(fault.target);
        ranks_[target].process->end(SIGKILL);
        break;
      case Kind::stop:
        note_fault_of(fault.target);
        ranks_[target].process->stop();
        break;
      case Kind::freeze:
        was_silenced_in_job_ = is_job_complete();
        note_fault_of_host(fault.target);
        for_ranks_of(fault.target, [](Process& process) { process.stop(); });
        break;
      case Kind::suspend: return suspend(fault);
      case Kind::term: ranks_[target].process->stop_signal = SIGTERM; break;
      case Kind::cut:
      case Kind::slow:
      case Kind::lose: change_links(fault, true); break;
      case Kind::flood: flood(fault); break;
    }
    if (fault.duration == kNever || fault.kind == Kind::flood) return;
    scheduler_.at(scheduler_.now() + fault.duration, [this, &fault] {
      network_.note("end of fault: " + describe(fault));
      last_fault_ = std::max(last_fault_, scheduler_.now());
      if (fault.kind == Kind::stop)
        ranks_[static_cast<std::size_t>(fault.target)].process->resume();
      else if (fault.kind == Kind::freeze)
        for_ranks_of(fault.target, [](Process& process) { process.resume(); });
      else
        change_links(fault, false);
    });
  }

  void note_fault_of(int rank) { at_fault_.insert(rank); }
  void note_fault_of_host(int host) {
    for (int rank = 0; rank < schedule_.ranks; ++rank)
      if (schedule_.host_of(rank) == host) note_fault_of(rank);
  }
  template <class F>
  void for_ranks_of(int host, const F& change) {
    for (int rank = 0; rank < schedule_.ranks; ++rank)
      if (schedule_.host_of(rank) == host) change(*ranks_[static_cast<std::size_t>(rank)].process);
  }

  /// Stops all ranks within some milliseconds, and lets them go on.
  void suspend(const Fault& fault) {
    was_suspended_in_job_ &= is_job_complete();
    for (RankRecord& rank : ranks_) {
      const auto later = static_cast<Time>(scheduler_.random(3 * kMillisecond));
      scheduler_.at(scheduler_.now() + later, [&rank] { rank.process->stop(); });
      scheduler_.at(scheduler_.now() + fault.duration + later, [this, &rank] {
        last_fault_ = std::max(last_fault_, scheduler_.now());
        rank.process->resume();
      });
    }
  }

  /// Returns whether all ranks have joined, and none has ended.
  bool is_job_complete() const {
    return std::all_of(ranks_.begin(), ranks_.end(), [](const RankRecord& rank) {
      return rank.has_joined && rank.exit_code < 0 && !rank.process->has_ended;
    });
  }

  void change_links(const Fault& fault, bool begins) {
    Host* const host = host_of(fault.target);
    if (fault.kind == Kind::cut) note_fault_of_host(fault.target);
    if (fault.kind == Kind::cut && begins) was_silenced_in_job_ = is_job_complete();
    if (fault.kind == Kind::slow) host->slowness = begins ? kLoaded : 1;
    for (int other = 0; other < schedule_.hosts; ++other) {
      if (other == fault.target) continue;
      Link& link = network_.link(host, host_of(other));
      if (fault.kind == Kind::cut) network_.set_down(host, host_of(other), begins);
      if (fault.kind == Kind::lose) link.loss = begins ? 0.01 : 0;
      if (fault.kind != Kind::slow) continue;
      link.latency = begins ? 5 * kMillisecond : 100 * kMicrosecond;
      link.bytes_per_second = begins ? 2e6 : 1e9;
    }
  }

  /// Starts clients that connect to the ports of a host, send some bytes or none, and close.
  void flood(const Fault& fault) {
    Process* const stranger = network_.add_process(network_.add_host("stranger"), "stranger");
    stranger->set_environment({});
    Host* const target = host_of(fault.target);
    const Time end = scheduler_.now() + fault.duration;
    target->slowness = kLoaded;  // a machine that accepts connections more slowly than they come
    scheduler_.at(end, [target] { target->slowness = 1; });
    for (int client = 0; client < kFloods; ++client)
      scheduler_.start(stranger, [this, target, end] {
        while (scheduler_.now() < end) {
          connect_once(target);
          scheduler_.spend(kFloodPause);
        }
      });
  }

  void connect_once(Host* target) {
    if (target->listeners.empty()) return scheduler_.spend(kMillisecond);
    auto listener = target->listeners.begin();
    std::advance(listener, scheduler_.random(target->listeners.size()));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(listener->first));
    address.sin_addr.s_addr = htonl(target->address);
    const int client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      pollfd waiting{.fd = client, .events = POLLOUT, .revents = 0};
      poll(&waiting, 1, 10);
    }
    const std::string garbage(300, 'x');
    if (scheduler_.random(2) == 0 && send(client, garbage.data(), garbage.size(), MSG_NOSIGNAL) < 0)
      scheduler_.spend(kMicrosecond);
    close(client);
  }

  // ---- Invariants

  /// Returns whether the faults are ones with which all ranks go on: the job must succeed.
  bool must_succeed() const {
    const double limit = 0.25 * std::min(schedule_.comm_timeout, schedule_.host_timeout);
    double sum = 0;
    for (const Fault& fault : schedule_.faults) {
      if (fault.kind == Kind::kill) return false;
      if (fault.kind == Kind::suspend && (schedule_.faults.size() > 1 || !was_suspended_in_job_))
        return false;
      if (fault.kind == Kind::suspend || fault.kind == Kind::term) continue;
      if (fault.duration == kNever) return false;
      if (fault.kind == Kind::stop || fault.kind == Kind::freeze || fault.kind == Kind::cut)
        sum += 1e-9 * static_cast<double>(fault.duration);
      // A flood leaves few connections to the ranks; several slow things add up.
      if (schedule_.faults.size() > 1) sum += limit / 2;
    }
    return sum <= limit;
  }

  /// Returns the limit of the longest wait of this schedule, in seconds.
  double limit() const {
    const double silence = std::max(schedule_.comm_timeout + kSilent, schedule_.host_timeout);
    const bool is_lost_host = schedule_.faults.size() == 1 && (schedule_.faults.front().kind == Kind::cut ||
                                                               schedule_.faults.front().kind == Kind::freeze);
    return is_lost_host && was_silenced_in_job_ ? schedule_.host_timeout : silence;
  }

  /// Returns whether the limit of any wait has passed since anything has happened. Ranks that still run violate it.
  bool is_overdue() {
    Time last = last_fault_;
    for (const RankRecord& rank : ranks_) last = std::max(last, rank.last_progress);
    double seconds = limit() + kSlack + kInOrder;
    if (schedule_.may_regroup)
      seconds += schedule_.comm_timeout + 2 + 2 * kSlack;  // until the launcher has a group
    if (scheduler_.now() < last + nanoseconds(seconds)) return false;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const Process& process = *ranks_[rank].process;
      if (process.has_ended) continue;
      if (process.is_stopped) continue;  // for good
      violate("rank {} still waits {:.1f} s after the last progress and fault, expected at most {:.1f} s",
              rank, 1e-9 * static_cast<double>(scheduler_.now() - last), seconds);
    }
    return true;
  }

  template <class... Values>
  void violate(fmt::format_string<Values...> format, Values&&... values) {
    result_.violations.push_back(fmt::format(format, std::forward<Values>(values)...));
  }

  /// Returns whether the text names a rank that was at fault, or its host.
  bool names_culprit(const std::string& text) const {
    static const std::regex kRanks("ranks? ([0-9]+(?:, [0-9]+)*)");
    for (std::sregex_iterator found(text.begin(), text.end(), kRanks), end; found != end; ++found) {
      const std::string list = (*found)[1];
      static const std::regex kNumber("[0-9]+");
      for (std::sregex_iterator number(list.begin(), list.end(), kNumber); number != end; ++number)
        if (at_fault_.contains(std::stoi(number->str()))) return true;
    }
    return std::any_of(at_fault_.begin(), at_fault_.end(), [&](int rank) {
      return text.find(fmt::format("host-{}", schedule_.host_of(rank))) != std::string::npos;
    });
  }

  void check() {
    const bool needs_success = must_succeed();
    bool has_success = false, has_stopped = false;
    std::set<std::int64_t> stop_steps;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const RankRecord& record = ranks_[rank];
      if (!record.wrong.empty()) violate("rank {}: {}", rank, record.wrong);
      if (record.exit_code == 0) has_success = true;
      if (record.exit_code >= 0) ++(record.exit_code == 0 ? result_.successes : result_.failures);
      result_.has_regrouped |= record.has_regrouped;
      if (record.stop_step >= 0) has_stopped = true;
      if (record.exit_code == 0) stop_steps.insert(record.stop_step);
      if (record.exit_code <= 0) continue;
      if (needs_success) violate("rank {} fails without need: {}", rank, record.error);
      // After a second group, ranks have other numbers.
      const bool is_known = !at_fault_.contains(static_cast<int>(rank)) && !record.has_regrouped &&
                            !schedule_.may_regroup && was_no_suspension();
      if (!needs_success && is_known && !names_culprit(record.error))
        violate("rank {} names none of those at fault: {}", rank, record.error);
      if (record.exit_code != 4)
        violate("rank {} ends with {}, expected 4: {}", rank, record.exit_code, record.error);
    }
    if (has_stopped && stop_steps.size() > 1)
      violate("the ranks stop at {} different steps after a signal", stop_steps.size());
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const RankRecord& record = ranks_[rank];
      if (has_success && !schedule_.may_regroup && !record.has_contributed)
        violate("other ranks end with success, although rank {} has not finished", rank);
    }
    const auto is_stopped = [](const RankRecord& rank) { return !rank.process->has_ended; };
    if (std::none_of(ranks_.begin(), ranks_.end(), is_stopped) && !network_.memories.empty())
      violate("{} shared segments are left", network_.memories.size());
  }

  bool was_no_suspension() const {
    return std::none_of(schedule_.faults.begin(), schedule_.faults.end(),
                        [](const Fault& fault) { return fault.kind == Kind::suspend; });
  }

  const Schedule& schedule_;
  Scheduler scheduler_;
  Network network_;
  std::vector<RankRecord> ranks_;
  std::unique_ptr<Launcher> launcher_;
  std::set<int> at_fault_;
  Time last_fault_ = 0;
  bool was_suspended_in_job_ = true, was_silenced_in_job_ = false;
  Result result_;
};

}  // namespace

Result simulate(const Schedule& schedule, bool traces) { return Simulation(schedule, traces).run(); }

}  // namespace simulation
