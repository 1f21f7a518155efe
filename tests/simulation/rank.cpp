#include "tests/simulation/rank.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <utility>
#include <vector>

#include <sys/mman.h>

#include "convoy/apps/cluster/launcher/launcher_messages.h"
#include "convoy/apps/common/signals.h"
#include "convoy/apps/flags/run_main.h"
#include "convoy/apps/ranks/cluster.h"
#include "convoy/apps/ranks/local_ranks.h"
#include "convoy/comm/bootstrap/environment.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/view.h"
#include "tests/simulation/libc.h"

namespace simulation {
namespace {

using convoy::ConstView;
using convoy::DType;
using convoy::Job;
using convoy::View;
using convoy::dist::Communicator;
using convoy::dist::Phase;
using convoy::dist::PhaseScope;
using convoy::dist::Rendezvous;

constexpr int kSaveEvery = 3;  // steps

/// Waits in a collective.
struct InCollective : WaitScope {
  explicit InCollective(const Schedule& schedule) : WaitScope(Wait::collective, schedule.comm_timeout) {
    if (const auto action = std::exchange(self()->process->record->on_next_collective, nullptr)) action();
  }
};

void sleep(Time time) { std::this_thread::sleep_for(std::chrono::nanoseconds(time)); }

/// Trains for the remaining steps.
class Training {
 public:
  Training(const Schedule& schedule, Job& job, RankRecord& record, std::int64_t& step)
      : schedule_(schedule), job_(job), record_(record), step_(step) {}

  void run() {
    record_.step = step_;
    Communicator* const gradients = job_.gradients();
    Communicator* const statistics =
        gradients != nullptr && schedule_.seed % 3 == 0 ? statistics_of_job() : nullptr;
    while (step_ < schedule_.steps) {
      job_.control_plane().set_step(step_);
      compute(Phase::data);
      compute(Phase::forward);
      if (statistics != nullptr) sum(*statistics, 16);
      {
        const PhaseScope phase(&job_.control_plane(), Phase::gradients);
        if (gradients != nullptr) sum(*gradients, step_ % 4 == 0 ? 20'000 : 500);
        if (gradients != nullptr && step_ % 2 == 0) gather(*gradients);
      }
      record_.step = ++step_;
      if (step_ % kSaveEvery == 0) save(gradients);
      progress();
      report_progress();
      const WaitScope wait(Wait::stop, schedule_.comm_timeout);
      if (job_.control_plane().stop_code(convoy::stop_code_of(convoy::StopSignals::received())) != 0) {
        record_.stop_step = step_;
        save(gradients);
        break;
      }
    }
    record_.has_contributed = true;
    barrier(gradients);
  }

  void progress() { record_.last_progress = scheduler()->now(); }

 private:
  Communicator* statistics_of_job() {
    const InCollective wait(schedule_);
    return job_.statistics();
  }

  /// As convoy-train tells its agent how far it is.
  void report_progress() {
    const char* const descriptor = std::getenv(convoy::launcher::kProgressVariable);
    if (descriptor == nullptr) return;
    if (told_ == nullptr)
      told_ = static_cast<convoy::launcher::Progress*>(
          mmap(nullptr, sizeof *told_, PROT_READ | PROT_WRITE, MAP_SHARED, std::atoi(descriptor), 0));
    *told_ = {.step = step_, .saved = saved_};
  }

  void compute(Phase phase) {
    const PhaseScope scope(&job_.control_plane(), phase);
    sleep(static_cast<Time>(1 + scheduler()->random(20)) * kMillisecond);
  }

  void wrong(const std::string& text) {
    if (record_.wrong.empty()) record_.wrong = text;
  }

  void sum(Communicator& ranks, std::int64_t count) {
    const auto n = static_cast<float>(ranks.size());
    std::vector<float> values(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] =
          static_cast<float>(ranks.rank() + 1) + static_cast<float>(step_) + static_cast<float>(i % 7);
    {
      const InCollective wait(schedule_);
      ranks.all_reduce(View{values.data(), {count}, DType::f32});
      ranks.synchronize();
    }
    progress();
    for (std::size_t i = 0; i < values.size(); ++i)
      if (const float expected =
              n * (n + 1) / 2 + n * (static_cast<float>(step_) + static_cast<float>(i % 7));
          values[i] != expected)
        return wrong(fmt::format("all-reduce: found {}, expected {}", values[i], expected));
  }

  void gather(Communicator& ranks) {
    std::int32_t local = 1000 + ranks.rank();
    std::vector<std::int32_t> all(static_cast<std::size_t>(ranks.size()));
    {
      const InCollective wait(schedule_);
      ranks.all_gather(ConstView(&local, {1}, DType::i32), View{all.data(), {ranks.size()}, DType::i32});
      ranks.synchronize();
    }
    progress();
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i] != 1000 + static_cast<int>(i))
        return wrong(fmt::format("all-gather: found {} of rank {}", all[i], i));
  }

  /// As a training saves: a collective in the phase, and then rank 0 writes.
  void save(Communicator* ranks) {
    const PhaseScope phase(&job_.control_plane(), Phase::save);
    if (ranks != nullptr) broadcast(*ranks);
    if (ranks == nullptr || ranks->rank() == 0) {
      for (int block = 0; block < 5; ++block) {
        sleep(20 * kMillisecond);
        record_.process->io_bytes += 1 << 20;
      }
      *record_.checkpoint = std::max(*record_.checkpoint, step_);
    }
    saved_ = step_;
    barrier(ranks);
  }

  void broadcast(Communicator& ranks) {
    std::vector<std::int32_t> values(64, ranks.rank() == 0 ? 7 : 0);
    {
      const InCollective wait(schedule_);
      ranks.broadcast(View{values.data(), {64}, DType::i32}, 0);
      ranks.synchronize();
    }
    progress();
    if (std::count(values.begin(), values.end(), 7) != 64)
      wrong("broadcast: found other values than rank 0 has");
  }

  void barrier(Communicator* ranks) {
    const InCollective wait(schedule_);
    if (ranks != nullptr) ranks->barrier();
    progress();
  }

  const Schedule& schedule_;
  Job& job_;
  RankRecord& record_;
  std::int64_t& step_;
  std::int64_t saved_ = -1;  // the newest checkpoint that this process has completed
  convoy::launcher::Progress* told_ = nullptr;
};

void note_error(RankRecord& record, Job* job, const std::string& text) {
  record.errors.push_back({.group = record.group,
                           .text = text,
                           .verdict = job == nullptr ? "" : job->control_plane().verdict(0),
                           .at = scheduler()->now()});
  network()->note(
      fmt::format("{} gives up: {} [verdict: {}]", record.process->name, text, record.errors.back().verdict));
}

/// A rendezvous that notes the waits of its exchanges.
class TimedRendezvous final : public Rendezvous {
 public:
  TimedRendezvous(std::unique_ptr<Rendezvous> real, double seconds)
      : Rendezvous(real->note()), real_(std::move(real)), seconds_(seconds) {
    set_positions(real_->info().rank, real_->all());
  }
  std::vector<std::string> all_gather(const std::string& local) override {
    const WaitScope wait(Wait::rendezvous, seconds_);
    return real_->all_gather(local);
  }
  /// Returns the rendezvous itself if it is another one, such as that of a single rank.
  static Rendezvous& real_of(Rendezvous& rendezvous) {
    auto* const timed = dynamic_cast<TimedRendezvous*>(&rendezvous);
    return timed == nullptr ? rendezvous : *timed->real_;
  }

 private:
  std::unique_ptr<Rendezvous> real_;
  double seconds_;
};

// The functions of the component cluster, with their waits.

const convoy::Cluster& real_cluster() {
  static const convoy::Cluster& real = next<const convoy::Cluster&()>("_ZN6convoy7clusterEv")();
  return real;
}

std::unique_ptr<Rendezvous> timed_rendezvous(const convoy::dist::RendezvousPlan& plan,
                                             const convoy::dist::RendezvousOptions& options) {
  RankRecord& record = *self()->process->record;
  record.group = plan.launch.job;
  record.group_size = plan.launch.world_size;
  const WaitScope wait(Wait::rendezvous, options.timeout_seconds);
  return std::make_unique<TimedRendezvous>(real_cluster().by_store(plan, options), options.timeout_seconds);
}

template <const char* kind>
std::unique_ptr<Communicator> timed_communicator(Rendezvous& rendezvous,
                                                 const convoy::dist::CommOptions& options) {
  const WaitScope wait(Wait::rendezvous, options.timeout_seconds);
  return real_cluster().communicators.at(kind)(TimedRendezvous::real_of(rendezvous), options);
}

std::unique_ptr<convoy::dist::JobControl> timed_control(Rendezvous& rendezvous,
                                                        convoy::dist::ControlOptions options) {
  const WaitScope wait(Wait::rendezvous, options.timeout_seconds);
  return real_cluster().connect(TimedRendezvous::real_of(rendezvous), std::move(options));
}

std::optional<std::map<std::string, std::string>> timed_group(std::int64_t step) {
  const WaitScope wait(Wait::regroup, 0);
  auto variables = real_cluster().request_group(step);
  if (variables) {
    RankRecord& record = *self()->process->record;
    record.group = variables->at("CONVOY_JOB");
    record.group_size = std::stoi(variables->at("WORLD_SIZE"));
  }
  return variables;
}

constexpr char kTcp[] = "tcp", kHierarchical[] = "hierarchical";

int run_job(const Schedule& schedule, Job& job, RankRecord& record) {
  record.has_joined = true;
  const auto device = convoy::DeviceContext::create_cpu({.threads = 1});
  {
    const WaitScope wait(Wait::rendezvous, schedule.comm_timeout);  // which it exchanges devices by
    job.connect(device);
  }
  std::int64_t step = *record.checkpoint;
  for (bool has_group = true;;) {
    try {
      if (!has_group) {
        const WaitScope wait(Wait::rendezvous, schedule.comm_timeout);
        job.regroup(step, device);
        record.has_regrouped = has_group = true;
        if (job.control() != nullptr) {  // go on where rank 0, the most advanced one, is
          job.control()->broadcast(View{&step, {sizeof step}, DType::u8}, 0);
          job.control()->synchronize();
        }
      }
      Training(schedule, job, record, step).run();
      return record.stop_step < 0 ? 0 : kStopped;
    } catch (const convoy::PeerError& error) {
      if (!job.can_regroup()) throw;
      record.has_contributed = false;
      record.last_progress = scheduler()->now();
      const WaitScope wait(Wait::exit, 2);
      job.abandon_group();
      note_error(record, &job, error.what());
      has_group = false;
    }
  }
}

}  // namespace

WaitScope::WaitScope(Wait row, double seconds) : record_(*self()->process->record) {
  record_.waits.push_back({.row = row, .seconds = seconds, .begin = scheduler()->now()});
}

WaitScope::~WaitScope() {
  record_.on_end_of_wait(record_, record_.waits.back());
  record_.waits.pop_back();
  if (!record_.waits.empty()) record_.waits.back().begin = scheduler()->now();
}

void run_rank(const Schedule& schedule, RankRecord& record) {
  Process* const process = record.process;
  const std::size_t descriptors = process->descriptors.size();
  record.group = std::getenv("CONVOY_JOB");
  record.group_size = std::atoi(std::getenv("WORLD_SIZE"));
  convoy::JobOptions options;
  options.comm = schedule.comm;
  options.all_reduce = schedule.all_reduce;
  options.comm_timeout = schedule.comm_timeout;
  options.io_timeout = schedule.io_timeout;
  options.comm_warning = 2;
  int code = 0;
  {
    // Whatever follows the last wait inside is the end in order.
    const WaitScope wait(Wait::exit, 2);
    Job* joined = nullptr;
    try {
      convoy::LocalRanks ranks(options, {});
      try {
        code = ranks.run("simulation", [&](Job& job) {
          joined = &job;
          return run_job(schedule, job, record);
        });
      } catch (const std::exception& error) {
        note_error(record, joined, error.what());
        throw;
      }
    } catch (const std::exception& error) {
      code = static_cast<int>(convoy::to_failure(std::current_exception()).code);
      if (joined == nullptr) note_error(record, nullptr, error.what());
    }
  }
  record.last_progress = code == 0 || code == kStopped ? scheduler()->now() : record.last_progress;
  record.exit_code = code;
  network()->note(fmt::format("{} ends with {}", process->name, code));
  const auto running = std::count_if(process->coroutines.begin(), process->coroutines.end(),
                                     [](const Coroutine* coroutine) { return !coroutine->has_finished; });
  if (code == 0 && record.wrong.empty() && (process->descriptors.size() > descriptors || running > 1))
    record.wrong = fmt::format("{} descriptors and {} threads are left at the end",
                               process->descriptors.size() - descriptors, running - 1);
  process->end(code << 8);
}

}  // namespace simulation

/// Returns the component cluster, whose functions note the waits of the rank that calls them.
const convoy::Cluster& convoy::cluster() {
  static const Cluster kTimed = [] {
    using namespace simulation;
    Cluster timed = real_cluster();
    timed.by_store = timed_rendezvous;
    timed.communicators = {{kTcp, timed_communicator<kTcp>},
                           {kHierarchical, timed_communicator<kHierarchical>}};
    timed.connect = timed_control;
    timed.request_group = timed_group;
    return timed;
  }();
  return kTimed;
}

/// Returns the stop signal of the simulated process.
int convoy::StopSignals::received() {
  const simulation::Coroutine* const caller = simulation::scheduler()->current();
  return caller == nullptr ? 0 : caller->process->stop_signal;
}
