#include "convoy/datasets/loader/hold_out.h"

#include <algorithm>
#include <map>
#include <vector>

#include "convoy/datasets/loader/sampler.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/option_error.h"

namespace convoy::data {
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
  std::stable_sort(order.begin(), order.end(),
                   [](const ClassShare* a, const ClassShare* b) { return a->remainder > b->remainder; });
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
