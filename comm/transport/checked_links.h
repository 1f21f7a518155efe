// Messages with checksums, for the elements of collectives.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>

#include "convoy/comm/core/message_links.h"
#include "convoy/kernels/base/view.h"

namespace convoy::dist {

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
  /// Blocks until all started messages have completed. Throws PeerError as MessageLinks::wait() does, and if
  /// a received view has another checksum than the sent one.
  void wait(const Deadline& deadline);

 private:
  struct Incoming {
    int from;
    View view;
    const char* what;
    std::uint64_t checksum = 0;  // of the sender
  };

  std::unique_ptr<MessageLinks> links_;
  // Since the last wait(). Links keep pointers to the checksums, so these must not move.
  std::deque<std::uint64_t> outgoing_;
  std::deque<Incoming> incoming_;
};

}  // namespace convoy::dist
