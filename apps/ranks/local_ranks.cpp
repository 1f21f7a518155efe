#include "convoy/apps/ranks/local_ranks.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "convoy/comm/bootstrap/environment.h"
#include "convoy/comm/bootstrap/thread_rendezvous.h"
#include "convoy/kernels/base/check.h"

namespace convoy {
namespace {

bool has_several_ranks(const JobOptions& options) { return options.devices.value_or(1) > 1; }

/// Checks --devices against the other flags, the launch environment and the GPUs of this machine.
void check_devices(const JobOptions& options, const ComputeOptions& compute) {
  check(options.devices || options.comm != "thread",
        "--comm thread: needs ranks that are threads of one process, expected --devices N");
  if (!has_several_ranks(options)) return;
  const std::int64_t devices = *options.devices;
  check(options.rendezvous == "auto",
        "--devices {}: threads of one process need no --rendezvous {}, expected only one of the two", devices,
        options.rendezvous);
  const std::optional<dist::Launch> launch = dist::launch_from(dist::environment_variables());
  check(!launch || launch->world_size == 1,
        "--devices {}: found one of {} processes ({}), expected a single process; start several processes "
        "without --devices",
        devices, launch ? launch->world_size : 1, launch ? launch->source : "");
  check(options.comm == "auto" || options.comm == "thread" || options.comm == "nccl",
        "--comm {}: needs separate processes, found --devices {}; expected auto, thread or nccl",
        options.comm, devices);
  check(!compute.device.starts_with("cuda:"),
        "--device {}: names one device, found --devices {}; expected cuda", compute.device, devices);
  check(!options.allow_shared_gpu,
        "--allow-shared-gpu: NCCL does not support a GPU shared by ranks of one process, found --devices {}; "
        "expected separate processes",
        devices);
  if (compute.device == "cpu") return;
  const CudaAvailability gpus = cuda_availability();
  if (gpus.count == 0 && compute.device == "auto") return;  // the ranks divide the cores of the CPU
  if (gpus.count == 0) fail<DeviceError>("--devices {}: --device cuda: {}", devices, gpus.reason);
  if (gpus.count < devices)
    fail<DeviceError>(
        "--devices {}: found {} {} (see CUDA_VISIBLE_DEVICES), expected {}; or use --device cpu", devices,
        gpus.count, gpus.count == 1 ? "GPU" : "GPUs", devices);
}

/// The state that the threads of the ranks share with the thread that waits for them. Thread-safe.
class RankThreads {
 public:
  /// Records that a rank has failed. The loss of a peer is a consequence, so any other code replaces it.
  void add_failure(ExitCode code) {
    const std::lock_guard lock(mutex_);
    if (!failure_ || *failure_ == ExitCode::peer) failure_ = code;
    changed_.notify_all();
  }
  /// Records that a rank has ended, with or without a failure.
  void add_end() {
    const std::lock_guard lock(mutex_);
    ++ended_;
    changed_.notify_all();
  }

  /// Blocks until `ranks` ranks have ended and returns the exit code of the failure, if there was one. After
  /// a failure, waits for `grace_seconds` and then ends the process with that code, because a single thread
  /// cannot be ended.
  std::optional<ExitCode> wait_for_end(int ranks, double grace_seconds) {
    std::unique_lock lock(mutex_);
    const auto all_ended = [&] { return ended_ == ranks; };
    changed_.wait(lock, [&] { return all_ended() || failure_; });
    if (!all_ended() && !changed_.wait_for(lock, std::chrono::duration<double>(grace_seconds), all_ended))
      _exit(static_cast<int>(*failure_));
    return failure_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int ended_ = 0;
  std::optional<ExitCode> failure_;
};

}  // namespace

void add_devices_flag(CommandLine& line, JobOptions& options) {
  line.group("Distributed");
  line.add("devices", &options.devices, "Devices per process, one rank (thread) each",
           {.value = "N", .default_text = "1", .minimum = 1, .maximum = 256});
}

LocalRanks::LocalRanks(const JobOptions& options, const ComputeOptions& compute) : options_(options) {
  check_devices(options, compute);
  if (!has_several_ranks(options)) job_.emplace(options);
}

int LocalRanks::run(const char* program, const std::function<int(Job&)>& body) {
  if (!job_) return run_threads(program, body);
  try {
    job_->start(program);
    const int result = body(*job_);
    job_->finish();
    return result;
  } catch (const ReportedError&) {
    throw;
  } catch (const std::exception&) {
    job_->report_and_abort();
  }
}

int LocalRanks::run_threads(const char* program, const std::function<int(Job&)>& body) {
  const int devices = static_cast<int>(*options_.devices);
  RankThreads states;
  int result = 0;
  const auto run_rank = [&](std::unique_ptr<dist::Rendezvous> rendezvous) {
    const int rank = rendezvous->info().rank;
    std::unique_ptr<LocalRanks> own;  // outlives the handlers: destroying its job may block
    try {
      own.reset(
          new LocalRanks(options_, std::move(rendezvous), [&](ExitCode code) { states.add_failure(code); }));
      const int code = own->run(program, body);
      if (rank == 0) result = code;
    } catch (const ReportedError&) {   // by the job
    } catch (const std::exception&) {  // of the job's constructor
      const Failure failure = to_failure(std::current_exception());
      print_error(program, failure.what, rank);
      states.add_failure(failure.code);
    }
    own.reset();
    states.add_end();
  };
  // Declared before `rendezvous`: if a thread cannot be started, destroying the unused rendezvous ends the
  // waiting of the started threads, which are then joined.
  std::vector<std::jthread> threads;
  auto rendezvous = dist::rendezvous_in_threads(devices, options_.comm_timeout);
  try {
    for (auto& of_rank : rendezvous) threads.emplace_back(run_rank, std::move(of_rank));
  } catch (const std::system_error& error) {
    fail<DeviceError>("--devices {}: thread {} cannot be started: {}", devices, threads.size(), error.what());
  }
  if (const std::optional<ExitCode> failure = states.wait_for_end(devices, options_.comm_timeout))
    throw ReportedError(*failure, "a rank has failed");
  return result;
}

std::optional<std::string> oversubscription_warning(const Job& job, const DeviceContext& device) {
  const int cores = available_cores();
  if (!job.in_threads() || device.kind() != DeviceKind::cpu || job.info().world_size <= cores)
    return std::nullopt;
  return fmt::format("--devices {}: this process may use {} {}, which the ranks share; expected at most {}",
                     job.info().world_size, cores, cores == 1 ? "core" : "cores", cores);
}

}  // namespace convoy
