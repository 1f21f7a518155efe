// Messages between the ranks of a group: all that a library must be able to do to carry collectives.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/deadline.h"

namespace convoy {

/// Used by one thread at a time, apart from abort(). Between two ranks messages arrive in their order, and
/// whoever receives knows how long they are. After an error only abort() and the destructor are called, and
/// nothing touches the memory of messages any more: it may be gone.
class MessageLinks {
 public:
  virtual ~MessageLinks() = default;
  MessageLinks() = default;
  MessageLinks(const MessageLinks&) = delete;
  MessageLinks& operator=(const MessageLinks&) = delete;

  virtual std::string name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// On the thread of the calls, before the first.
  virtual void start() {}
  /// Begin; the memory stays as it is until wait() returns, or one of the three throws. Not to or from this
  /// rank, at least one byte.
  virtual void send(int to, std::span<const std::byte> bytes) = 0;
  virtual void receive(int from, std::span<std::byte> bytes) = 0;
  /// For all that has begun. PeerError that names the ranks which are missing or gone, or that gives the
  /// reason of the rank that gave up.
  virtual void wait(const Deadline& deadline) = 0;

  /// Who waits calls it now and then, between messages: what it throws ends the wait. For ranks that may also
  /// fail by other ways than these. On the thread of the calls, before start().
  void watch(std::function<void()> look) { look_ = std::move(look); }

  /// A name for a group that this rank is the first of: no group that any rank of this one is in has it.
  virtual std::string new_group_name() = 0;
  /// With a name that all members got from the first; `members` are ranks of this group.
  virtual std::unique_ptr<MessageLinks> make_group(std::span<const int> members, const std::string& name,
                                                   const Deadline& deadline) = 0;
  /// All ranks have called it, and have received all messages: what happens to the others no longer matters.
  virtual void leave(const Deadline& deadline) = 0;
  /// From any thread: waits end with a PeerError of this reason, here and on the others.
  virtual void abort(const std::string& reason) noexcept = 0;

 protected:
  void look() const {
    if (look_) look_();
  }

 private:
  std::function<void()> look_;
};

/// Everybody's text, by rank.
std::vector<std::string> exchange_texts(MessageLinks& links, const std::string& mine,
                                        const Deadline& deadline);
/// The same on rank 0, and nothing elsewhere.
std::vector<std::string> gather_texts(MessageLinks& links, const std::string& mine, const Deadline& deadline);

}  // namespace convoy
