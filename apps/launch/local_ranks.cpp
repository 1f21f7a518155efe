#include "apps/launch/local_ranks.h"

#include <algorithm>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "apps/launch/failure_coordinator.h"
#include "comm/bootstrap/environment.h"
#include "comm/bootstrap/thread_rendezvous.h"
#include "kernels/base/check.h"

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
  const std::optional<Launch> launch = launch_from(environment_variables());
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
  return job_->run(program, [&] {
    const int result = body(*job_);
    job_->finish();
    return result;
  });
}

int LocalRanks::run_threads(const char* program, const std::function<int(Job&)>& body) {
  const int devices = static_cast<int>(*options_.devices);
  FailureCoordinator coordinator(program);
  int result = 0;
  const auto run_rank = [&](std::unique_ptr<Rendezvous> rendezvous) {
    try {
      Job job(options_, std::move(rendezvous), coordinator);
      const int code = job.run(program, [&] {
        const int body_result = body(job);
        job.finish();
        return body_result;
      });
      if (job.is_first()) result = code;
    } catch (const ReportedError&) {  // reported by the job
    } catch (...) {                   // thrown by the constructor of the job
      const Failure failure = to_failure(std::current_exception());
      coordinator.report_failure(failure.code, failure.what);
    }
    coordinator.report_shutdown();
  };
  // Declared before `rendezvous`: if a thread cannot be started, destroying the unused rendezvous ends the
  // waiting of the started threads, which are then joined.
  std::vector<std::jthread> threads;
  auto rendezvous = rendezvous_in_threads(devices, options_.comm_timeout);
  try {
    for (auto& of_rank : rendezvous) threads.emplace_back(run_rank, std::move(of_rank));
  } catch (const std::system_error& error) {
    fail<DeviceError>("--devices {}: thread {} cannot be started: {}", devices, threads.size(), error.what());
  }
  coordinator.wait_for_shutdown(devices, options_.comm_timeout);
  return result;
}

std::optional<std::string> oversubscription_warning(const Job& job, const Device& device) {
  const int cores = available_cores();
  if (!job.in_threads() || device.kind() != DeviceKind::cpu || job.info().world_size <= cores)
    return std::nullopt;
  return fmt::format("--devices {}: this process may use {} {}, which the ranks share; expected at most {}",
                     job.info().world_size, cores, cores == 1 ? "core" : "cores", cores);
}

}  // namespace convoy
