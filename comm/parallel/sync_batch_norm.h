// Synchronized batch normalization for models whose batch is sharded over ranks. One thread at a time uses
// the communicator and the model.
#pragma once

#include "convoy/comm/core/communicator.h"
#include "convoy/engine/nn/module.h"

namespace convoy::dist {

/// Makes the batch norms of `model` normalize by the statistics of all ranks' samples in training. The
/// formulas are in kernels/batchnorm.h. Their running statistics then stay equal on all ranks. Returns the
/// number of batch norms.
///
/// Every forward and every backward exchanges one small vector per batch norm. So all ranks must run the same
/// number of both; a rank without samples runs them on an empty batch.
///
/// `comm` must be on the model's device and outlive the training. On the CPU, nothing else may use it: the
/// gradient buckets that backward launches would interleave with these collectives. On a GPU it may be the
/// communicator of the GradientSynchronizer, whose launches have the same order relative to these on all
/// ranks.
int synchronize_batch_norms(nn::Module& model, Communicator& comm);

/// Makes the batch norms of `model` normalize by the statistics of this rank's samples again.
void use_local_statistics(nn::Module& model);

/// Combines running statistics that each rank computed from its own samples into those of all samples, on
/// every rank. With p_r = weight of rank r / sum of all weights, the mean is sum p_r mean_r, and the variance
/// is sum p_r (var_r + (mean_r - mean)^2), by the law of total variance. A rank with weight 0 is ignored, and
/// so are batch norms whose statistics are frozen. Throws UsageError if all weights are 0. Collective; `comm`
/// is a CPU communicator. Blocks until all statistics are received.
void average_running_statistics(Communicator& comm, nn::Module& model, double weight);

}  // namespace convoy::dist
