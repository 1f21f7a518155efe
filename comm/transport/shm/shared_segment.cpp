#include "convoy/comm/transport/shm/shared_segment.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>
#include <thread>
#include <utility>

#include "convoy/comm/core/collective.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/cpu_pause.h"
#include "convoy/kernels/base/round_up.h"

namespace convoy::dist {
namespace {

constexpr std::size_t kPage = 4096;
// A few microseconds: less than the cost of sleeping and waking up.
constexpr int kSpinIterations = 300;
// Time between checks for dead ranks.
constexpr std::chrono::milliseconds kPollInterval(50);

}  // namespace

struct SharedSegment::Control {
  enum : std::uint32_t { kRunning, kWritingReason, kFailed };

  std::atomic<std::uint32_t> state;
  char reason[2048];

  std::string text() const { return {reason, strnlen(reason, sizeof reason)}; }
};

SharedSegment::SharedSegment(int rank, int size, const TextExchange& exchange, std::size_t chunk_bytes,
                             std::vector<int> global_ranks, int checksums)
    : rank_(rank),
      size_(size),
      checksums_(static_cast<std::size_t>(checksums > 0 ? checksums : size)),
      global_ranks_(std::move(global_ranks)) {
  if (global_ranks_.empty()) {
    global_ranks_.resize(static_cast<std::size_t>(size_));
    std::iota(global_ranks_.begin(), global_ranks_.end(), 0);
  }
  // Runs `work` and exchanges its result or error, so all ranks fail together. Returns the result of rank 0.
  const auto run_on_all = [&](auto&& work) {
    std::string local;
    try {
      local = fmt::format("ok {}", work());
    } catch (const std::exception& error) {
      local = error.what();
    }
    const std::vector<std::string> all = exchange(local);
    for (std::size_t other = 0; other < all.size(); ++other)
      if (!all[other].starts_with("ok "))
        convoy::fail<PeerError>("rank {}: {}", global_ranks_[other], all[other]);
    return all.front().substr(3);
  };
  const auto layout = [&](std::size_t bytes) {
    chunk_bytes_ = round_up(std::max<std::size_t>(bytes, 1), 64 * static_cast<std::size_t>(size_));
    const std::size_t buffers = kBuffers * (chunk_bytes_ + slice_bytes());
    return round_up(sizeof(Control), kPage) +
           static_cast<std::size_t>(size_) * (block_bytes() + round_up(buffers, kPage));
  };

  const std::string description = run_on_all([&]() -> std::string {
    if (rank_ != 0) return "";
    memory_ = std::make_unique<SharedMemory>(layout(chunk_bytes));
    new (memory_->data()) Control{};
    for (int other = 0; other < size_; ++other) new (&block(other)) RankBlock{.steps = kFirstStep};
    return fmt::format("{} {}", chunk_bytes_, memory_->address());
  });
  run_on_all([&]() -> std::string {
    if (rank_ != 0) {
      const std::size_t space = description.find(' ');
      memory_ = std::make_unique<SharedMemory>(description.substr(space + 1));
      if (layout(std::stoull(description.substr(0, space))) != memory_->bytes())
        convoy::fail<PeerError>("shared memory: found {} bytes, which do not match {} ranks",
                                memory_->bytes(), size_);
    }
    memory_->hold(rank_);  // a rank that dies earlier is missing in the exchange
    return "";
  });
}

SharedSegment::Control& SharedSegment::control() const {
  return *std::launder(reinterpret_cast<Control*>(memory_->data()));
}

SharedSegment::RankBlock& SharedSegment::block(int rank) const {
  char* const first = memory_->data() + round_up(sizeof(Control), kPage);
  return *std::launder(reinterpret_cast<RankBlock*>(first + static_cast<std::size_t>(rank) * block_bytes()));
}

std::size_t SharedSegment::block_bytes() const {
  return round_up(sizeof(RankBlock) + kBuffers * checksums_ * sizeof(std::uint64_t), kPage);
}

std::uint64_t& SharedSegment::checksum(int rank, int part, std::int64_t number) const {
  auto* const first = reinterpret_cast<std::uint64_t*>(&block(rank) + 1);
  return first[static_cast<std::size_t>(number % kBuffers) * checksums_ + static_cast<std::size_t>(part)];
}

char* SharedSegment::chunk(int rank, std::int64_t number) const {
  char* const first = reinterpret_cast<char*>(&block(size_));  // the buffers follow the last block
  const std::size_t buffers = round_up(kBuffers * (chunk_bytes_ + slice_bytes()), kPage);
  return first + static_cast<std::size_t>(rank) * buffers +
         static_cast<std::size_t>(number % kBuffers) * chunk_bytes_;
}

char* SharedSegment::slice(int rank, std::int64_t number) const {
  return chunk(rank, 0) + kBuffers * chunk_bytes_ +
         static_cast<std::size_t>(number % kBuffers) * slice_bytes();
}

void SharedSegment::store(const ConstView& view, const View& place, std::int64_t number, int part) {
  checksum(rank_, part, number) = copy_with_checksum(view, place);
}

void SharedSegment::load(const char* what, const ConstView& place, const View& view, int from,
                         std::int64_t number, int part) {
  verify_transfer(what, global_rank(from), global_rank(rank_), checksum(from, part, number),
                  copy_with_checksum(place, view));
}

void SharedSegment::post(const CollectiveSignature& collective) {
  block(rank_).posted[entered_ % 2] = collective;
  step();
}

std::vector<CollectiveSignature> SharedSegment::posted() {
  std::vector<CollectiveSignature> by_rank;
  for (int other = 0; other < size_; ++other) by_rank.push_back(block(other).posted[entered_ % 2]);
  ++entered_;
  return by_rank;
}

void SharedSegment::step() {
  RankBlock& local = block(rank_);
  // Increments the counter before it reads `sleepers`. A waiting rank increments `sleepers` before it reads
  // the counter. So no wake-up is lost.
  local.steps.store(++steps_);
  if (local.sleepers.load() > 0) futex_wake_all(local.steps);
}

void SharedSegment::wait(const Deadline& deadline, std::uint32_t lag, const std::function<void()>& poll) {
  for (int other = 0; other < size_; ++other)
    if (!has_reached(other, steps_ - lag)) sleep_until_reached(other, steps_ - lag, deadline, poll);
  deadline.progressed();
}

void SharedSegment::wait_for(int rank, const Deadline& deadline) {
  if (!has_reached(rank, steps_)) sleep_until_reached(rank, steps_, deadline);
  deadline.progressed();
}

bool SharedSegment::has_reached(int rank, std::uint32_t target) const {
  // Compares by difference, because the counter wraps around.
  const std::uint32_t steps = block(rank).steps.load(std::memory_order_acquire);
  return static_cast<std::int32_t>(steps - target) >= 0;
}

template <class F>
void SharedSegment::check_for_dead_peers(F&& matters) {
  for (int other = 0; other < size_; ++other)
    if (other != rank_ && matters(other) && !memory_->is_held(other) && matters(other))
      fail(fmt::format("rank {} has died", global_rank(other)));
}

void SharedSegment::sleep_until_reached(int rank, std::uint32_t target, const Deadline& deadline,
                                        const std::function<void()>& poll) {
  for (int spin = 0; spin < kSpinIterations; ++spin) {
    if (has_reached(rank, target)) return;
    cpu_pause();
  }
  RankBlock& other = block(rank);
  while (!has_reached(rank, target)) {
    throw_failure();
    if (poll) poll();
    other.sleepers.fetch_add(1);
    const std::uint32_t seen = other.steps.load();
    if (static_cast<std::int32_t>(seen - target) < 0)
      futex_wait(other.steps, seen, std::min<std::chrono::nanoseconds>(kPollInterval, deadline.left()));
    other.sleepers.fetch_sub(1);
    if (has_reached(rank, target)) return;
    turn_ = (turn_ + 1) % size_;
    check_for_dead_peers([&](int peer) {
      return !has_reached(rank, target) && (peer == turn_ || !has_reached(peer, target));
    });
    if (!deadline.passed()) continue;
    std::vector<int> missing;
    for (int late = 0; late < size_; ++late)
      if (!has_reached(late, target)) missing.push_back(global_rank(late));
    if (!missing.empty())
      fail(fmt::format("rank {} waited {} s for {}", global_rank(rank_), deadline.seconds(),
                       format_ranks(missing)));
  }
}

template <class F>
void SharedSegment::poll_peers(F&& matters) {
  throw_failure();
  const auto now = Deadline::Clock::now();
  if (now < next_poll_) return;
  next_poll_ = now + kPollInterval;
  check_for_dead_peers(matters);
  throw_failure();
}

void SharedSegment::poll_while_waiting() {
  poll_peers([&](int other) { return !has_reached(other, steps_); });
}

bool SharedSegment::poll_between_collectives() {
  poll_peers([](int) { return true; });
  for (int other = 0; other < size_; ++other)
    if (has_reached(other, steps_ + 1)) return true;
  return false;
}

void SharedSegment::throw_failure() const {
  if (control().state.load() == Control::kRunning) return;
  // Another rank may be writing the reason. It may also have died while doing so, hence the limit.
  const Deadline soon(1);
  while (control().state.load() == Control::kWritingReason && !soon.passed())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  throw PeerError(control().text());
}

void SharedSegment::fail(const std::string& reason) noexcept {
  std::uint32_t expected = Control::kRunning;
  if (!control().state.compare_exchange_strong(expected, Control::kWritingReason)) return;
  std::memcpy(control().reason, reason.data(), std::min(reason.size(), sizeof control().reason - 1));
  control().state.store(Control::kFailed);
  for (int rank = 0; rank < size_; ++rank) futex_wake_all(block(rank).steps);
}

}  // namespace convoy::dist
