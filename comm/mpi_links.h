// Messages through MPI.
#pragma once

#include <memory>
#include <vector>

#include "comm/message_links.h"
#include "comm/mpi_session.h"

namespace convoy {

/// A group of ranks of MPI_COMM_WORLD that has tags of its own. Waiting is looking again and again, with
/// pauses: that is what lets an MPI wait end at a deadline, or when another rank gives up.
class MpiLinks final : public MessageLinks {
 public:
  /// `world_ranks`: by rank of the group. `tag`: as new_tags() gave it to the first of them.
  MpiLinks(std::shared_ptr<MpiSession> session, std::vector<int> world_ranks, int tag);
  ~MpiLinks() override;

  std::string name() const override { return "mpi"; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(world_ranks_.size()); }
  const std::vector<int>& world_ranks() const { return world_ranks_; }

  void send(int to, std::span<const std::byte> bytes) override;
  void receive(int from, std::span<std::byte> bytes) override;
  void wait(const Deadline& deadline) override;
  std::string new_group_name() override { return std::to_string(session_->new_tags()); }
  std::unique_ptr<MessageLinks> make_group(std::span<const int> members, const std::string& name,
                                           const Deadline& deadline) override;
  void leave(const Deadline&) override {}  // MPI_Finalize sees to what still travels
  void abort(const std::string& reason) noexcept override;

 private:
  int world_rank(int rank) const { return world_ranks_[static_cast<std::size_t>(rank)]; }
  void wait_for_requests(const Deadline& deadline);
  /// Throws where this rank has given up, or one that something is to come from or go to. What ranks that are
  /// well send each other still arrives: they have all they need of a collective that the other one ended
  /// well. The session is locked.
  void look_for_reasons();
  /// Takes back what can be: receives, which MPI would go on to write to memory that may be gone. What is
  /// being sent MPI may still read. The session is locked.
  void drop_requests() noexcept;

  std::shared_ptr<MpiSession> session_;
  const std::vector<int> world_ranks_;
  const int tag_;
  int rank_ = 0;
  std::vector<MPI_Request> requests_;
  struct Begun {
    int other;
    bool receives;
  };
  std::vector<Begun> begun_;          // what the requests are
  std::string reason_;                // to give up; set once, since MPI may still read it
  std::vector<std::string> reasons_;  // of the others, by rank
};

}  // namespace convoy
