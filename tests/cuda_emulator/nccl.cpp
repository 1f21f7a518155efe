// The functions of include/nccl.h.
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cuda_emulator/nccl_comm.h"
#include "tests/cuda_emulator/nccl_emulation.h"
#include "tests/cuda_emulator/nccl_sums.h"
#include "tests/cuda_emulator/runtime.h"

namespace convoy::emulator {
namespace {

/// Lets the GPUs of this process work while the host does something else, as long as there are communicators:
/// another rank may wait for it. (The real library has such threads, too; the real GPU needs none.)
class Proxy {
 public:
  void enter() {
    const std::lock_guard lock(mutex_);
    if (++users_ > 1) return;
    is_stopping_ = false;
    thread_ = std::thread([this] {
      while (!is_stopping_) {
        {
          const std::lock_guard turn(Driver::get().lock());
          Driver::get().run_all();
        }
        std::this_thread::sleep_for(std::chrono::microseconds(300));
      }
    });
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    if (--users_ > 0) return;
    is_stopping_ = true;
    thread_.join();
  }

 private:
  std::mutex mutex_;  // never taken by who holds the driver's lock
  int users_ = 0;
  std::atomic<bool> is_stopping_ = false;
  std::thread thread_;
};

/// Under the driver's lock, the proxy apart.
struct NcclLibrary {
  Handed<ncclComm> communicators;
  std::vector<ncclComm*> alive;
  int questions = 3;
  std::uint64_t collectives = 0;
  std::string last_error;
  Proxy proxy;
};

NcclLibrary& library() {
  static NcclLibrary& one = *new NcclLibrary;  // never destroyed, as the driver
  return one;
}

[[noreturn]] void refuse(ncclResult_t status, const std::string& why) {
  throw Refusal<ncclResult_t>{status, why};
}

void require(bool condition, const std::string& why) {
  if (!condition) refuse(ncclInvalidArgument, why);
}

/// Under the driver's lock; a refusal becomes the status, and its reason the last error.
ncclResult_t answer(const std::function<ncclResult_t(Driver&)>& f) {
  Driver& driver = Driver::get();
  const std::lock_guard lock(driver.lock());
  try {
    return f(driver);
  } catch (const Refusal<ncclResult_t>& refusal) {
    library().last_error = refusal.why;
    return refusal.status;
  }
}

ncclComm& communicator(ncclComm_t comm) {
  require(comm != nullptr, "the communicator is null");
  ncclComm* const found = library().communicators.find(comm);
  require(found != nullptr, "not a communicator, or one that was destroyed or aborted");
  return *found;
}

/// For a call that begins something new.
ncclComm& ready(ncclComm_t comm) {
  ncclComm& found = communicator(comm);
  if (found.state->error != ncclSuccess) refuse(found.state->error, library().last_error);
  require(found.stage != ncclComm::Stage::finalized, "the communicator was finalized");
  require(found.stage == ncclComm::Stage::idle,
          "Attempt to use communicator before the previous operation returned ncclSuccess");
  return found;
}

void remove(ncclComm& comm) {
  std::erase(library().alive, &comm);
  library().communicators.remove(&comm);
  Driver::get().expect_others(-1);
}

/// A part that lies in its place of the whole, rank by rank, or apart from it.
bool is_in_place_or_apart(const Span& part, const Span& whole, int rank) {
  return part.begin ==
             static_cast<const std::byte*>(whole.begin) + static_cast<std::size_t>(rank) * part.bytes ||
         !part.overlaps(whole);
}

void check_memory(const Driver& driver, const ncclComm& comm, const NcclCall& call) {
  const NcclMeeting& meeting = comm.state->meeting;
  const auto ranks = static_cast<std::size_t>(meeting.ranks());
  const std::size_t bytes = call.count * size_of(call.type);
  const Span in{call.in, call.op == NcclOp::reduce_scatter ? bytes * ranks : bytes};
  const Span out{call.out, call.op == NcclOp::all_gather ? bytes * ranks : bytes};
  const bool reads = call.op != NcclOp::broadcast || meeting.rank() == call.root;
  require(!reads || driver.memory.is_on(comm.state->gpu, in.begin, in.bytes),
          "the data to send is not on the communicator's GPU");
  require(driver.memory.is_on(comm.state->gpu, out.begin, out.bytes),
          "the place of the result is not on the communicator's GPU");
  const bool fits = call.op == NcclOp::reduce_scatter ? is_in_place_or_apart(out, in, meeting.rank())
                    : call.op == NcclOp::all_gather   ? is_in_place_or_apart(in, out, meeting.rank())
                                                      : is_in_place_or_apart(in, out, 0);
  require(!reads || fits, "the result overlaps what is sent, and is not in place");
}

ncclResult_t launch(const NcclCall& call, ncclComm_t handle, cudaStream_t stream) {
  return answer([&](Driver& driver) {
    ncclComm& comm = ready(handle);
    const EmulatedStream* const held = driver.find(stream);
    require(held != nullptr && held->gpu == comm.state->gpu, "not a stream of the communicator's GPU");
    require(size_of(call.type) > 0, "no such type");
    require(call.reduction == ncclSum, "the emulator has sums alone");
    require(call.op == NcclOp::broadcast || call.op == NcclOp::all_gather || can_add(call.type),
            "the emulator has no sum of bytes");
    require(call.root >= 0 && call.root < comm.state->meeting.ranks(), "no such root");
    if (call.count == 0) return ncclSuccess;  // nothing happens, and nobody is waited for
    check_memory(driver, comm, call);
    comm.call = call;
    comm.stream = stream;
    comm.capture = held->capture;
    comm.stage = ncclComm::Stage::launching;
    comm.questions = library().questions;
    return ncclInProgress;
  });
}

}  // namespace

void set_nccl_questions(int questions) {
  const std::lock_guard lock(Driver::get().lock());
  library().questions = questions;
}

void break_nccl(int rank, ncclResult_t error) {
  const std::lock_guard lock(Driver::get().lock());
  library().last_error = "broken by the test";
  for (ncclComm* const comm : library().alive)
    if (comm->state->meeting.rank() == rank) comm->state->error = error;
}

std::uint64_t nccl_collectives() {
  const std::lock_guard lock(Driver::get().lock());
  return library().collectives;
}

int nccl_communicators() {
  const std::lock_guard lock(Driver::get().lock());
  return static_cast<int>(library().alive.size());
}

void count_nccl_collective() { ++library().collectives; }
void set_nccl_error(const std::string& why) { library().last_error = why; }

}  // namespace convoy::emulator

using namespace convoy::emulator;  // NOLINT: the names below are C's

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return answer([&](Driver&) { return NcclMeeting::found(*id) ? ncclSuccess : ncclSystemError; });
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError: return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError: return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument: return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage: return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
  }
  return "unknown result code";
}

const char* ncclGetLastError(ncclComm_t) {
  thread_local std::string text;  // what the caller reads may not change meanwhile
  const std::lock_guard lock(Driver::get().lock());
  text = library().last_error;
  return text.c_str();
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  library().proxy.enter();
  int gpu = 0;
  const cudaError_t found = on_gpu([&](Driver&, int current) {
    gpu = current;
    return cudaSuccess;
  });
  const ncclResult_t status = answer([&](Driver& driver) {
    *comm = nullptr;
    if (found != cudaSuccess) refuse(ncclUnhandledCudaError, cudaGetErrorString(found));
    require(config != nullptr && config->magic == 0xcafebeef && config->size == sizeof *config,
            "not a configuration that NCCL_CONFIG_INITIALIZER has made");
    require(config->blocking == 0, "the emulator has communicators alone that do not block");
    require(ranks > 0 && rank >= 0 && rank < ranks, "no such rank");
    *comm = library().communicators.add(
        {.state = std::make_shared<NcclState>(id, rank, ranks, gpu), .questions = library().questions});
    library().alive.push_back(*comm);
    driver.expect_others(+1);
    return ncclInProgress;
  });
  if (*comm == nullptr) library().proxy.leave();
  return status;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  return answer([&](Driver& driver) {
    *error = communicator(comm).ask(driver);
    return ncclSuccess;
  });
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return answer([&](Driver&) {
    ncclComm& found = ready(comm);
    found.stage = ncclComm::Stage::finalizing;
    found.questions = library().questions;
    found.state->is_finalizing = true;
    found.state->settle();
    return ncclInProgress;
  });
}

// The real one finalizes what was not; then it may wait for the other ranks, which no destructor should.
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const ncclResult_t status = answer([&](Driver&) {
    ncclComm& found = communicator(comm);
    if (found.stage != ncclComm::Stage::finalized)
      refuse(ncclInvalidUsage, "the communicator was not finalized, or is not yet");
    remove(found);
    return ncclSuccess;
  });
  if (status == ncclSuccess) library().proxy.leave();
  return status;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const ncclResult_t status = answer([&](Driver& driver) {
    ncclComm& found = communicator(comm);
    found.state->is_aborted = true;
    driver.run_all();  // what waited for others, and has its turn, ends now
    remove(found);
    return ncclSuccess;
  });
  if (status == ncclSuccess) library().proxy.leave();
  return status;
}

ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t reduction, ncclComm_t comm, cudaStream_t stream) {
  return launch({.op = NcclOp::all_reduce,
                 .in = static_cast<const std::byte*>(in),
                 .out = static_cast<std::byte*>(out),
                 .count = count,
                 .type = type,
                 .reduction = reduction},
                comm, stream);
}

ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return launch({.op = NcclOp::broadcast,
                 .in = static_cast<const std::byte*>(in),
                 .out = static_cast<std::byte*>(out),
                 .count = count,
                 .type = type,
                 .root = root},
                comm, stream);
}

ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t out_count, ncclDataType_t type,
                               ncclRedOp_t reduction, ncclComm_t comm, cudaStream_t stream) {
  return launch({.op = NcclOp::reduce_scatter,
                 .in = static_cast<const std::byte*>(in),
                 .out = static_cast<std::byte*>(out),
                 .count = out_count,
                 .type = type,
                 .reduction = reduction},
                comm, stream);
}

ncclResult_t ncclAllGather(const void* in, void* out, std::size_t in_count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return launch({.op = NcclOp::all_gather,
                 .in = static_cast<const std::byte*>(in),
                 .out = static_cast<std::byte*>(out),
                 .count = in_count,
                 .type = type},
                comm, stream);
}
