// Transfers: elements that one rank moves to another one, with a checksum on both sides.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "convoy/comm/core/message_links.h"
#include "convoy/comm/core/view_parts.h"
#include "convoy/kernels/base/checksum.h"
#include "convoy/kernels/base/view.h"

namespace convoy::dist {

/// Returns the checksum of a view on the CPU.
inline std::uint64_t checksum_of(const ConstView& view) {
  Checksum checksum;
  checksum.add(view.data, view.bytes());
  return checksum.value();
}

/// Does the same as copy_view(), and returns the checksum of what it has read. The views are disjoint.
inline std::uint64_t copy_with_checksum(const ConstView& from, const View& to) {
  Checksum checksum;
  checksum.copy(from.data, to.data, from.bytes());
  return checksum.value();
}

/// Throws CorruptionError unless the checksums of what rank `from` has sent and of what rank `to` has
/// received are equal. `what` was sent, such as "a contribution".
void verify_transfer(const char* what, int from, int to, std::uint64_t sent, std::uint64_t received);

/// A summand. Without `sent`, the checksum of rank `from`, it is the summing rank's own.
struct SentPart {
  ConstView view;
  int from = 0;
  std::optional<std::uint64_t> sent;
};

/// Computes the sum of the parts on rank `to`, as sum_in_order() does. Throws CorruptionError if a part is not what its
/// rank has sent.
void sum_verified(std::span<const SentPart> parts, int to, const View& sum, Checksum* of_sum = nullptr,
                  const View& copy = {});

// What ranks send to each other, for verify_transfer().
inline constexpr const char* kContribution = "a contribution";  // to a sum
inline constexpr const char* kPartialSum = "a partial sum";     // over some ranks
inline constexpr const char* kSum = "a sum";                    // over all ranks
inline constexpr const char* kData = "data";                    // of a broadcast or an all-gather

/// MessageLinks that can also send views: the elements, and their checksum in a second message. wait()
/// compares the checksum with that of the received elements.
class CheckedLinks {
 public:
  explicit CheckedLinks(std::unique_ptr<MessageLinks> links) : links_(std::move(links)) {}
  /// Returns the links, for messages without a checksum.
  MessageLinks& operator*() const { return *links_; }
  MessageLinks* operator->() const { return links_.get(); }

  /// Starts to send a view, which must not change until wait() returns. Does nothing for an empty view.
  void send(int to, const ConstView& view);
  /// Does the same for a view whose checksum is known, because it was computed together with the view or is
  /// sent to several ranks.
  void send(int to, const ConstView& view, std::uint64_t checksum);
  /// Starts to receive a view. `what` is sent, for verify_transfer(). Does nothing for an empty view.
  void receive(int from, const View& view, const char* what);
  /// Starts to receive a partial sum, which wait() adds to `sum`.
  void receive_addend(int from, const View& sum);
  /// Blocks until all started messages have completed. Throws PeerError as MessageLinks::wait() does, and if
  /// a received view has another checksum than the sent one.
  void wait(const Deadline& deadline);

 private:
  struct Incoming {
    int from;
    View view;
    const char* what;
    std::uint64_t checksum = 0;  // of the sender
    View sum = {};               // to which the view is added, if it has memory
  };

  std::unique_ptr<MessageLinks> links_;
  // Since the last wait(). Links keep pointers to the checksums, so these must not move.
  std::deque<std::uint64_t> outgoing_;
  std::deque<Incoming> incoming_;
  std::deque<std::vector<char>> addends_;  // memory for addends, the first `used_` of them in use
  std::size_t used_ = 0;
};

}  // namespace convoy::dist
