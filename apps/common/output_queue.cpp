#include "convoy/apps/common/output_queue.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <new>
#include <string_view>
#include <utility>

#include "convoy/kernels/base/check.h"

namespace convoy {
namespace {

constexpr std::size_t kMaxWaitingBytes = std::size_t{4} << 20;
constexpr double kSecondsOfError = 1;  // for which what is printed to stderr waits

}  // namespace

OutputQueue::OutputQueue(int descriptor) : descriptor_(descriptor), thread_([this] { write(); }) {}

OutputQueue::~OutputQueue() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void OutputQueue::push(std::string text, bool important) {
  const std::lock_guard lock(mutex_);
  texts_.push_back({std::move(text), important});
  bytes_ += texts_.back().bytes.size();
  for (auto oldest = texts_.begin(); bytes_ > kMaxWaitingBytes && oldest + 1 != texts_.end();) {
    if (oldest->is_important) {
      ++oldest;
      continue;
    }
    bytes_ -= oldest->bytes.size();
    dropped_ += static_cast<std::size_t>(std::ranges::count(oldest->bytes, '\n'));
    oldest = texts_.erase(oldest);
  }
  changed_.notify_all();
}

void OutputQueue::drain(double seconds) {
  std::unique_lock lock(mutex_);
  if (is_stuck_) return;
  is_stuck_ = !changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                                 [&] { return texts_.empty() && !is_writing_; });
}

// Asks for no memory: the queue may have to tell that there is none.
void OutputQueue::write() {
  pollfd writable{.fd = descriptor_, .events = POLLOUT, .revents = 0};
  const auto write_all = [&](std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
      if (count < 0 && errno == EAGAIN && poll(&writable, 1, -1) > 0) continue;  // a shared terminal
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return;  // the reader has closed its end
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
  };
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return !texts_.empty() || is_ending_; });
    if (texts_.empty()) return;
    const std::string bytes = std::move(texts_.front().bytes);
    texts_.pop_front();
    bytes_ -= bytes.size();
    const std::size_t dropped = std::exchange(dropped_, 0);
    is_writing_ = true;
    lock.unlock();
    if (dropped > 0 && poll(&writable, 1, -1) > 0)
      dprintf(descriptor_, "%s: %zu lines dropped, because the output was not read\n",
              program_invocation_short_name, dropped);
    write_all(bytes);
    lock.lock();
    is_writing_ = is_stuck_ = false;
    changed_.notify_all();
  }
}

QueuedStream::QueuedStream(std::FILE*& stream, QueuedStream* first)
    : queue_(fileno(stream)), stream_(stream), direct_(stream), first_(first) {
  std::fflush(direct_);
  cookie_io_functions_t functions{};
  functions.write = [](void* self, const char* bytes, std::size_t count) {
    return static_cast<QueuedStream*>(self)->write(bytes, count);
  };
  std::FILE* const queued = fopencookie(this, "w", functions);
  if (queued == nullptr) fail<DeviceError>("output: found no memory for a stream");
  std::setvbuf(queued, nullptr, first == nullptr ? _IOLBF : _IONBF, BUFSIZ);
  stream_ = queued;
}

QueuedStream::~QueuedStream() { std::fclose(std::exchange(stream_, direct_)); }

ssize_t QueuedStream::write(const char* bytes, std::size_t count) noexcept {
  if (first_ != nullptr) first_->queue_.drain(kSecondsOfError);
  try {
    queue_.push({bytes, count});
  } catch (const std::bad_alloc&) {  // then this thread waits for the reader
    queue_.drain(kSecondsOfError);
    return std::max<ssize_t>(::write(fileno(direct_), bytes, count), 0);  // fopencookie(3): not negative
  }
  if (first_ != nullptr) queue_.drain(kSecondsOfError);
  return static_cast<ssize_t>(count);
}

}  // namespace convoy
