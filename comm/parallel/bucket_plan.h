// The assignment of gradients to buckets: which gradients are sent together, and in which order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "convoy/kernels/base/dtype.h"

namespace convoy::dist {

/// The sizes and the alignment of buckets, in bytes of gradients as backward writes them.
struct BucketLimits {
  /// Size of one gradient element.
  std::size_t element_bytes = 4;
  /// Maximum size of a bucket. A parameter that is larger gets a bucket of its own.
  std::size_t bucket_bytes = std::size_t{10} << 20;
  /// Maximum size of the last bucket. No computation is left that could hide its transfer, so it is small.
  std::size_t last_bytes = std::size_t{512} << 10;
  /// Alignment of each slice, a multiple of element_bytes. The default suits all vector loads and libraries.
  std::size_t alignment = 256;

  /// Returns the limits for buckets of at most `bucket_mb` MiB of `dtype`. Throws UsageError unless
  /// `bucket_mb` is above 0.
  static BucketLimits of(double bucket_mb, DType dtype);
};

/// A list of buckets, each of which lists its parameters.
///
/// Buckets are filled from the end. The last one holds at most last_bytes, and each bucket before it at most
/// kGrowth times as much as its successor, up to bucket_bytes. So the gradients that backward computes last
/// are sent in a small bucket, and the transfer before them is small enough to be almost complete by then.
///
/// Parameters are numbered in the order of registration. `numels` holds the number of elements of each. A
/// plan is a value, and its functions are thread-safe.
struct BucketPlan {
  static constexpr std::size_t kGrowth = 4;  // maximum size of a bucket relative to its successor

  /// The place of one gradient in its bucket.
  struct Slice {
    std::size_t parameter = 0;  // number of the parameter
    std::int64_t offset = 0;    // in elements from the begin of the bucket
    std::int64_t numel = 0;     // number of elements
    /// Compares all members.
    friend bool operator==(const Slice&, const Slice&) = default;
  };
  /// A flat tensor of gradients that is sent by one collective.
  struct Bucket {
    std::vector<Slice> slices;  // in the order of their offsets
    std::int64_t numel = 0;     // elements, including the gaps between slices
    /// Compares all members.
    friend bool operator==(const Bucket&, const Bucket&) = default;
  };
  /// The buckets in the order of their launches.
  std::vector<Bucket> buckets;

  /// Returns the plan for reverse order of registration, which is roughly the order of backward. The plan
  /// needs no measurement and is the same in every run. Throws UsageError if `numels` is empty or has a zero,
  /// or if `limits` are inconsistent.
  static BucketPlan by_order(std::span<const std::int64_t> numels, const BucketLimits& limits = {});
  /// Returns the plan for the measured order in which gradients become ready. `ready_ms` holds one time per
  /// parameter: infinity if it got no gradient, which puts it last, where no other gradient waits for it.
  /// Equal times are ordered by reverse registration. Throws UsageError as by_order() does, and for a NaN or
  /// a wrong number of times.
  static BucketPlan by_ready_times(std::span<const std::int64_t> numels, std::span<const double> ready_ms,
                                   const BucketLimits& limits = {});

  /// Returns the plan as one line of text: "buckets of 4 parameters, 1234 elements: 3 2 | 1 | 0".
  std::string text() const;
  /// Parses the result of text(). Of `limits`, only the alignment of slices is used, not the bucket sizes.
  /// Throws UsageError if `text` is not a plan for parameters of these sizes, each in exactly one bucket.
  static BucketPlan parse(const std::string& text, std::span<const std::int64_t> numels,
                          const BucketLimits& limits = {});

  /// Compares the buckets.
  friend bool operator==(const BucketPlan&, const BucketPlan&) = default;
};

}  // namespace convoy::dist
