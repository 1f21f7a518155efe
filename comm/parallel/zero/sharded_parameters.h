// Model parameters of which each rank owns and steps a shard (ZeRO), and gathers the rest for the forward pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "convoy/comm/core/communicator.h"
#include "convoy/comm/parallel/bucket_plan.h"
#include "convoy/engine/nn/module.h"
#include "convoy/engine/optim/optimizer.h"
#include "convoy/kernels/runtime/event.h"

namespace convoy::dist {

/// A division of every bucket into one shard per rank, all of the same size. Shard boundaries ignore where
/// parameters begin. So the shards of all ranks hold the same number of elements, to within kAlignment bytes
/// per bucket and the gaps between parameters, and one reduce-scatter per bucket gives each rank the sums of
/// its shard. (Rajbhandari et al., ZeRO, arXiv:1910.02054) A plan is a value, and its functions are
/// thread-safe.
struct ShardPlan {
  /// Alignment of shards in bytes, so that vector loads are aligned.
  static constexpr std::size_t kAlignment = 64;

  /// The elements [begin, begin + numel) of one parameter, which are contained in one rank's shard of one
  /// bucket.
  struct Piece {
    std::size_t parameter = 0;  // number of the parameter
    std::int64_t begin = 0;     // the first element, in the flat parameter
    std::int64_t numel = 0;     // number of elements
    std::size_t bucket = 0;     // number of the bucket
    std::int64_t offset = 0;    // in elements from the begin of the rank's shard of the bucket
    /// Compares all members.
    friend bool operator==(const Piece&, const Piece&) = default;
  };
  /// Number of ranks.
  int ranks = 1;
  /// Elements of one rank's shard of each bucket, including gaps and padding.
  std::vector<std::int64_t> shard_numels;
  /// The pieces of each rank, ordered by bucket and then by slice.
  std::vector<std::vector<Piece>> pieces;

  /// Divides the buckets of `plan` among `ranks` ranks. Throws UsageError if a rank would get no element,
  /// which means that the model is too small for so many ranks.
  static ShardPlan of(const BucketPlan& plan, int ranks, std::size_t element_bytes);

  /// Returns the number of elements of a bucket, padded so that all shards have the same size.
  std::int64_t numel(std::size_t bucket) const { return shard_numels[bucket] * ranks; }
  /// Returns the maximum of numel() over all buckets.
  std::int64_t max_numel() const;
};

/// Returns the plan for the order in which backward would complete the gradients of `loss`. The order is read
/// from the recorded graph: nothing is measured, and every run gets the same plan. Parameters that the graph
/// does not contain come last. Throws UsageError if `parameters` is empty or `bucket_mb` is not above 0.
BucketPlan plan_of_graph(const std::vector<nn::NamedParameter>& parameters, const Variable& loss,
                         double bucket_mb);

/// Parameters whose values are stored in flat buckets, of which each rank owns one shard.
///
/// The ranks of a job may form several groups that hold all shards each, such as the ranks of each host: hybrid
/// sharding (Zhang et al., MiCS, arXiv:2205.00119; Zhao et al., PyTorch FSDP, arXiv:2304.11277).
/// The ranks that hold the same shard are its replicas.
///
/// A piece is the part of one parameter that is in this rank's shards, as a one-dimensional Variable that
/// shares the parameter's memory. This rank's optimizer steps only the pieces. gather() then sends the shards
/// of all ranks with one all-gather per bucket, in the order in which forward uses the buckets. Forward waits
/// for each bucket where it first uses one of its parameters (Variable::set_ready_hook).
///
/// One thread uses an object of this class.
class ShardedParameters {
 public:
  /// Moves the values of `parameters` into buckets, with one shard per rank of `comm`. All of them must require
  /// a gradient, have one type, and be and stay on the communicator's device. `replicas` connects the ranks that
  /// hold the same shard, in other groups; null: there is one group. Both communicators must outlive this
  /// object. Throws UsageError otherwise, or if the model is too small for the number of ranks.
  ShardedParameters(std::vector<nn::NamedParameter> parameters, BucketPlan plan, Communicator& comm,
                    Communicator* replicas = nullptr);
  /// Removes the ready hooks from the parameters.
  ~ShardedParameters();
  ShardedParameters(const ShardedParameters&) = delete;
  ShardedParameters& operator=(const ShardedParameters&) = delete;

  /// Returns `groups` with each parameter replaced by this rank's pieces of it, under the parameter's name.
  /// Groups without a piece on this rank are left out.
  std::vector<optim::ParameterGroup> pieces_of(const std::vector<optim::ParameterGroup>& groups) const;

  /// Enqueues the all-gathers of all buckets, after the work that is on the compute stream now. Does not wait
  /// on a GPU. Collective.
  void gather();
  /// Makes the compute stream wait for all buckets. Work enqueued there afterwards may read and write any
  /// parameter.
  void wait_ready();

  /// Returns the whole parameters.
  const std::vector<nn::NamedParameter>& parameters() const { return parameters_; }
  /// Returns the buckets of the values.
  const BucketPlan& plan() const { return plan_; }
  /// Returns the division of the buckets among the ranks.
  const ShardPlan& shards() const { return shards_; }
  /// Returns where each of this rank's pieces is stored, in the order of piece_variables().
  const std::vector<ShardPlan::Piece>& local_pieces() const {
    return shards_.pieces[static_cast<std::size_t>(comm_.rank())];
  }
  /// Returns this rank's pieces.
  const std::vector<Variable>& piece_variables() const { return piece_variables_; }
  /// Returns the communicator of the group, which gathers the values.
  Communicator& comm() const { return comm_; }
  /// Returns the communicator of the ranks that hold this rank's shard; null if no other rank does.
  Communicator* replicas() const { return replicas_; }

 private:
  struct Bucket {
    Bucket(std::int64_t numel, const Tensor& like);
    Tensor values;
    bool is_ready = true;  // the compute stream has waited for `gathered`
    Event gathered;        // on the communicator's stream: the all-gather is complete
  };
  Stream compute_stream() const { return buckets_.front().values.stream(); }
  void wait_ready(std::size_t bucket);

  std::vector<nn::NamedParameter> parameters_;
  BucketPlan plan_;
  ShardPlan shards_;
  Communicator& comm_;
  Communicator* replicas_;
  std::vector<Bucket> buckets_;
  std::vector<Variable> piece_variables_;
  Event stepped_;  // on the compute stream: the optimizer has written this rank's shards
};

}  // namespace convoy::dist
