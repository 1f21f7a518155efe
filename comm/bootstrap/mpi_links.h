// Point-to-point messages through MPI.
#pragma once

#include <memory>
#include <vector>

#include "convoy/comm/bootstrap/mpi_session.h"
#include "convoy/comm/core/message_links.h"

namespace convoy::dist {

/// MessageLinks between some ranks of MPI_COMM_WORLD, with their own tags. Waits poll MPI with pauses, so
/// they can end at a deadline or when another rank aborts.
class MpiLinks final : public MessageLinks {
 public:
  /// `world_ranks` contains the MPI_COMM_WORLD ranks of the group, by rank of the group. `tag` is from
  /// new_tags() of the group's first rank.
  MpiLinks(std::shared_ptr<MpiSession> session, std::vector<int> world_ranks, int tag);
  ~MpiLinks() override;

  std::string name() const override { return "mpi"; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(world_ranks_.size()); }
  const std::vector<int>& world_ranks() const { return world_ranks_; }

  void send(int to, std::span<const std::byte> bytes) override;
  void receive(int from, std::span<std::byte> bytes) override;
  void wait(const Deadline& deadline) override;
  bool poll_peers() override;
  std::string new_group_name() override { return std::to_string(session_->new_tags()); }
  std::unique_ptr<MessageLinks> make_group(std::span<const int> members, const std::string& name,
                                           const Deadline& deadline) override;
  void leave(const Deadline&) override {}  // MPI_Finalize completes pending messages
  void abort(const std::string& reason) noexcept override;

 private:
  int world_rank(int rank) const { return world_ranks_[static_cast<std::size_t>(rank)]; }
  void wait_for_requests(const Deadline& deadline);
  /// Receives the reasons of ranks that have aborted. Throws PeerError if this rank has. The caller holds the
  /// session's lock.
  void receive_reasons();
  /// Throws PeerError if this rank has aborted, or a rank with a pending message to or from this one. Other
  /// aborted ranks are ignored: this rank has already received everything it needs from them. The caller
  /// holds the session's lock.
  void throw_if_aborted();
  /// Cancels pending messages, because the caller may free their memory. Does not wait for MPI: a message
  /// that has been matched, such as one from a rank that was stopped in the middle of it, cannot be
  /// cancelled, and MPI_Wait would not return. If such a message is left, the session is abandoned once the
  /// other ranks have been told the reason.
  void cancel_requests() noexcept;
  /// Sends the reason of abort() to all other ranks, and waits a short time for its delivery.
  void send_reason() noexcept;

  std::shared_ptr<MpiSession> session_;
  const std::vector<int> world_ranks_;
  const int tag_;
  int rank_ = 0;
  std::vector<MPI_Request> requests_;
  struct Pending {
    int other;
    bool receives;
  };
  std::vector<Pending> pending_;      // the messages of requests_
  bool is_abandoned_ = false;         // a message could not be cancelled
  std::string reason_;                // of abort(); never modified afterwards, because MPI may still read it
  std::vector<std::string> reasons_;  // of the other ranks' abort(), by rank
};

}  // namespace convoy::dist
