#include "comm/shm_window.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>
#include <utility>

#include "comm/rank_text.h"
#include "kernels/runtime/check.h"

namespace convoy {
namespace {

constexpr std::size_t kPage = 4096;
constexpr int kSpins = 300;  // a few microseconds: less than it costs to sleep and be woken
constexpr std::chrono::milliseconds kLook(50);  // between looks for the dead

std::size_t rounded_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

struct ShmWindow::Control {
  enum : std::uint32_t { kWell, kWriting, kFailed };

  std::atomic<std::uint32_t> state;
  char reason[2048];

  std::string text() const { return {reason, strnlen(reason, sizeof reason)}; }
};

ShmWindow::ShmWindow(int rank, int size, const TextExchange& exchange, std::size_t chunk_bytes,
                     std::vector<int> names)
    : rank_(rank), size_(size), names_(std::move(names)) {
  if (names_.empty()) {
    names_.resize(static_cast<std::size_t>(size_));
    std::iota(names_.begin(), names_.end(), 0);
  }
  // Everybody says what went wrong, so that all ranks fail alike and none waits for one that did.
  const auto together = [&](auto&& work) {
    std::string mine;
    try {
      mine = fmt::format("ok {}", work());
    } catch (const std::exception& error) {
      mine = error.what();
    }
    const std::vector<std::string> all = exchange(mine);
    for (std::size_t other = 0; other < all.size(); ++other)
      if (!all[other].starts_with("ok ")) convoy::fail<PeerError>("rank {}: {}", names_[other], all[other]);
    return all.front().substr(3);
  };
  const auto layout = [&](std::size_t bytes) {
    chunk_bytes_ = rounded_up(std::max<std::size_t>(bytes, 1), 64 * static_cast<std::size_t>(size_));
    const std::size_t buffers = kBuffers * (chunk_bytes_ + slice_bytes());
    return rounded_up(sizeof(Control), kPage) +
           static_cast<std::size_t>(size_) *
               (rounded_up(sizeof(RankBlock), kPage) + rounded_up(buffers, kPage));
  };

  const std::string found = together([&]() -> std::string {
    if (rank_ != 0) return "";
    memory_ = std::make_unique<SharedMemory>(layout(chunk_bytes));
    new (memory_->data()) Control{};
    for (int other = 0; other < size_; ++other) new (&block(other)) RankBlock{.steps = kFirstStep};
    return fmt::format("{} {}", chunk_bytes_, memory_->address());
  });
  together([&]() -> std::string {
    if (rank_ != 0) {
      const std::size_t space = found.find(' ');
      memory_ = std::make_unique<SharedMemory>(found.substr(space + 1));
      if (layout(std::stoull(found.substr(0, space))) != memory_->bytes())
        convoy::fail<PeerError>("shared memory of {} bytes, which is not what {} ranks need",
                                memory_->bytes(), size_);
    }
    memory_->hold(rank_);  // who dies before has not come to the exchange, and that says so
    return "";
  });
}

ShmWindow::Control& ShmWindow::control() const {
  return *std::launder(reinterpret_cast<Control*>(memory_->data()));
}

ShmWindow::RankBlock& ShmWindow::block(int rank) const {
  char* const first = memory_->data() + rounded_up(sizeof(Control), kPage);
  return *std::launder(reinterpret_cast<RankBlock*>(first + static_cast<std::size_t>(rank) *
                                                                rounded_up(sizeof(RankBlock), kPage)));
}

char* ShmWindow::chunk(int rank, std::int64_t number) const {
  char* const first = reinterpret_cast<char*>(&block(size_));  // after the last
  const std::size_t buffers = rounded_up(kBuffers * (chunk_bytes_ + slice_bytes()), kPage);
  return first + static_cast<std::size_t>(rank) * buffers +
         static_cast<std::size_t>(number % kBuffers) * chunk_bytes_;
}

char* ShmWindow::slice(int rank, std::int64_t number) const {
  return chunk(rank, 0) + kBuffers * chunk_bytes_ +
         static_cast<std::size_t>(number % kBuffers) * slice_bytes();
}

Collective& ShmWindow::posted(int rank, std::uint64_t number) const { return block(rank).posted[number % 2]; }

void ShmWindow::step() {
  RankBlock& mine = block(rank_);
  // First count, then look for sleepers; they first say that they sleep, then look at the count.
  mine.steps.store(++steps_);
  if (mine.sleepers.load() > 0) futex_wake_all(mine.steps);
}

void ShmWindow::wait(const Deadline& deadline, std::uint32_t back) {
  for (int other = 0; other < size_; ++other)
    if (!has_come(other, steps_ - back)) sleep_until_come(other, steps_ - back, deadline);
}

void ShmWindow::wait_for(int rank, const Deadline& deadline) {
  if (!has_come(rank, steps_)) sleep_until_come(rank, steps_, deadline);
}

bool ShmWindow::has_come(int rank, std::uint32_t target) const {
  // By the difference: the count wraps around.
  const std::uint32_t steps = block(rank).steps.load(std::memory_order_acquire);
  return static_cast<std::int32_t>(steps - target) >= 0;
}

template <class F>
void ShmWindow::look_for_the_dead(F&& matters) {
  for (int other = 0; other < size_; ++other)
    if (other != rank_ && !memory_->is_held(other) && matters(other))
      fail(fmt::format("rank {} has died", name_of(other)));
}

void ShmWindow::sleep_until_come(int rank, std::uint32_t target, const Deadline& deadline) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (has_come(rank, target)) return;
    _mm_pause();
  }
  RankBlock& other = block(rank);
  while (!has_come(rank, target)) {
    throw_failure();
    other.sleepers.fetch_add(1);
    const std::uint32_t seen = other.steps.load();
    if (static_cast<std::int32_t>(seen - target) < 0)
      futex_wait(other.steps, seen, std::min<std::chrono::nanoseconds>(kLook, deadline.left()));
    other.sleepers.fetch_sub(1);
    if (has_come(rank, target)) return;
    look_for_the_dead([&](int) { return !has_come(rank, target); });
    if (!deadline.passed()) continue;
    std::vector<int> missing;
    for (int late = 0; late < size_; ++late)
      if (!has_come(late, target)) missing.push_back(name_of(late));
    if (!missing.empty())
      fail(fmt::format("rank {} waited {} s for {}", name_of(rank_), deadline.seconds(),
                       text_of_ranks(missing)));
  }
}

void ShmWindow::look() {
  throw_failure();
  const auto now = Deadline::Clock::now();
  if (now < next_look_) return;
  next_look_ = now + kLook;
  look_for_the_dead([&](int other) { return !has_come(other, steps_); });
  throw_failure();
}

void ShmWindow::throw_failure() const {
  if (control().state.load() == Control::kWell) return;
  // Whoever writes the reason may have died over it.
  const Deadline soon(1);
  while (control().state.load() == Control::kWriting && !soon.passed()) _mm_pause();
  throw PeerError(control().text());
}

void ShmWindow::fail(const std::string& reason) noexcept {
  std::uint32_t well = Control::kWell;
  if (!control().state.compare_exchange_strong(well, Control::kWriting)) return;
  std::memcpy(control().reason, reason.data(), std::min(reason.size(), sizeof control().reason - 1));
  control().state.store(Control::kFailed);
  for (int rank = 0; rank < size_; ++rank) futex_wake_all(block(rank).steps);
}

}  // namespace convoy
