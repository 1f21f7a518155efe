// The interface of a message-passing library: point-to-point messages between the ranks of a group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "convoy/comm/core/deadline.h"

namespace convoy::dist {

/// Non-blocking point-to-point messages between the ranks of a group. Messages between two ranks are
/// delivered in order, and the receiver must know their lengths. Not thread-safe, except for abort().
///
/// After an error only abort() and the destructor may be called. The implementation then no longer accesses
/// the memory of pending messages, so the caller may free it.
class MessageLinks {
 public:
  virtual ~MessageLinks() = default;
  MessageLinks() = default;
  MessageLinks(const MessageLinks&) = delete;
  MessageLinks& operator=(const MessageLinks&) = delete;

  /// Returns the name of the library, such as "mpi".
  virtual std::string name() const = 0;
  /// Returns the position of this rank in the group, from 0.
  virtual int rank() const = 0;
  /// Returns the number of ranks of the group.
  virtual int size() const = 0;

  /// Prepares the calling thread, which must make all later calls. Called once, before the first message.
  virtual void start() {}
  /// Starts to send `bytes` to rank `to`, which must be another rank. `bytes` must not be empty, and must not
  /// change until wait() returns or any of send(), receive() and wait() throws.
  virtual void send(int to, std::span<const std::byte> bytes) = 0;
  /// Starts to receive `bytes` from rank `from`. The same conditions apply as for send().
  virtual void receive(int from, std::span<std::byte> bytes) = 0;
  /// Blocks until all started messages have completed. Throws PeerError that names the missing or
  /// disconnected ranks, or that carries the reason with which a rank called abort().
  virtual void wait(const Deadline& deadline) = 0;

  /// Sets a function that wait() calls periodically. An exception from it ends the wait. A transport that
  /// also uses another channel detects failures of that channel this way. Call before start().
  void set_poll_hook(std::function<void()> hook) { poll_hook_ = std::move(hook); }

  /// Sets the number of the round, such as a collective, to which the next messages belong. It grows from 1 on.
  void set_round(std::uint64_t round) { round_ = round; }

  /// Throws PeerError if another rank has disconnected or called abort(). Returns whether another rank has
  /// sent a message that this rank has not begun to receive, or has told that it waits in a later round. Does not block, and sends nothing. The caller
  /// has no pending messages.
  virtual bool poll_peers() = 0;

  /// Returns a new name for a group whose first member is this rank. The name is unique among all groups that
  /// share a rank with this one.
  virtual std::string new_group_name() = 0;
  /// Returns links between `members`, which are ranks of this group. All members pass the `name` that their
  /// first member got from new_group_name(). Throws PeerError if a member is missing.
  virtual std::unique_ptr<MessageLinks> make_group(std::span<const int> members, const std::string& name,
                                                   const Deadline& deadline) = 0;
  /// Disconnects after all ranks have called it and received all messages. Afterwards the exit of another
  /// rank is no error.
  virtual void leave(const Deadline& deadline) = 0;
  /// Makes current and later waits throw PeerError with `reason`, on this rank and on the others.
  /// Thread-safe.
  virtual void abort(const std::string& reason) noexcept = 0;

 protected:
  /// Calls the poll hook, if there is one. wait() calls this periodically.
  void poll() const {
    if (poll_hook_) poll_hook_();
  }
  std::uint64_t round() const { return round_; }

 private:
  std::function<void()> poll_hook_;
  std::uint64_t round_ = 0;
};

// These functions send along a BinomialTree.

/// Returns the strings of all ranks, in rank order. Collective call.
std::vector<std::string> exchange_texts(MessageLinks& links, const std::string& local,
                                        const Deadline& deadline);
/// Returns the strings of all ranks, in rank order, on rank 0; an empty vector on the other ranks. Collective
/// call.
std::vector<std::string> gather_texts(MessageLinks& links, const std::string& local,
                                      const Deadline& deadline);

/// Splits `links` into one group for each `color`, and returns the group of this rank. Sets `members` to its
/// ranks in `links`. Collective call.
std::unique_ptr<MessageLinks> split_links(MessageLinks& links, int color, const Deadline& deadline,
                                          std::vector<int>& members);

}  // namespace convoy::dist
