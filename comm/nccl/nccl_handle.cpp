// NcclHandle: polls every NCCL call until it is complete or a deadline passes.
#include "convoy/comm/nccl/nccl_handle.h"

#include <thread>
#include <utility>

#include "convoy/comm/nccl/nccl_check.h"

namespace convoy::dist {
namespace {

// About the time that a launch takes if it needs no new connection.
constexpr std::chrono::microseconds kPollPeriod{20};

}  // namespace

void NcclHandle::locked(const std::function<void()>& f) {
  const std::lock_guard lock(mutex_);
  if (is_freed_) fail<PeerError>("the NCCL communicator was aborted or destroyed");
  f();
}

void NcclHandle::init(const ncclUniqueId& id, int rank, int size, const Deadline& deadline) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  locked([&] { NCCL_CHECK(ncclCommInitRankConfig(&comm_, size, id, rank, &config)); });
  poll(deadline);
}

void NcclHandle::call(const std::function<ncclResult_t(ncclComm_t)>& f, const Deadline& deadline) {
  locked([&] {
    const ncclResult_t status = f(comm_);
    if (status != ncclSuccess && status != ncclInProgress) fail<PeerError>("{}", nccl_failure(status, comm_));
  });
  poll(deadline);
}

void NcclHandle::poll(const Deadline& deadline) {
  while (true) {
    ncclResult_t state = ncclInProgress;
    locked([&] {
      NCCL_CHECK(ncclCommGetAsyncError(comm_, &state));
      if (state != ncclSuccess && state != ncclInProgress) fail<PeerError>("{}", nccl_failure(state, comm_));
    });
    if (state == ncclSuccess) return;
    if (deadline.passed()) fail<PeerError>("waited {} s for other ranks", deadline.seconds());
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
  call([](ncclComm_t comm) { return ncclCommFinalize(comm); }, deadline);
  locked([&] {
    is_freed_ = true;  // set even if ncclCommDestroy fails: there is no retry
    NCCL_CHECK(ncclCommDestroy(comm_));
  });
}

void NcclHandle::abort() noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_freed_, true) || comm_ == nullptr) return;
  }
  // Without the lock: if it hangs, the calls of other threads fail nevertheless.
  ncclCommAbort(comm_);
}

}  // namespace convoy::dist
