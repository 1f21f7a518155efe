// Batch norms of models whose batch is divided over the ranks.
#pragma once

#include "comm/communicator.h"
#include "engine/nn/module.h"

namespace convoy {

/// In training, the batch norms of this model normalize from now on by the statistics of all ranks' samples
/// (kernels/batchnorm.h says by which formulas), and their running statistics are the same on all ranks.
/// Every forward pass exchanges one small vector a layer, and so does its backward: all ranks run equally
/// many of both, those without samples on none. Returns how many batch norms there are.
///
/// The communicator, on the model's device, outlives the model's training. On the CPU nothing else may use it
/// meanwhile: buckets of gradients that are launched in the middle of backward would come in between. On a
/// GPU it may be the synchronizer's, whose launches are in the same order on all ranks as these are.
int synchronize_batch_norms(Module& model, Communicator& comm);

int count_batch_norms(Module& model);

/// Where every rank kept running statistics of its own samples: gives all of them those of the samples
/// together. With p_r, this rank's `weight` by the sum of all, the mean is sum p_r mean_r, and the variance
/// sum p_r (var_r + (mean_r - mean)^2), the law of total variance. A rank with weight 0 counts for nothing;
/// at least one has more. The communicator is one of the CPU; the host waits.
void average_running_statistics(Communicator& comm, Module& model, double weight);

}  // namespace convoy
