#include "comm/nccl_handle.h"

#include <thread>

#include "comm/nccl_check.h"

namespace convoy {
namespace {

// A collective that needs no new connection is through in about this time.
constexpr std::chrono::microseconds kPollPeriod{20};

}  // namespace

void NcclHandle::locked(const std::function<void()>& f) {
  const std::lock_guard lock(mutex_);
  if (is_over_) fail<PeerError>("the communicator has ended");
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
  if (is_over_ || comm_ == nullptr) return;
  ncclResult_t state = ncclSuccess;
  NCCL_CHECK(ncclCommGetAsyncError(comm_, &state));
  if (state != ncclSuccess && state != ncclInProgress) fail<PeerError>("{}", nccl_failure(state, comm_));
}

void NcclHandle::destroy(const Deadline& deadline) {
  call([](ncclComm_t comm) { return ncclCommFinalize(comm); }, deadline);
  locked([&] {
    is_over_ = true;  // whatever comes of it: there is no second try
    NCCL_CHECK(ncclCommDestroy(comm_));
  });
}

void NcclHandle::abort() noexcept {
  const std::lock_guard lock(mutex_);
  if (!is_over_ && comm_ != nullptr) ncclCommAbort(comm_);
  is_over_ = true;
}

}  // namespace convoy
