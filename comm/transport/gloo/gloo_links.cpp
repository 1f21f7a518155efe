#include "convoy/comm/transport/gloo/gloo_links.h"

#include <gloo/transport/tcp/device.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>

#include "convoy/comm/core/rank_text.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

constexpr double kReasonSeconds = 1;                    // time to read the reason of a disconnected rank
constexpr std::chrono::milliseconds kPollInterval(50);  // time between checks for disconnected ranks
constexpr std::chrono::milliseconds kMinTimeout(1);     // gloo treats 0 as no timeout
constexpr std::chrono::hours kNoTimeout(24 * 365);      // for waits that interrupt_waits() ends
constexpr std::uint64_t kSentinelSlot = 0;              // slot of the message that is never sent
constexpr const char* kInterrupted = "interrupted";

/// Blocks SIGPIPE in the calling thread and the threads that it creates. Writing to a closed connection then
/// returns an error instead of ending the process.
void block_sigpipe() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

/// Waits for the buffer. Returns the error; an empty string for success, kInterrupted for an interrupted
/// wait.
std::string error_of_wait(gloo::transport::UnboundBuffer& buffer, bool receives,
                          std::chrono::milliseconds limit) {
  try {
    return (receives ? buffer.waitRecv(limit) : buffer.waitSend(limit)) ? "" : kInterrupted;
  } catch (const std::exception& failure) {
    return failure.what();
  }
}

}  // namespace

std::shared_ptr<gloo::transport::Device> GlooLinks::open_device(const std::string& address) {
  sigset_t before;
  pthread_sigmask(SIG_BLOCK, nullptr, &before);
  block_sigpipe();
  gloo::transport::tcp::attr where;
  const char* const interface = std::getenv("GLOO_SOCKET_IFNAME");
  if (interface != nullptr && *interface != '\0') {
    where.iface = interface;
  } else {
    where.hostname = address;
  }
  std::shared_ptr<gloo::transport::Device> device;
  std::string error;
  try {
    device = gloo::transport::tcp::CreateDevice(where);
  } catch (const std::exception& failure) {
    error = failure.what();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  check(device != nullptr, "gloo communicator: cannot open connections from {}: {}",
        where.iface.empty() ? "address " + address : "interface " + where.iface, error);
  return device;
}

GlooLinks::GlooLinks(Store* store, std::shared_ptr<gloo::transport::Device> device, int rank, int size,
                     std::string group, const Deadline& deadline)
    : store_(store),
      device_(std::move(device)),
      rank_(rank),
      size_(size),
      group_(std::move(group)),
      sentinels_(static_cast<std::size_t>(size)),
      sent_(static_cast<std::size_t>(size), kSentinelSlot),
      received_(static_cast<std::size_t>(size), kSentinelSlot) {
  if (size_ == 1) return;
  connect(deadline);
  interrupter_ = std::thread([this] { interrupt_waits(); });
}

GlooLinks::~GlooLinks() {
  if (!interrupter_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  interrupter_.join();
  // Buffers must be destroyed before the connections.
  pending_.clear();
  sentinels_.clear();
}

std::string GlooLinks::key_of(const std::string& what, int rank) const {
  return fmt::format("gloo/{}/{}/{}", group_, what, rank);
}

/// Creates a listening pair for every other rank, exchanges the addresses through the store, and connects.
void GlooLinks::connect(const Deadline& deadline) {
  context_ = device_->createContext(rank_, size_);
  // gloo waits 5 timeouts for a connection.
  context_->setTimeout(std::chrono::ceil<std::chrono::milliseconds>(deadline.left() / 5) + kMinTimeout);
  std::vector<std::string> local(static_cast<std::size_t>(size_));
  std::size_t address_bytes = 0;
  for (int other = 0; other < size_; ++other) {
    if (other == rank_) continue;
    const std::vector<char> address = context_->createPair(other)->address().bytes();
    local[static_cast<std::size_t>(other)].assign(address.begin(), address.end());
    address_bytes = address.size();
  }
  std::string addresses;
  for (std::string& address : local) {
    address.resize(address_bytes);
    addresses += address;
  }
  const std::vector<std::string> all = exchange_addresses(addresses, deadline);
  for (int other = 0; other < size_; ++other) {
    if (other == rank_) continue;
    const auto at = static_cast<std::size_t>(other);
    if (all[at].size() != addresses.size())
      fail<PeerError>("gloo: rank {} sent {} bytes of addresses, expected {}", other, all[at].size(),
                      addresses.size());
    const std::string theirs = all[at].substr(static_cast<std::size_t>(rank_) * address_bytes, address_bytes);
    try {
      context_->getPair(other)->connect({theirs.begin(), theirs.end()});
      sentinels_[at] = context_->createUnboundBuffer(&never_, 1);
      sentinels_[at]->recv(other, kSentinelSlot);
    } catch (const std::exception& error) {
      fail<PeerError>("gloo: rank {} cannot connect to rank {}: {}", rank_, other, error.what());
    }
  }
}

std::vector<std::string> GlooLinks::exchange_addresses(const std::string& local, const Deadline& deadline) {
  store_->set(key_of("addresses", rank_), local, deadline.seconds());
  std::vector<std::string> all;
  std::vector<int> missing;
  for (int other = 0; other < size_; ++other) {
    const std::optional<std::string> theirs = store_->get(key_of("addresses", other), deadline);
    if (!theirs) missing.push_back(other);
    all.push_back(theirs.value_or(""));
  }
  if (!missing.empty())
    fail<PeerError>("gloo on rank {} waited {} s for the address of {}", rank_, deadline.seconds(),
                    format_ranks(missing));
  return all;
}

void GlooLinks::start() { block_sigpipe(); }

void GlooLinks::send(int to, std::span<const std::byte> bytes) {
  // gloo uses one buffer type for both directions. It does not modify memory that it sends.
  begin(to, const_cast<std::byte*>(bytes.data()), bytes.size(), false);
}

void GlooLinks::receive(int from, std::span<std::byte> bytes) {
  begin(from, bytes.data(), bytes.size(), true);
}

void GlooLinks::begin(int other, void* data, std::size_t bytes, bool receives) {
  const auto at = static_cast<std::size_t>(other);
  const std::uint64_t slot = receives ? ++received_[at] : ++sent_[at];
  auto buffer = context_->createUnboundBuffer(data, bytes);
  const std::lock_guard lock(mutex_);
  if (!reason_.empty()) {
    pending_.clear();
    throw PeerError(reason_);
  }
  std::string error;
  try {
    if (receives) {
      buffer->recv(other, slot);
    } else {
      buffer->send(other, slot);
    }
  } catch (const std::exception& failure) {  // the connection is lost; wait() throws the cause
    error = failure.what();
  }
  pending_.push_back({std::move(buffer), other, receives, error});
}

void GlooLinks::interrupt_waits() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return waiting_ || stopping_; });
    changed_.wait_for(lock, kPollInterval, [this] { return !waiting_ || stopping_; });
    if (stopping_) return;
    for (const Pending& pending : pending_) {
      pending.buffer->abortWaitRecv();
      pending.buffer->abortWaitSend();
    }
  }
}

template <class F>
void GlooLinks::while_waiting(F&& work) {
  const auto set = [this](bool waiting) {
    const std::lock_guard lock(mutex_);
    waiting_ = waiting;
    if (!waiting) pending_.clear();
    changed_.notify_all();
  };
  set(true);
  try {
    work();
  } catch (...) {
    set(false);
    throw;
  }
  set(false);
}

bool GlooLinks::is_disconnected(int other) {
  // A wait that is interrupted before it starts only reports whether there is an error.
  gloo::transport::UnboundBuffer& sentinel = *sentinels_[static_cast<std::size_t>(other)];
  sentinel.abortWaitRecv();
  return error_of_wait(sentinel, true, kNoTimeout) != kInterrupted;
}

std::string GlooLinks::complete(const Pending& pending, const Deadline& deadline) {
  if (!pending.error.empty()) return pending.error;
  while (true) {
    const std::string error = error_of_wait(*pending.buffer, pending.receives, kNoTimeout);
    if (error != kInterrupted) return error;
    {
      const std::lock_guard lock(mutex_);
      if (!reason_.empty()) return kInterrupted;
    }
    poll();
    // The message may have completed meanwhile, so waits once more, briefly.
    if (deadline.passed() || is_disconnected(pending.other))
      return error_of_wait(*pending.buffer, pending.receives, kMinTimeout);
  }
}

void GlooLinks::wait(const Deadline& deadline) {
  while_waiting([&] {
    // Only this thread modifies the list, so it reads without a lock.
    for (std::size_t at = 0; at < pending_.size(); ++at) {
      const std::string error = complete(pending_[at], deadline);
      if (!error.empty()) throw_wait_error(at, error, deadline);
    }
  });
}

void GlooLinks::throw_wait_error(std::size_t at, const std::string& error, const Deadline& deadline) {
  {
    const std::lock_guard lock(mutex_);
    waiting_ = false;  // stops the interruptions
    if (!reason_.empty()) throw PeerError(reason_);
  }
  const int lost = pending_[at].other;
  if (deadline.passed()) {
    std::vector<int> missing = {lost};
    for (++at; at < pending_.size(); ++at) {
      const Pending& pending = pending_[at];
      std::string other_error = error_of_wait(*pending.buffer, pending.receives, kMinTimeout);
      if (other_error == kInterrupted)
        other_error = error_of_wait(*pending.buffer, pending.receives, kMinTimeout);
      if (!other_error.empty()) missing.push_back(pending.other);
    }
    std::sort(missing.begin(), missing.end());
    missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
    fail<PeerError>("rank {} waited {} s for {}", rank_, deadline.seconds(), format_ranks(missing));
  }
  std::optional<std::string> reason;
  try {
    reason = store_->get(key_of("failure", lost), Deadline(kReasonSeconds));
  } catch (const PeerError& store_error) {  // the rank that keeps the store may have exited first
    fail<PeerError>("rank {} has disconnected ({}); {}", lost, error, store_error.what());
  }
  if (reason) throw PeerError(*reason);
  fail<PeerError>("rank {} has disconnected ({})", lost, error);
}

std::string GlooLinks::new_group_name() { return fmt::format("{}.{}r{}", group_, groups_++, rank_); }

std::unique_ptr<MessageLinks> GlooLinks::make_group(std::span<const int> members, const std::string& name,
                                                    const Deadline& deadline) {
  const auto me = std::find(members.begin(), members.end(), rank_);
  return std::make_unique<GlooLinks>(store_, device_, static_cast<int>(me - members.begin()),
                                     static_cast<int>(members.size()), name, deadline);
}

/// A rank may disconnect only after the others have received its messages. So each rank sends an
/// acknowledgement to all others and waits for theirs. After that, the disconnection of another rank is no
/// error.
void GlooLinks::leave(const Deadline& deadline) {
  const std::byte local{};
  std::vector<std::byte> theirs(static_cast<std::size_t>(size_));
  for (int other = 0; other < size_; ++other) {
    if (other == rank_) continue;
    send(other, {&local, 1});
    receive(other, {&theirs[static_cast<std::size_t>(other)], 1});
  }
  while_waiting([&] {
    for (const Pending& pending : pending_) complete(pending, deadline);
  });
}

void GlooLinks::abort(const std::string& reason) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!reason_.empty()) return;
    reason_ = reason;
    for (const Pending& pending : pending_) {
      pending.buffer->abortWaitRecv();
      pending.buffer->abortWaitSend();
    }
  }
  if (size_ == 1) return;
  try {
    store_->set(key_of("failure", rank_), reason);
  } catch (const std::exception&) {  // the others then see only that this rank has disconnected
  }
  for (int other = 0; other < size_; ++other)
    if (other != rank_) context_->getPair(other)->close();
}

}  // namespace convoy::dist
