#include "comm/gloo_links.h"

#include <gloo/transport/tcp/device.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>

#include "comm/rank_text.h"
#include "kernels/runtime/check.h"

namespace convoy {
namespace {

constexpr double kExplaining = 1;                 // seconds, for the reason of a rank that has hung up
constexpr std::chrono::milliseconds kLook(50);    // between looks whether a rank has
constexpr std::chrono::milliseconds kAtOnce(1);   // gloo takes 0 for forever
constexpr std::chrono::hours kForever(24 * 365);  // where interruptions bring the end
constexpr std::uint64_t kSentinelSlot = 0;        // of a message that is never sent
constexpr const char* kInterrupted = "interrupted";

/// A rank that is gone is an error that a write returns, not a signal that ends this process. Of this thread,
/// and those that it starts.
void block_sigpipe() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

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
  check(device != nullptr, "--comm gloo: no connections from {}: {}",
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
    ending_ = true;
    changed_.notify_all();
  }
  interrupter_.join();
  // Before the connections that they belong to.
  begun_.clear();
  sentinels_.clear();
}

std::string GlooLinks::key_of(const std::string& what, int rank) const {
  return fmt::format("gloo/{}/{}/{}", group_, what, rank);
}

/// Each rank listens once for each other, and tells all where.
void GlooLinks::connect(const Deadline& deadline) {
  context_ = device_->createContext(rank_, size_);
  context_->setTimeout(std::chrono::ceil<std::chrono::milliseconds>(deadline.left() / 5) +
                       kAtOnce);  // connects for 5
  std::vector<std::string> mine(static_cast<std::size_t>(size_));
  std::size_t address_bytes = 0;
  for (int other = 0; other < size_; ++other) {
    if (other == rank_) continue;
    const std::vector<char> address = context_->createPair(other)->address().bytes();
    mine[static_cast<std::size_t>(other)].assign(address.begin(), address.end());
    address_bytes = address.size();
  }
  std::string addresses;
  for (std::string& address : mine) {
    address.resize(address_bytes);
    addresses += address;
  }
  const std::vector<std::string> all = exchange_addresses(addresses, deadline);
  for (int other = 0; other < size_; ++other) {
    if (other == rank_) continue;
    const auto at = static_cast<std::size_t>(other);
    if (all[at].size() != addresses.size()) fail<PeerError>("gloo: rank {} gives no addresses", other);
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

std::vector<std::string> GlooLinks::exchange_addresses(const std::string& mine, const Deadline& deadline) {
  store_->set(key_of("addresses", rank_), mine);
  std::vector<std::string> all;
  std::vector<int> missing;
  for (int other = 0; other < size_; ++other) {
    const std::optional<std::string> theirs = store_->get(key_of("addresses", other), deadline);
    if (!theirs) missing.push_back(other);
    all.push_back(theirs.value_or(""));
  }
  if (!missing.empty())
    fail<PeerError>("gloo on rank {} waited {} s for the address of {}", rank_, deadline.seconds(),
                    text_of_ranks(missing));
  return all;
}

void GlooLinks::start() { block_sigpipe(); }

void GlooLinks::send(int to, std::span<const std::byte> bytes) {
  // gloo has one type for both directions, and only reads what it sends.
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
    begun_.clear();
    throw PeerError(reason_);
  }
  std::string error;
  try {
    if (receives) {
      buffer->recv(other, slot);
    } else {
      buffer->send(other, slot);
    }
  } catch (const std::exception& failure) {  // the connection has gone: wait() finds out why
    error = failure.what();
  }
  begun_.push_back({std::move(buffer), other, receives, error});
}

void GlooLinks::interrupt_waits() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return waiting_ || ending_; });
    changed_.wait_for(lock, kLook, [this] { return !waiting_ || ending_; });
    if (ending_) return;
    for (const Begun& begun : begun_) {
      begun.buffer->abortWaitRecv();
      begun.buffer->abortWaitSend();
    }
  }
}

template <class F>
void GlooLinks::while_waiting(F&& work) {
  const auto set = [this](bool waiting) {
    const std::lock_guard lock(mutex_);
    waiting_ = waiting;
    if (!waiting) begun_.clear();
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

bool GlooLinks::has_hung_up(int other) {
  // Interrupted before it begins, the wait says only whether there is an error.
  gloo::transport::UnboundBuffer& sentinel = *sentinels_[static_cast<std::size_t>(other)];
  sentinel.abortWaitRecv();
  return error_of_wait(sentinel, true, kForever) != kInterrupted;
}

std::string GlooLinks::end_of(const Begun& begun, const Deadline& deadline) {
  if (!begun.error.empty()) return begun.error;
  while (true) {
    const std::string error = error_of_wait(*begun.buffer, begun.receives, kForever);
    if (error != kInterrupted) return error;
    {
      const std::lock_guard lock(mutex_);
      if (!reason_.empty()) return kInterrupted;
    }
    look();
    // What has ended meanwhile has ended well, also where it was interrupted.
    if (deadline.passed() || has_hung_up(begun.other))
      return error_of_wait(*begun.buffer, begun.receives, kAtOnce);
  }
}

void GlooLinks::wait(const Deadline& deadline) {
  while_waiting([&] {
    // Only this thread adds to the list, so it needs no lock to read it.
    for (std::size_t at = 0; at < begun_.size(); ++at) {
      const std::string error = end_of(begun_[at], deadline);
      if (!error.empty()) fail_waiting(at, error, deadline);
    }
  });
}

void GlooLinks::fail_waiting(std::size_t at, const std::string& error, const Deadline& deadline) {
  {
    const std::lock_guard lock(mutex_);
    waiting_ = false;  // no more interruptions
    if (!reason_.empty()) throw PeerError(reason_);
  }
  const int gone = begun_[at].other;
  if (deadline.passed()) {
    std::vector<int> missing = {gone};
    for (++at; at < begun_.size(); ++at) {
      const Begun& begun = begun_[at];
      std::string of_other = error_of_wait(*begun.buffer, begun.receives, kAtOnce);
      if (of_other == kInterrupted) of_other = error_of_wait(*begun.buffer, begun.receives, kAtOnce);
      if (!of_other.empty()) missing.push_back(begun.other);
    }
    std::sort(missing.begin(), missing.end());
    missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
    fail<PeerError>("rank {} waited {} s for {}", rank_, deadline.seconds(), text_of_ranks(missing));
  }
  std::optional<std::string> reason;
  try {
    reason = store_->get(key_of("failure", gone), Deadline(kExplaining));
  } catch (const PeerError& of_store) {  // whoever kept it may have gone first, and the others because of it
    fail<PeerError>("rank {} has gone ({}); {}", gone, error, of_store.what());
  }
  if (reason) throw PeerError(*reason);
  fail<PeerError>("rank {} has gone ({})", gone, error);
}

std::string GlooLinks::new_group_name() { return fmt::format("{}.{}r{}", group_, groups_++, rank_); }

std::unique_ptr<MessageLinks> GlooLinks::make_group(std::span<const int> members, const std::string& name,
                                                    const Deadline& deadline) {
  const auto me = std::find(members.begin(), members.end(), rank_);
  return std::make_unique<GlooLinks>(store_, device_, static_cast<int>(me - members.begin()),
                                     static_cast<int>(members.size()), name, deadline);
}

/// Whoever hangs up must know that the others have what it sent them. So all say that they have; who has
/// heard that from all may go, and that it has gone is then no error.
void GlooLinks::leave(const Deadline& deadline) {
  const std::byte mine{};
  std::vector<std::byte> theirs(static_cast<std::size_t>(size_));
  for (int other = 0; other < size_; ++other) {
    if (other == rank_) continue;
    send(other, {&mine, 1});
    receive(other, {&theirs[static_cast<std::size_t>(other)], 1});
  }
  while_waiting([&] {
    for (const Begun& begun : begun_) end_of(begun, deadline);
  });
}

void GlooLinks::abort(const std::string& reason) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!reason_.empty()) return;
    reason_ = reason;
    for (const Begun& begun : begun_) {
      begun.buffer->abortWaitRecv();
      begun.buffer->abortWaitSend();
    }
  }
  if (size_ == 1) return;
  try {
    store_->set(key_of("failure", rank_), reason);
  } catch (const std::exception&) {  // then the others see only that this rank has gone
  }
  for (int other = 0; other < size_; ++other)
    if (other != rank_) context_->getPair(other)->close();
}

}  // namespace convoy
