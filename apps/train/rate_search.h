// --lr find and --batch-size auto: settings that a few steps of the training itself decide.
#pragma once

#include <string>
#include <vector>

#include "convoy/apps/ranks/job.h"
#include "convoy/apps/train/setup.h"

namespace convoy {

/// Returns the rate for losses that were measured while the rate rose: a third of the rate at which their average, an
/// exponential one without the bias of its beginning, is lowest (L. N. Smith, "Cyclical learning rates for training neural
/// networks", arXiv:1506.01186, section 3.3, takes the rates at which the loss begins to fall and to rise). Throws
/// NumericError if the average never falls by 1 %.
RateSearch choose_rate(std::vector<double> rates, std::vector<double> losses);

/// Trains with up to 100 steps of rising rates, from a thousandth of the default rate to a hundred times that, on the
/// first samples of the training. Ends once the loss is four times its lowest average or not finite. Then restores all
/// parameters and buffers, and sets --lr to the result of choose_rate(), which is the same on all ranks. `options` must be
/// those of `setup`. Throws UsageError if the result is below --min-lr. Collective.
RateSearch find_learning_rate(TrainOptions& options, const Setup& setup, Job& job);

/// Returns the largest batch whose step fits into `budget` bytes, at most `maximum`, and a multiple of 8 above 8: the
/// peaks of steps of `small` samples and of twice as many have a part in proportion to the samples, and a fixed one.
std::int64_t largest_batch(std::int64_t small, double small_peak, double large_peak, double budget,
                           std::int64_t maximum);

/// Sets --batch-size to the sum over all ranks of the smallest largest_batch() of a rank, by the peak memory of a few
/// steps of 8 and of 16 samples on each, whose rate is 0 and whose running statistics are restored: at most four times
/// the default and the number of training images. The budget of a rank is 90 % of what is free and in use on its GPU, or
/// 60 % of its share of the host's memory, which a control group may limit. Ranks that are threads on the CPU count what all
/// of them use. Returns the figures in one line. `options`
/// must be those of `setup`. Collective.
std::string find_batch_size(TrainOptions& options, const Setup& setup, Job& job);

}  // namespace convoy
