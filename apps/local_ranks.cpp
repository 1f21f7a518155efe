#include "apps/local_ranks.h"

#include <algorithm>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "apps/endings.h"
#include "comm/environment.h"
#include "comm/thread_rendezvous.h"
#include "kernels/runtime/check.h"

namespace convoy {
namespace {

bool is_several(const JobOptions& options) { return options.devices.value_or(1) > 1; }

/// That the flags, the environment and the machine have a place for so many threads.
void check_devices(const JobOptions& options, const ComputeOptions& compute) {
  check(options.devices || options.comm != "thread",
        "--comm thread: between the threads of one process, expected --devices N with it");
  if (!is_several(options)) return;
  const std::int64_t devices = *options.devices;
  check(options.rendezvous == "auto",
        "--devices {}: threads of one process need no --rendezvous {}, expected one of the two", devices,
        options.rendezvous);
  const std::optional<Launch> launch = launch_from(environment_variables());
  check(
      !launch || launch->world == 1,
      "--devices {}: found one of {} processes ({}), expected one process; with several start one a device, "
      "without this flag",
      devices, launch ? launch->world : 1, launch ? launch->source : "");
  check(options.comm == "auto" || options.comm == "thread" || options.comm == "nccl",
        "--comm {}: between processes, found --devices {} in one; expected auto, thread or nccl",
        options.comm, devices);
  check(!compute.device.starts_with("cuda:"), "--device {}: one device, found --devices {}; expected cuda",
        compute.device, devices);
  check(!options.allow_shared_gpu,
        "--allow-shared-gpu: NCCL lets no two ranks of one process share a GPU, found --devices {}; expected "
        "processes",
        devices);
  if (compute.device == "cpu") return;
  const CudaAvailability gpus = cuda_availability();
  if (gpus.count == 0 && compute.device == "auto") return;  // the CPU's cores, then
  if (gpus.count == 0) fail<DeviceError>("--devices {}: --device cuda: {}", devices, gpus.reason);
  if (gpus.count < devices)
    fail<DeviceError>(
        "--devices {}: found {} {} (CUDA_VISIBLE_DEVICES decides), expected {}; --device cpu divides the "
        "cores instead",
        devices, gpus.count, gpus.count == 1 ? "GPU" : "GPUs", devices);
}

}  // namespace

void add_devices_flag(CommandLine& line, JobOptions& options) {
  line.add(
      "devices", &options.devices,
      "Compute on so many GPUs, or parts of the CPU's cores, in this one process: a thread and a rank each",
      {.value = "N", .default_is = "one for each process", .least = 1, .most = 256});
}

LocalRanks::LocalRanks(const JobOptions& options, const ComputeOptions& compute) : options_(options) {
  check_devices(options, compute);
  if (!is_several(options)) job_.emplace(options);
}

int LocalRanks::run(const char* program, const std::function<int(Job&)>& body) {
  if (!job_) return run_threads(program, body);
  return job_->run(program, [&] {
    const int result = body(*job_);
    job_->finish();
    return result;
  });
}

int LocalRanks::run_threads(const char* program, const std::function<int(Job&)>& body) {
  const int devices = static_cast<int>(*options_.devices);
  Endings endings(program);
  int result = 0;
  const auto run_rank = [&](std::unique_ptr<Rendezvous> place) {
    try {
      Job job(options_, std::move(place), endings);
      const int code = job.run(program, [&] {
        const int of_body = body(job);
        job.finish();
        return of_body;
      });
      if (job.is_first()) result = code;
    } catch (const ReportedError&) {  // by the job
    } catch (...) {                   // before there was one
      const Failure failure = failure_of(std::current_exception());
      endings.add_failure(failure.code, failure.what);
    }
    endings.add_end();
  };
  std::vector<std::jthread> threads;  // joined when the places of those that did not start are gone
  auto places = meet_in_threads(devices, options_.comm_timeout);
  try {
    for (auto& place : places) threads.emplace_back(run_rank, std::move(place));
  } catch (const std::system_error& error) {
    fail<DeviceError>("--devices {}: thread {} cannot be started: {}", devices, threads.size(), error.what());
  }
  endings.wait(devices, options_.comm_timeout);
  return result;
}

std::optional<std::string> warning_of_cores(const Job& job, const Device& device) {
  const int cores = available_cores();
  if (!job.in_threads() || device.kind() != DeviceKind::cpu || job.info().world <= cores) return std::nullopt;
  return fmt::format("--devices {}: this process may use {} {}, so devices take turns; expected {} at most",
                     job.info().world, cores, cores == 1 ? "core" : "cores", cores);
}

}  // namespace convoy
