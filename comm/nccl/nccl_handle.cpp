// NcclHandle: polls every NCCL call until it is complete or a deadline passes.
#include "convoy/comm/nccl/nccl_handle.h"

#include <cuda_runtime_api.h>

#include <chrono>
#include <utility>

#include "convoy/kernels/runtime/cuda/check.h"

namespace convoy::dist {
namespace {

// About the time that a launch takes if it needs no new connection.
constexpr std::chrono::microseconds kPollPeriod{20};

/// Creates a communicator, by the function for several ids if there are several and NCCL has it.
template <class Comm>
ncclResult_t create(Comm* comm, int size, int rank, std::vector<ncclUniqueId>& ids, ncclConfig_t* config) {
  const auto count = static_cast<int>(ids.size());
  if constexpr (requires { ncclCommInitRankScalable(comm, size, rank, count, ids.data(), config); })
    if (count > 1) return ncclCommInitRankScalable(comm, size, rank, count, ids.data(), config);
  return ncclCommInitRankConfig(comm, size, ids.front(), rank, config);
}

}  // namespace

NcclHandle::~NcclHandle() {
  abort();
  if (!aborting_.joinable()) return;
  const std::chrono::duration<double> patience(abort_seconds_);
  if (is_aborted_.wait_for(patience) == std::future_status::ready) {
    aborting_.join();
  } else {
    aborting_.detach();
  }
}

void NcclHandle::locked(const std::function<void()>& f) {
  const std::lock_guard lock(mutex_);
  if (is_freed_) fail<PeerError>("the NCCL communicator was aborted or destroyed");
  f();
}

void NcclHandle::init(std::vector<ncclUniqueId> ids, int rank, int size, const Deadline& deadline,
                      int max_ctas) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (max_ctas > 0) config.maxCTAs = max_ctas;
  CUDA_CHECK(cudaSetDevice(gpu_));
  locked([&] { NCCL_CHECK(create(&comm_, size, rank, ids, &config)); });
  poll(deadline);
}

void NcclHandle::call(const std::function<ncclResult_t(ncclComm_t)>& f, const Deadline& deadline) {
  locked([&] {
    const ncclResult_t status = f(comm_);
    if (status != ncclSuccess && status != ncclInProgress) fail<PeerError>("{}", nccl_failure(status, comm_));
  });
  poll(deadline);
}

void NcclHandle::poll(const Deadline& deadline, const char* awaited) {
  while (true) {
    ncclResult_t state = ncclInProgress;
    locked([&] {
      NCCL_CHECK(ncclCommGetAsyncError(comm_, &state));
      if (state != ncclSuccess && state != ncclInProgress) fail<PeerError>("{}", nccl_failure(state, comm_));
    });
    if (state == ncclSuccess) return;
    if (deadline.passed()) fail<PeerError>("waited {} s for {}", deadline.seconds(), awaited);
    std::this_thread::sleep_for(kPollPeriod);
  }
}

void NcclHandle::check() {
  const std::lock_guard lock(mutex_);
  if (is_freed_ || comm_ == nullptr) return;
  ncclResult_t state = ncclSuccess;
  NCCL_CHECK(ncclCommGetAsyncError(comm_, &state));
  if (state != ncclSuccess && state != ncclInProgress) fail<PeerError>("{}", nccl_failure(state, comm_));
}

void NcclHandle::destroy(const Deadline& deadline) {
  locked([&] { NCCL_CHECK(ncclCommFinalize(comm_)); });
  poll(deadline, "other ranks, or for the end of CUDA graphs with collectives of this communicator");
  locked([&] {
    is_freed_ = true;  // set even if ncclCommDestroy fails: there is no retry
    NCCL_CHECK(ncclCommDestroy(comm_));
  });
}

void NcclHandle::abort() noexcept {
  const std::lock_guard lock(mutex_);
  if (std::exchange(is_freed_, true) || comm_ == nullptr) return;
  std::packaged_task<void()> task([comm = comm_, gpu = gpu_] {
    cudaSetDevice(gpu);  // NCCL makes the thread's GPU current again, which creates a context there
    ncclCommAbort(comm);
  });
  is_aborted_ = task.get_future();
  aborting_ = std::thread(std::move(task));
}

}  // namespace convoy::dist
