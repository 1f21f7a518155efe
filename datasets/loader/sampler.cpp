#include "convoy/datasets/loader/sampler.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <numeric>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/option_error.h"
#include "convoy/kernels/base/random.h"

namespace convoy::data {

namespace {

/// Shuffles the elements (Fisher and Yates). `purpose` tells the shuffles of an epoch apart.
void shuffle(std::vector<std::int32_t>& elements, std::uint64_t seed, std::int64_t epoch,
             std::uint32_t purpose) {
  const Random random{seed, RandomPurpose::shuffle, static_cast<std::uint32_t>(epoch)};
  std::array<std::uint32_t, 4> words{};
  for (std::uint32_t draw = 0, left = static_cast<std::uint32_t>(elements.size()); left > 1; ++draw, --left) {
    if (draw % 4 == 0) words = random.words(draw / 4, purpose);
    std::swap(elements[left - 1], elements[to_below(words[draw % 4], left)]);
  }
}

}  // namespace

std::vector<std::int32_t> epoch_order(std::int64_t n, std::uint64_t seed, std::int64_t epoch) {
  check(0 <= n && n <= std::numeric_limits<std::int32_t>::max(),
        "a set of {} samples, expected fewer than 2^31", n);
  check(0 <= epoch && epoch < (1 << 24), "epoch {}, expected 0 to 2^24 - 1", epoch);  // the limit of Random
  std::vector<std::int32_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  shuffle(order, seed, epoch, 0);
  return order;
}

std::vector<std::int32_t> balanced_order(const std::vector<std::int32_t>& labels, std::uint64_t seed,
                                         std::int64_t epoch) {
  const std::size_t n = labels.size();
  std::map<std::int32_t, std::vector<std::int32_t>> classes;  // their rows, in random order
  for (const std::int32_t row : epoch_order(std::ssize(labels), seed, epoch))
    classes[labels[static_cast<std::size_t>(row)]].push_back(row);
  const std::size_t repetitions = std::numeric_limits<std::int32_t>::max() / std::max<std::size_t>(n, 1);
  std::vector<std::int32_t> order;
  for (std::size_t turn = 0; order.size() < n; ++turn)
    for (const auto& [label, rows] : classes) {
      const std::size_t repetition = turn / rows.size() % repetitions;
      if (order.size() < n)
        order.push_back(rows[turn % rows.size()] + static_cast<std::int32_t>(repetition * n));
    }
  shuffle(order, seed, epoch, 1);
  return order;
}

Range shard_range(std::int64_t count, int rank, int world_size) {
  const std::int64_t base = count / world_size;
  const std::int64_t larger = count % world_size;  // number of ranks with one more item
  const std::int64_t begin = rank * base + std::min<std::int64_t>(rank, larger);
  return {begin, begin + base + (rank < larger ? 1 : 0)};
}

std::int64_t BatchPlan::steps() const { return (samples + global_batch - 1) / global_batch; }

std::int64_t BatchPlan::global_count(std::int64_t step) const {
  return std::min(global_batch, samples - step * global_batch);
}

std::int64_t BatchPlan::micro_batches_of(std::int64_t count) const {
  if (micro_batch == 0) return 1;
  const std::int64_t largest_shard = shard_range(count, 0, world_size).size();
  return std::max<std::int64_t>(1, (largest_shard + micro_batch - 1) / micro_batch);
}

std::int64_t BatchPlan::micro_batches(std::int64_t step) const {
  return micro_batches_of(global_count(step));
}

std::int64_t BatchPlan::smallest_micro_batch(std::int64_t step) const {
  const std::int64_t count = global_count(step);
  return shard_range(count, world_size - 1, world_size).size() / micro_batches_of(count);
}

Range BatchPlan::positions(std::int64_t step, std::int64_t index) const {
  const std::int64_t count = global_count(step);
  const Range rank_shard = shard_range(count, rank, world_size);
  // Micro-batches of about equal size, instead of full ones and a remainder, give batch norm similar
  // statistics.
  const Range part =
      shard_range(rank_shard.size(), static_cast<int>(index), static_cast<int>(micro_batches_of(count)));
  const std::int64_t begin = step * global_batch + rank_shard.begin;
  return {begin + part.begin, begin + part.end};
}

std::int64_t BatchPlan::partner(std::int64_t position) const {
  const std::int64_t step = position / global_batch;
  return position % global_batch > 0 ? position - 1 : step * global_batch + global_count(step) - 1;
}

namespace {

constexpr std::int64_t kDrawEpoch = (1 << 24) - 1;  // keys the draw; no training reaches it

struct ClassShare {
  std::int64_t images = 0;
  std::int64_t held_out = 0;
  std::int64_t remainder = 0;  // of the division by the size of the set
};

/// Sets held_out of all classes, by the largest remainders.
void divide(std::map<std::int32_t, ClassShare>& classes, std::int64_t count, std::int64_t size) {
  std::int64_t left = count;
  std::vector<ClassShare*> order;
  for (auto& [label, share] : classes) {
    share.held_out = count * share.images / size;
    share.remainder = count * share.images % size;
    left -= share.held_out;
    order.push_back(&share);
  }
  std::ranges::stable_sort(order, std::greater(), &ClassShare::remainder);
  for (std::size_t i = 0; left > 0; i = (i + 1) % order.size())
    if (order[i]->held_out + 1 < order[i]->images) {
      ++order[i]->held_out;
      --left;
    }
}

}  // namespace

std::pair<ImageSet, ImageSet> hold_out(const ImageSet& set, std::int64_t count, std::uint64_t seed) {
  const std::vector<std::int32_t> labels =
      set.size() > 0 ? set.labels.to_vector<std::int32_t>() : std::vector<std::int32_t>();
  std::map<std::int32_t, ClassShare> classes;
  for (const std::int32_t label : labels) ++classes[label].images;
  const std::int64_t maximum = set.size() - std::ssize(classes);
  check_option(count >= 1 && count <= maximum, "hold_out count",
               "{} of {} training images of {} classes, expected 1 to {}, which leaves one per class", count,
               set.size(), classes.size(), std::max<std::int64_t>(maximum, 0));
  divide(classes, count, set.size());
  std::vector<bool> is_held_out(labels.size());
  for (const std::int32_t row : epoch_order(set.size(), seed, kDrawEpoch)) {
    std::int64_t& left = classes[labels[static_cast<std::size_t>(row)]].held_out;
    if (left == 0) continue;
    --left;
    is_held_out[static_cast<std::size_t>(row)] = true;
  }
  std::vector<std::int32_t> kept, held_out;
  for (std::size_t row = 0; row < labels.size(); ++row)
    (is_held_out[row] ? held_out : kept).push_back(static_cast<std::int32_t>(row));
  return {select(set, kept), select(set, held_out)};
}

}  // namespace convoy::data
