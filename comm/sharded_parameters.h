// A model whose parameters each rank updates a part of, and has the whole of when it computes with them.
#pragma once

#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "comm/shard_plan.h"
#include "engine/nn/module.h"
#include "engine/optim/optimizer.h"
#include "kernels/runtime/stream_event.h"

namespace convoy {

/// Buckets in the order in which backward would complete the gradients behind `loss`, which is read off the
/// graph: nothing has to be measured, and every run has the same. Parameters that it does not reach come
/// last.
BucketPlan plan_of_graph(const std::vector<NamedParameter>& parameters, const Variable& loss,
                         double bucket_mb);

/// Moves the values of parameters into flat buckets. This rank's optimizer is made of its pieces of them,
/// variables of one axis, and steps those alone; gather() then brings every rank the others' parts, bucket by
/// bucket in the order in which forward passes use them, each of which waits for its own only.
class ShardedParameters {
 public:
  /// parameters: those that want a gradient, of one type, on the communicator's device, where they stay. The
  /// communicator outlives this. UsageError where there are too many ranks for so small a model.
  ShardedParameters(std::vector<NamedParameter> parameters, BucketPlan plan, Communicator& comm);
  ~ShardedParameters();
  ShardedParameters(const ShardedParameters&) = delete;
  ShardedParameters& operator=(const ShardedParameters&) = delete;

  /// The same groups, of this rank's pieces under the names of their parameters.
  std::vector<ParameterGroup> pieces_of(const std::vector<ParameterGroup>& groups) const;

  /// Enqueues the exchange of all parts, after all that the compute stream holds so far.
  void gather();
  /// The compute stream has all that was gathered: what is enqueued there next may use, and write, any of it.
  void arrive();

  const std::vector<NamedParameter>& parameters() const { return parameters_; }
  const BucketPlan& plan() const { return plan_; }
  const ShardPlan& shards() const { return shards_; }
  /// This rank's pieces, as they stand in shards().
  const std::vector<ShardPlan::Piece>& places() const {
    return shards_.pieces[static_cast<std::size_t>(comm_.rank())];
  }
  const std::vector<Variable>& pieces() const { return pieces_; }
  Communicator& comm() const { return comm_; }

 private:
  struct Bucket {
    Bucket(std::int64_t numel, const Tensor& like);
    Tensor values;
    bool arrived = true;
    StreamEvent gathered;
  };
  Stream compute_stream() const { return buckets_.front().values.stream(); }
  void arrive(std::size_t bucket);

  std::vector<NamedParameter> parameters_;
  BucketPlan plan_;
  ShardPlan shards_;
  Communicator& comm_;
  std::vector<Bucket> buckets_;
  std::vector<Variable> pieces_;
  StreamEvent stepped_;
};

}  // namespace convoy
