#include "convoy/comm/parallel/bucket_plan.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <sstream>

#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

using Groups = std::vector<std::vector<std::size_t>>;  // the parameters of each bucket

std::int64_t aligned(std::int64_t numel, const BucketLimits& limits) {
  const auto step = static_cast<std::int64_t>(limits.alignment / limits.element_bytes);
  return (numel + step - 1) / step * step;
}

void check_sizes(std::span<const std::int64_t> numels, const BucketLimits& limits) {
  check(!numels.empty(), "bucket plan: no parameters");
  check(std::all_of(numels.begin(), numels.end(), [](std::int64_t numel) { return numel > 0; }),
        "bucket plan: found a parameter without elements");
  check(limits.element_bytes > 0 && limits.alignment > 0 && limits.alignment % limits.element_bytes == 0,
        "bucket plan: found an alignment of {} bytes, expected a multiple of the element size, {}",
        limits.alignment, limits.element_bytes);
}

BucketPlan lay_out(const Groups& groups, std::span<const std::int64_t> numels, const BucketLimits& limits) {
  BucketPlan plan;
  for (const std::vector<std::size_t>& group : groups) {
    BucketPlan::Bucket& bucket = plan.buckets.emplace_back();
    for (const std::size_t parameter : group) {
      bucket.slices.push_back({.parameter = parameter, .offset = bucket.numel, .numel = numels[parameter]});
      bucket.numel += aligned(numels[parameter], limits);
    }
  }
  return plan;
}

BucketPlan fill_from_the_end(const std::vector<std::size_t>& order, std::span<const std::int64_t> numels,
                             const BucketLimits& limits) {
  check(
      limits.bucket_bytes >= limits.last_bytes && limits.last_bytes > 0,
      "bucket plan: found limits of {} bytes for the last bucket and {} for the others, expected at least 1 "
      "and not less than the last",
      limits.last_bytes, limits.bucket_bytes);
  Groups groups(1);  // from the last bucket to the first
  std::size_t limit = limits.last_bytes, held = 0;
  for (auto parameter = order.rbegin(); parameter != order.rend(); ++parameter) {
    const std::size_t bytes =
        static_cast<std::size_t>(aligned(numels[*parameter], limits)) * limits.element_bytes;
    if (!groups.back().empty() && held + bytes > limit) {
      groups.emplace_back();
      held = 0;
      limit = limit > limits.bucket_bytes / BucketPlan::kGrowth ? limits.bucket_bytes
                                                                : limit * BucketPlan::kGrowth;
    }
    groups.back().push_back(*parameter);
    held += bytes;
  }
  std::reverse(groups.begin(), groups.end());
  for (std::vector<std::size_t>& group : groups) std::reverse(group.begin(), group.end());
  return lay_out(groups, numels, limits);
}

std::vector<std::size_t> reverse_registration(std::size_t count) {
  std::vector<std::size_t> order(count);
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  return order;
}

std::string header(std::size_t parameters, std::int64_t elements) {
  return fmt::format("buckets of {} parameters, {} elements:", parameters, elements);
}

}  // namespace

BucketLimits BucketLimits::of(double bucket_mb, DType dtype) {
  check(bucket_mb > 0 && bucket_mb <= 1 << 20,
        "bucket size: found {} MiB, expected more than 0 and at most 1048576", bucket_mb);
  BucketLimits limits{.element_bytes = size_of(dtype),
                      .bucket_bytes = std::max<std::size_t>(1, static_cast<std::size_t>(bucket_mb * 0x1p20))};
  limits.last_bytes = std::min(limits.last_bytes, limits.bucket_bytes);
  return limits;
}

BucketPlan BucketPlan::by_order(std::span<const std::int64_t> numels, const BucketLimits& limits) {
  check_sizes(numels, limits);
  return fill_from_the_end(reverse_registration(numels.size()), numels, limits);
}

BucketPlan BucketPlan::by_ready_times(std::span<const std::int64_t> numels, std::span<const double> ready_ms,
                                      const BucketLimits& limits) {
  check_sizes(numels, limits);
  check(ready_ms.size() == numels.size(),
        "bucket plan: found {} ready times, expected one for each of {} parameters", ready_ms.size(),
        numels.size());
  check(std::none_of(ready_ms.begin(), ready_ms.end(), [](double ms) { return std::isnan(ms); }),
        "bucket plan: found a ready time that is NaN");
  std::vector<std::size_t> order = reverse_registration(numels.size());
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return ready_ms[a] < ready_ms[b]; });
  return fill_from_the_end(order, numels, limits);
}

std::string BucketPlan::text() const {
  std::size_t parameters = 0;
  std::int64_t elements = 0;
  std::string lists;
  for (const Bucket& bucket : buckets) {
    if (!lists.empty()) lists += " |";
    for (const Slice& slice : bucket.slices) {
      lists += fmt::format(" {}", slice.parameter);
      elements += slice.numel;
      ++parameters;
    }
  }
  return header(parameters, elements) + lists;
}

BucketPlan BucketPlan::parse(const std::string& text, std::span<const std::int64_t> numels,
                             const BucketLimits& limits) {
  check_sizes(numels, limits);
  const std::string expected =
      header(numels.size(), std::accumulate(numels.begin(), numels.end(), std::int64_t{0}));
  check(text.starts_with(expected), "bucket plan: found \"{}\", expected \"{} …\"", text.substr(0, 80),
        expected);

  Groups groups(1);
  std::vector<bool> seen(numels.size(), false);
  std::istringstream words(text.substr(expected.size()));
  for (std::string word; words >> word;) {
    if (word == "|") {
      groups.emplace_back();
      continue;
    }
    std::size_t parameter = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), parameter);
    check(error == std::errc{} && end == word.data() + word.size() && parameter < numels.size(),
          "bucket plan: found \"{}\", expected a parameter number below {}", word, numels.size());
    check(!seen[parameter], "bucket plan: found parameter {} twice", parameter);
    seen[parameter] = true;
    groups.back().push_back(parameter);
  }
  const auto missing = std::find(seen.begin(), seen.end(), false);
  check(missing == seen.end(), "bucket plan: parameter {} is in no bucket", missing - seen.begin());
  for (const std::vector<std::size_t>& group : groups)
    check(!group.empty(), "bucket plan: found an empty bucket");
  return lay_out(groups, numels, limits);
}

}  // namespace convoy::dist
