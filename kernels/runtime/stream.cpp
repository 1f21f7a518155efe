#include "convoy/kernels/runtime/stream.h"

#include <sched.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "convoy/kernels/base/error.h"
#include "convoy/kernels/runtime/memory/memory.h"
#include "convoy/kernels/runtime/stream_wait.h"
#include "convoy/kernels/runtime/thread_pool.h"

namespace convoy {
namespace {

/// The allocator of a stream that was created without one.
struct OwnMemory {
  explicit OwnMemory(const CpuStream&) {}
  CachingAllocator allocator{host_memory(), 0, CachingAllocator::policy_from_environment()};
};

}  // namespace

struct CpuEvent::State {
  std::mutex mutex;
  std::condition_variable changed;
  int pending = 0;  // calls of record() that their streams have not reached yet
};

CpuEvent::CpuEvent() : state_(std::make_shared<State>()) {}

bool CpuEvent::reached() const {
  const std::lock_guard lock(state_->mutex);
  return state_->pending == 0;
}

void CpuEvent::wait() const {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->pending == 0; });
}

/// The worker thread of a stream and its queue.
struct CpuStream::Worker {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  bool busy = false;
  bool stopping = false;
  std::exception_ptr failure;
  std::thread thread;  // declared last, so that it starts after the other members exist

  Worker() : thread([this] { run(); }) {}
  ~Worker() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    changed.notify_all();
    thread.join();
  }

  void run() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return stopping || !queue.empty(); });
      if (queue.empty()) return;  // stopping, and no work is left
      const std::function<void()> work = std::move(queue.front());
      queue.pop_front();
      busy = true;
      lock.unlock();
      try {
        work();
      } catch (...) {
        lock.lock();
        if (!failure) failure = std::current_exception();
        lock.unlock();
      }
      lock.lock();
      busy = false;
      changed.notify_all();
    }
  }
};

CpuStream::CpuStream(CpuStreamOptions options)
    : threads_(options.threads > 0 ? options.threads : available_cores()),
      pool_(std::make_unique<ThreadPool>(threads_)),
      memory_(options.memory),
      worker_(options.own_thread ? std::make_unique<Worker>() : nullptr) {}

CpuStream::~CpuStream() = default;

CachingAllocator& CpuStream::memory() { return memory_ != nullptr ? *memory_ : local<OwnMemory>().allocator; }

void CpuStream::warn_once(const std::string& kind, std::string text) {
  const std::lock_guard lock(warnings_mutex_);
  if (warned_.insert(kind).second) warnings_.push_back(std::move(text));
}

std::vector<std::string> CpuStream::take_warnings() {
  const std::lock_guard lock(warnings_mutex_);
  return std::exchange(warnings_, {});
}

void CpuStream::submit(std::function<void()> work) {
  if (!worker_) return work();
  {
    const std::lock_guard lock(worker_->mutex);
    worker_->queue.push_back(std::move(work));
  }
  worker_->changed.notify_all();
}

void CpuStream::record(CpuEvent& event) {
  {
    const std::lock_guard lock(event.state_->mutex);
    ++event.state_->pending;
  }
  submit([state = event.state_] {
    {
      const std::lock_guard lock(state->mutex);
      --state->pending;
    }
    state->changed.notify_all();
  });
}

void CpuStream::wait(const CpuEvent& event) {
  submit([event] { event.wait(); });
}

void CpuStream::synchronize() {
  if (!worker_) return;
  const StreamWait wait;
  std::unique_lock lock(worker_->mutex);
  worker_->changed.wait(lock, [&] { return worker_->queue.empty() && !worker_->busy; });
  if (const std::exception_ptr failure = std::exchange(worker_->failure, nullptr))
    std::rethrow_exception(failure);
}

int available_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) return std::max(1, CPU_COUNT(&mask));
  return std::max(1u, std::thread::hardware_concurrency());
}

void detail::fail_without_gpu_kernel() {
  throw UsageError(
      "found a tensor on a GPU, and an op with a kernel for the CPU alone; expected a tensor on the CPU, or an op "
      "that calls a kernel for CudaStream too");
}

}  // namespace convoy
