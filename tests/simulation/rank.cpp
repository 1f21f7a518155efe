#include "tests/simulation/rank.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "convoy/apps/common/signals.h"
#include "convoy/apps/flags/run_main.h"
#include "convoy/apps/ranks/local_ranks.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/view.h"

namespace simulation {
namespace {

using convoy::ConstView;
using convoy::DType;
using convoy::Job;
using convoy::View;
using convoy::dist::Communicator;
using convoy::dist::Phase;
using convoy::dist::PhaseScope;

constexpr int kSaveEvery = 3;  // steps

void sleep(Time time) { std::this_thread::sleep_for(std::chrono::nanoseconds(time)); }

/// Trains for the remaining steps.
class Training {
 public:
  Training(const Schedule& schedule, Job& job, RankRecord& record, std::int64_t& step)
      : schedule_(schedule), job_(job), record_(record), step_(step) {}

  void run() {
    Communicator* const gradients = job_.gradients();
    if (gradients == nullptr) return;
    Communicator* const statistics = schedule_.seed % 3 == 0 ? job_.statistics() : nullptr;
    while (step_ < schedule_.steps) {
      job_.control_plane().set_step(step_);
      compute(Phase::data);
      compute(Phase::forward);
      if (statistics != nullptr) sum(*statistics, 16);
      {
        const PhaseScope phase(&job_.control_plane(), Phase::gradients);
        sum(*gradients, step_ % 4 == 0 ? 20'000 : 500);
        if (step_ % 2 == 0) gather(*gradients);
      }
      ++step_;
      if (step_ % kSaveEvery == 0) save(*gradients);
      progress();
      if (job_.control_plane().stop_code(convoy::stop_code_of(convoy::StopSignals::received())) != 0) {
        record_.stop_step = step_;
        break;
      }
    }
    record_.has_contributed = true;
    gradients->barrier();
    progress();
  }

  void progress() { record_.last_progress = scheduler()->now(); }

 private:
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
    ranks.all_reduce(View{values.data(), {count}, DType::f32});
    ranks.synchronize();
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
    ranks.all_gather(ConstView(&local, {1}, DType::i32), View{all.data(), {ranks.size()}, DType::i32});
    ranks.synchronize();
    progress();
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i] != 1000 + static_cast<int>(i))
        return wrong(fmt::format("all-gather: found {} of rank {}", all[i], i));
  }

  /// As a training saves: a collective in the phase, and then rank 0 writes.
  void save(Communicator& ranks) {
    const PhaseScope phase(&job_.control_plane(), Phase::save);
    std::vector<std::int32_t> values(64, ranks.rank() == 0 ? 7 : 0);
    ranks.broadcast(View{values.data(), {64}, DType::i32}, 0);
    ranks.synchronize();
    progress();
    if (std::count(values.begin(), values.end(), 7) != 64)
      wrong("broadcast: found other values than rank 0 has");
    if (ranks.rank() == 0) {
      for (int block = 0; block < 5; ++block) {
        sleep(20 * kMillisecond);
        record_.process->io_bytes += 1 << 20;
      }
    }
    ranks.barrier();
    progress();
  }

  const Schedule& schedule_;
  Job& job_;
  RankRecord& record_;
  std::int64_t& step_;
};

int run_job(const Schedule& schedule, Job& job, RankRecord& record) {
  record.has_joined = true;
  const auto device = convoy::DeviceContext::create_cpu({.threads = 1});
  job.connect(device);
  std::int64_t step = 0;
  for (bool has_group = true;;) {
    try {
      if (!has_group) {
        job.regroup(step, device);
        record.has_regrouped = has_group = true;
        if (job.control() != nullptr) {  // go on where rank 0, the most advanced one, is
          job.control()->broadcast(View{&step, {sizeof step}, DType::u8}, 0);
          job.control()->synchronize();
        }
      }
      Training(schedule, job, record, step).run();
      return 0;
    } catch (const convoy::PeerError&) {
      if (!job.can_regroup()) throw;
      record.has_contributed = false;
      record.last_progress = scheduler()->now();
      job.abandon_group();
      has_group = false;
    }
  }
}

}  // namespace

void run_rank(const Schedule& schedule, RankRecord& record) {
  Process* const process = record.process;
  const std::size_t descriptors = process->descriptors.size();
  convoy::JobOptions options;
  options.comm = schedule.comm;
  options.comm_timeout = schedule.comm_timeout;
  options.io_timeout = schedule.io_timeout;
  options.comm_warning = 2;
  int code = 0;
  try {
    convoy::LocalRanks ranks(options, {});
    code = ranks.run("simulation", [&](Job& job) { return run_job(schedule, job, record); });
  } catch (const std::exception& error) {
    code = static_cast<int>(convoy::to_failure(std::current_exception()).code);
    record.error = error.what();
    if (record.error.empty()) record.wrong = "found an error without a text";
  }
  record.last_progress = code == 0 ? scheduler()->now() : record.last_progress;
  record.exit_code = code;
  network()->note(fmt::format("{} ends with {}: {}", process->name, code, record.error));
  const auto running = std::count_if(process->coroutines.begin(), process->coroutines.end(),
                                     [](const Coroutine* coroutine) { return !coroutine->has_finished; });
  if (code == 0 && record.wrong.empty() && (process->descriptors.size() > descriptors || running > 1))
    record.wrong = fmt::format("{} descriptors and {} threads are left at the end",
                               process->descriptors.size() - descriptors, running - 1);
  process->end(code << 8);
}

}  // namespace simulation

/// Returns the stop signal of the simulated process.
int convoy::StopSignals::received() {
  const simulation::Coroutine* const caller = simulation::scheduler()->current();
  return caller == nullptr ? 0 : caller->process->stop_signal;
}
