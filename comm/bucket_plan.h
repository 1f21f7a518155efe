// Which gradients travel together: parameters grouped into buckets, in the order in which they become ready.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/runtime/dtype.h"

namespace convoy {

/// Bytes of gradients as backward writes them.
struct BucketLimits {
  std::size_t element_bytes = 4;
  /// The most that a bucket holds; a parameter that is larger has one of its own.
  std::size_t bucket_bytes = std::size_t{10} << 20;
  /// The most that the last one holds. Nothing is left to compute when it is complete, so its transfer is
  /// time lost.
  std::size_t last_bytes = std::size_t{512} << 10;
  /// Where slices begin, in bytes: a multiple of the element's, by default what every vector load and every
  /// library's copy is content with.
  std::size_t alignment = 256;

  /// Buckets of so many MiB; UsageError where that is not above 0.
  static BucketLimits of(double bucket_mb, DType dtype);
};

/// Buckets are filled from the end: the last holds last_bytes at most, each one before it kGrowth times more,
/// up to bucket_bytes. The few bytes that backward computes last wait for no others then, and what is sent
/// just before them is small enough to be almost through.
///
/// Parameters are numbered in the order of registration.
struct BucketPlan {
  static constexpr std::size_t kGrowth = 4;

  struct Slice {
    std::size_t parameter = 0;
    std::int64_t offset = 0;  // elements, in the bucket
    std::int64_t numel = 0;
    friend bool operator==(const Slice&, const Slice&) = default;
  };
  struct Bucket {
    std::vector<Slice> slices;
    std::int64_t numel = 0;  // with the gaps between slices
    friend bool operator==(const Bucket&, const Bucket&) = default;
  };
  std::vector<Bucket> buckets;  // in the order of their transfer

  /// In reverse order of registration, which is about the order of backward. Known before anything has run,
  /// and equal in every run.
  static BucketPlan by_order(std::span<const std::int64_t> numels, const BucketLimits& limits = {});
  /// In the order in which backward was seen to complete the gradients; infinity for one that it did not:
  /// that parameter goes last, where no other waits for it. Equal times: in reverse order of registration.
  static BucketPlan by_ready_times(std::span<const std::int64_t> numels, std::span<const double> ready_ms,
                                   const BucketLimits& limits = {});

  /// One line: "buckets of 4 parameters, 1234 elements: 3 2 | 1 | 0".
  std::string text() const;
  /// UsageError where the text is no plan for parameters of these sizes: each of them exactly once. Of the
  /// limits, how slices are laid out counts, not how many bytes a bucket holds.
  static BucketPlan parse(const std::string& text, std::span<const std::int64_t> numels,
                          const BucketLimits& limits = {});

  friend bool operator==(const BucketPlan&, const BucketPlan&) = default;
};

}  // namespace convoy
