// The functions of include/nccl.h.
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "emulator/runtime/runtime.h"
#include "tests/cuda_emulator/nccl/nccl_comm.h"
#include "tests/cuda_emulator/nccl/nccl_emulation.h"
#include "tests/cuda_emulator/nccl/nccl_sums.h"

namespace convoy::emulator {
namespace {

/// A thread that runs the queued work of this process's GPUs as long as there are communicators, because a
/// peer may wait for it. NCCL has such a proxy thread for the network; a real GPU needs none.
class ProgressThread {
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
  std::mutex mutex_;  // never locked while the driver's lock is held
  int users_ = 0;
  std::atomic<bool> is_stopping_ = false;
  std::thread thread_;
};

/// The state of the library. Protected by the driver's lock, except progress_thread.
struct NcclLibrary {
  ObjectRegistry<ncclComm> communicators;
  std::vector<ncclComm*> alive;
  int polls = 3;
  std::uint64_t collectives = 0;
  int scalable_inits = 0;
  int max_ctas = NCCL_CONFIG_UNDEF_INT;
  std::string last_error;
  std::function<void()> abort_hook;
  ProgressThread progress_thread;
};

NcclLibrary& library() {
  static NcclLibrary& one = *new NcclLibrary;  // never destroyed, like the driver
  return one;
}

[[noreturn]] void refuse(ncclResult_t status, const std::string& why) {
  throw Refusal<ncclResult_t>{status, why};
}

void require(bool condition, const std::string& why) {
  if (!condition) refuse(ncclInvalidArgument, why);
}

/// Calls `f` under the driver's lock. A Refusal becomes the result, and its reason the last error.
ncclResult_t call_library(const std::function<ncclResult_t(Driver&)>& f) {
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
  require(found != nullptr && !found->state->is_aborted,
          "not a communicator, or it was destroyed or aborted");
  return *found;
}

/// Returns the communicator for a call that starts an operation. Throws Refusal if the previous one is not
/// complete.
ncclComm& ready(ncclComm_t comm) {
  ncclComm& found = communicator(comm);
  if (found.state->error != ncclSuccess) refuse(found.state->error, library().last_error);
  require(found.stage != ncclComm::Stage::finalized, "the communicator was finalized");
  require(found.stage == ncclComm::Stage::idle,
          "Attempt to use communicator before the previous operation returned ncclSuccess");
  return found;
}

/// Makes the current call of `comm` take the time that NCCL needs to connect the ranks.
void connect(Driver& driver, ncclComm& comm) {
  comm.connected =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(driver.settings.nccl_connection_ms);
}

void remove(ncclComm& comm) {
  std::erase(library().alive, &comm);
  library().communicators.remove(&comm);
  Driver::get().expect_external_work(-1);
}

/// Returns whether `part` is exactly the slice of `rank` in `whole`, or does not overlap it.
bool is_in_place_or_disjoint(const Span& part, const Span& whole, int rank) {
  return part.begin ==
             static_cast<const std::byte*>(whole.begin) + static_cast<std::size_t>(rank) * part.bytes ||
         !part.overlaps(whole);
}

void check_memory(const Driver& driver, const ncclComm& comm, const NcclCall& call) {
  const NcclRendezvous& rendezvous = comm.state->rendezvous;
  const auto ranks = static_cast<std::size_t>(rendezvous.ranks());
  const std::size_t bytes = call.count * size_of(call.type);
  const Span in{call.in, call.op == NcclOp::reduce_scatter ? bytes * ranks : bytes};
  const Span out{call.out, call.op == NcclOp::all_gather ? bytes * ranks : bytes};
  const bool reads = call.op != NcclOp::broadcast || rendezvous.rank() == call.root;
  require(!reads || driver.memory.is_on(comm.state->gpu, in.begin, in.bytes),
          "the input is not in the memory of the communicator's GPU");
  require(driver.memory.is_on(comm.state->gpu, out.begin, out.bytes),
          "the output is not in the memory of the communicator's GPU");
  const bool fits = call.op == NcclOp::reduce_scatter ? is_in_place_or_disjoint(out, in, rendezvous.rank())
                    : call.op == NcclOp::all_gather   ? is_in_place_or_disjoint(in, out, rendezvous.rank())
                                                      : is_in_place_or_disjoint(in, out, 0);
  require(!reads || fits, "the output overlaps the input but is not in place");
}

ncclResult_t launch(const NcclCall& call, ncclComm_t handle, cudaStream_t stream) {
  return call_library([&](Driver& driver) {
    ncclComm& comm = ready(handle);
    const EmulatedStream* const held = driver.find(stream);
    require(held != nullptr && held->gpu == comm.state->gpu, "not a stream of the communicator's GPU");
    require(size_of(call.type) > 0, "unknown data type");
    require(call.reduction == ncclSum, "the emulator supports only ncclSum");
    require(call.op == NcclOp::broadcast || call.op == NcclOp::all_gather || can_add(call.type),
            "the emulator does not add ncclUint8");
    require(call.root >= 0 && call.root < comm.state->rendezvous.ranks(),
            "the root is not a rank of the communicator");
    if (call.count == 0) return ncclSuccess;  // a collective without elements does nothing
    check_memory(driver, comm, call);
    comm.call = call;
    comm.stream = stream;
    comm.capture = held->capture;
    comm.stage = ncclComm::Stage::launching;
    comm.polls = library().polls;
    if (!std::exchange(comm.has_launched, true)) connect(driver, comm);
    return ncclInProgress;
  });
}

}  // namespace

void set_nccl_polls(int polls) {
  const std::lock_guard lock(Driver::get().lock());
  library().polls = polls;
}

void break_nccl(int rank, ncclResult_t error) {
  const std::lock_guard lock(Driver::get().lock());
  library().last_error = "broken by the test";
  for (ncclComm* const comm : library().alive)
    if (comm->state->rendezvous.rank() == rank) comm->state->error = error;
}

void set_nccl_abort_hook(std::function<void()> hook) {
  const std::lock_guard lock(Driver::get().lock());
  library().abort_hook = std::move(hook);
}

std::uint64_t nccl_collectives() {
  const std::lock_guard lock(Driver::get().lock());
  return library().collectives;
}

int nccl_max_ctas() {
  const std::lock_guard lock(Driver::get().lock());
  return library().max_ctas;
}

int nccl_communicators() {
  const std::lock_guard lock(Driver::get().lock());
  return static_cast<int>(library().alive.size());
}

void count_nccl_collective() { ++library().collectives; }
int nccl_scalable_inits() {
  const std::lock_guard lock(Driver::get().lock());
  return library().scalable_inits;
}
void set_nccl_error(const std::string& why) { library().last_error = why; }

}  // namespace convoy::emulator

using namespace convoy::emulator;  // NOLINT: the names below are those of the C API

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return call_library([&](Driver&) { return NcclRendezvous::create(*id) ? ncclSuccess : ncclSystemError; });
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
  thread_local std::string text;  // a copy, so that the text does not change while the caller reads it
  const std::lock_guard lock(Driver::get().lock());
  text = library().last_error;
  return text.c_str();
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  library().progress_thread.enter();
  int gpu = 0;
  const cudaError_t found = on_gpu([&](Driver&, int current) {
    gpu = current;
    return cudaSuccess;
  });
  const ncclResult_t status = call_library([&](Driver& driver) {
    *comm = nullptr;
    if (found != cudaSuccess) refuse(ncclUnhandledCudaError, cudaGetErrorString(found));
    require(config != nullptr && config->magic == 0xcafebeef && config->size == sizeof *config,
            "the configuration was not initialized with NCCL_CONFIG_INITIALIZER");
    require(config->blocking == 0, "the emulator supports only non-blocking communicators");
    require(config->maxCTAs == NCCL_CONFIG_UNDEF_INT || (config->maxCTAs >= 1 && config->maxCTAs <= 64),
            "maxCTAs is not from 1 to 64");
    library().max_ctas = config->maxCTAs;
    require(ranks > 0 && rank >= 0 && rank < ranks, "the rank is not below the number of ranks");
    *comm = library().communicators.add(
        {.state = std::make_shared<NcclState>(id, rank, ranks, gpu), .polls = library().polls});
    connect(driver, **comm);
    library().alive.push_back(*comm);
    driver.expect_external_work(+1);
    return ncclInProgress;
  });
  if (*comm == nullptr) library().progress_thread.leave();
  return status;
}

// The ranks meet at the first id. The others must be valid, too.
ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int ranks, int rank, int count, ncclUniqueId* ids,
                                      ncclConfig_t* config) {
  const ncclResult_t valid = call_library([&](Driver&) {
    require(count >= 1 && ids != nullptr, "there are no ids");
    for (int i = 0; i < count; ++i)
      require(std::strncmp(ids[i].internal, "convoy ", 7) == 0,
              "a unique id was not created by ncclGetUniqueId");
    ++library().scalable_inits;
    return ncclSuccess;
  });
  return valid == ncclSuccess ? ncclCommInitRankConfig(comm, ranks, ids[0], rank, config) : valid;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  return call_library([&](Driver& driver) {
    *error = communicator(comm).poll(driver);
    return ncclSuccess;
  });
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return call_library([&](Driver&) {
    ncclComm& found = ready(comm);
    found.stage = ncclComm::Stage::finalizing;
    found.polls = library().polls;
    found.state->is_finalizing = true;
    found.state->publish_finalized();
    return ncclInProgress;
  });
}

// NCCL finalizes the communicator if necessary and may then wait for other ranks. Destructors must not wait,
// so this is an error here.
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const ncclResult_t status = call_library([&](Driver&) {
    ncclComm& found = communicator(comm);
    if (found.stage != ncclComm::Stage::finalized)
      refuse(ncclInvalidUsage, "the communicator is not finalized");
    remove(found);
    return ncclSuccess;
  });
  if (status == ncclSuccess) library().progress_thread.leave();
  return status;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  std::function<void()> hook;
  call_library([&](Driver&) {
    hook = library().abort_hook;
    return ncclSuccess;
  });
  if (hook) hook();
  // Makes the thread's GPU current again at the end, for which the thread needs a context.
  on_gpu([](Driver&, int) { return cudaSuccess; });
  const ncclResult_t status = call_library([&](Driver& driver) {
    ncclComm& found = communicator(comm);
    found.state->is_aborted = true;
    driver.run_all();  // collectives that wait for peers end now
    driver.run_until([&] { return !found.state->is_captured(); });
    remove(found);
    return ncclSuccess;
  });
  if (status == ncclSuccess) library().progress_thread.leave();
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
