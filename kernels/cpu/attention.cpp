// kernels/attention.h on the CPU. Works on blocks of scores, of some queries and some keys, which stay in the
// cache; a library multiplies the blocks. The order of all sums depends on the sizes only.
#include "convoy/kernels/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "convoy/kernels/cpu/primitives/blas.h"
#include "convoy/kernels/cpu/primitives/float_copies.h"
#include "convoy/kernels/cpu/primitives/vector_math.h"
#include "convoy/kernels/runtime/parallel.h"

namespace convoy::kernels {
namespace {

constexpr std::int64_t kQueryBlock = 64;
constexpr std::int64_t kKeyBlock = 256;

/// A block of scores, or of their gradients: 64 KiB in f32.
template <class C>
using Scores = std::array<C, kQueryBlock * kKeyBlock>;

inline float exp_of_nonpositive(float x) { return vector_math::exp_nonpositive(x); }
inline double exp_of_nonpositive(double x) { return std::exp(x); }

/// The arrays of one matrix of the batch, and the options.
template <class C>
struct Head {
  CpuStream& stream;
  const AttentionSizes& sizes;
  AttentionRule rule;
  const C *q, *k, *v;

  Head(CpuStream& on, const AttentionSizes& all, AttentionRule how, const ConstView& queries,
       const ConstView& keys, const ConstView& values, std::int64_t index)
      : stream(on),
        sizes(all),
        rule(how),
        q(queries.as<C>() + index * all.queries * all.depth),
        k(keys.as<C>() + index * all.keys * all.depth),
        v(values.as<C>() + index * all.keys * all.width) {}

  /// Returns how many of `count` keys from `first_key` on the query uses.
  std::int64_t visible(std::int64_t query, std::int64_t first_key, std::int64_t count) const {
    return rule.causal ? std::clamp<std::int64_t>(query + 1 - first_key, 0, count) : count;
  }
  /// Computes scores [rows, columns] of a block.
  void score(std::int64_t query, std::int64_t rows, std::int64_t key, std::int64_t columns,
             Scores<C>& scores) const {
    multiply(false, true, rows, columns, sizes.depth, static_cast<C>(rule.scale), q + query * sizes.depth,
             k + key * sizes.depth, C{0}, scores.data());
  }
  /// Computes c [m, n] = alpha op(a) op(b) + beta c for arrays without padding.
  void multiply(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t depth,
                C alpha, const C* a, const C* b, C beta, C* c) const {
    const auto narrow = [](std::int64_t size) { return static_cast<blasint>(size); };  // the caller checked
    blas::gemm(stream, transpose_a, transpose_b, narrow(m), narrow(n), narrow(depth), alpha, a,
               narrow(transpose_a ? m : depth), b, narrow(transpose_b ? depth : n), beta, c, narrow(n));
  }
};

/// Computes y for `rows` queries from `query` on. `y` and `log_sum_exp` are those of the first of them. The
/// largest score so far is subtracted before the exponential; if it grows, earlier results are scaled.
template <class C>
void forward_block(const Head<C>& head, std::int64_t query, std::int64_t rows, C* y, C* log_sum_exp) {
  const AttentionSizes& sizes = head.sizes;
  Scores<C> scores;
  std::array<C, kQueryBlock> largest, sums;
  largest.fill(-std::numeric_limits<C>::infinity());
  sums.fill(0);
  const std::int64_t keys = head.visible(query + rows - 1, 0, sizes.keys);
  for (std::int64_t key = 0; key < keys; key += kKeyBlock) {
    const std::int64_t columns = std::min(kKeyBlock, keys - key);
    head.score(query, rows, key, columns, scores);
    for (std::int64_t row = 0; row < rows; ++row) {
      C* const s = scores.data() + row * columns;
      const std::int64_t visible = head.visible(query + row, key, columns);
      std::fill(s + visible, s + columns, C{0});
      if (visible == 0) continue;
      C& maximum = largest[static_cast<std::size_t>(row)];
      C& sum = sums[static_cast<std::size_t>(row)];
      const C offset = reduce_lanes(
          visible, maximum, [s](std::int64_t i) { return s[i]; }, [](C a, C b) { return a < b ? b : a; });
      for (std::int64_t i = 0; i < visible; ++i) s[i] = exp_of_nonpositive(s[i] - offset);
      const C added = reduce_lanes(
          visible, C{0}, [s](std::int64_t i) { return s[i]; }, [](C a, C b) { return a + b; });
      const C factor = exp_of_nonpositive(maximum - offset);  // 0 in the first block
      sum = sum * factor + added;
      maximum = offset;
      if (key == 0 || factor == 1) continue;
      C* const to = y + row * sizes.width;
      for (std::int64_t i = 0; i < sizes.width; ++i) to[i] *= factor;
    }
    head.multiply(false, false, rows, sizes.width, columns, C{1}, scores.data(), head.v + key * sizes.width,
                  key > 0 ? C{1} : C{0}, y);
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    const C sum = sums[static_cast<std::size_t>(row)];
    C* const to = y + row * sizes.width;
    for (std::int64_t i = 0; i < sizes.width; ++i) to[i] /= sum;
    log_sum_exp[2 * row] = largest[static_cast<std::size_t>(row)];
    log_sum_exp[2 * row + 1] = std::log(sum);
  }
}

/// The arrays of the backward pass of one matrix of the batch. The gradients are added to; each may be null.
template <class C>
struct BackwardHead {
  Head<C> head;
  const C *dy, *log_sum_exp, *dots;  // dots [T]: the sum of dy y for each query
  C *dq, *dk, *dv;

  /// Adds the contributions of a block of queries and keys to those of the three gradients that are chosen.
  void add_block(std::int64_t query, std::int64_t key, bool to_queries, bool to_keys) const {
    const AttentionSizes& sizes = head.sizes;
    const std::int64_t rows = std::min(kQueryBlock, sizes.queries - query);
    const std::int64_t columns = head.visible(query + rows - 1, key, std::min(kKeyBlock, sizes.keys - key));
    if (columns == 0) return;
    Scores<C> p;
    head.score(query, rows, key, columns, p);
    for (std::int64_t row = 0; row < rows; ++row) {
      C* const s = p.data() + row * columns;
      const C* const logarithm = log_sum_exp + 2 * (query + row);
      const C largest = logarithm[0], log_sum = logarithm[1];
      const std::int64_t visible = head.visible(query + row, key, columns);
      // A score minus the logarithm exceeds 0 by roundings only.
      for (std::int64_t i = 0; i < visible; ++i) s[i] = exp_of_nonpositive(s[i] - largest - log_sum);
      std::fill(s + visible, s + columns, C{0});
    }
    const C* const dys = dy + query * sizes.width;
    if (to_keys && dv != nullptr)
      head.multiply(true, false, columns, sizes.width, rows, C{1}, p.data(), dys, C{1},
                    dv + key * sizes.width);
    if ((!to_queries || dq == nullptr) && (!to_keys || dk == nullptr)) return;
    Scores<C> ds;
    head.multiply(false, true, rows, columns, sizes.width, C{1}, dys, head.v + key * sizes.width, C{0},
                  ds.data());
    for (std::int64_t row = 0; row < rows; ++row) {
      const C dot = dots[query + row];
      const C* const probabilities = p.data() + row * columns;
      C* const gradients = ds.data() + row * columns;
      for (std::int64_t i = 0; i < columns; ++i) gradients[i] = probabilities[i] * (gradients[i] - dot);
    }
    const C scale = static_cast<C>(head.rule.scale);
    if (to_queries && dq != nullptr)
      head.multiply(false, false, rows, sizes.depth, columns, scale, ds.data(), head.k + key * sizes.depth,
                    C{1}, dq + query * sizes.depth);
    if (to_keys && dk != nullptr)
      head.multiply(true, false, columns, sizes.depth, rows, scale, ds.data(), head.q + query * sizes.depth,
                    C{1}, dk + key * sizes.depth);
  }
};

std::int64_t blocks_of(std::int64_t size, std::int64_t block) { return (size + block - 1) / block; }

/// Checks that BLAS supports the sizes.
void check_sizes(const AttentionSizes& sizes) {
  for (const std::int64_t size : {sizes.depth, sizes.width}) blas::size(size);
}

template <class C>
void forward(CpuStream& stream, const ConstView& q, const ConstView& k, const ConstView& v,
             AttentionRule rule, const View& y, const View& log_sum_exp) {
  const AttentionSizes sizes(q.shape, v.shape);
  const std::int64_t blocks = blocks_of(sizes.queries, kQueryBlock);
  parallel_for(stream, sizes.batch * blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t index = i / blocks, query = i % blocks * kQueryBlock;
      const std::int64_t row = index * sizes.queries + query;
      forward_block(Head<C>(stream, sizes, rule, q, k, v, index), query,
                    std::min(kQueryBlock, sizes.queries - query), y.as<C>() + row * sizes.width,
                    log_sum_exp.as<C>() + 2 * row);
    }
  });
}

template <class C>
void backward(CpuStream& stream, const ConstView& dy, const ConstView& q, const ConstView& k,
              const ConstView& v, const ConstView& y, const ConstView& log_sum_exp, AttentionRule rule,
              const GradView& dq, const GradView& dk, const GradView& dv) {
  const AttentionSizes sizes(q.shape, v.shape);
  const std::int64_t rows = sizes.batch * sizes.queries;
  Workspace memory(stream);
  auto* const dots = memory.array<C>(rows);
  parallel_for(stream, rows, item_grain(sizes.width), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const C* const a = dy.as<C>() + row * sizes.width;
      const C* const b = y.as<C>() + row * sizes.width;
      dots[row] = reduce_lanes(
          sizes.width, C{0}, [a, b](std::int64_t i) { return a[i] * b[i]; }, [](C u, C w) { return u + w; });
    }
  });
  for (const GradView& gradient : {dq, dk, dv})
    if (gradient.wanted() && gradient.mode == GradMode::overwrite) fill(stream, 0, gradient);

  const auto head_of = [&](std::int64_t index) {
    const auto part = [index](const GradView& all) {
      return all.wanted() ? all.as<C>() + index * all.shape[1] * all.shape[2] : nullptr;
    };
    return BackwardHead<C>{.head = Head<C>(stream, sizes, rule, q, k, v, index),
                           .dy = dy.as<C>() + index * sizes.queries * sizes.width,
                           .log_sum_exp = log_sum_exp.as<C>() + 2 * index * sizes.queries,
                           .dots = dots + index * sizes.queries,
                           .dq = part(dq),
                           .dk = part(dk),
                           .dv = part(dv)};
  };
  const std::int64_t query_blocks = blocks_of(sizes.queries, kQueryBlock);
  const std::int64_t key_blocks = blocks_of(sizes.keys, kKeyBlock);
  // The gradients of keys are summed over the queries in order, and the reverse, in both cases below.
  if (sizes.batch >= stream.threads()) {  // one thread per head computes each block once
    parallel_for(stream, sizes.batch, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const BackwardHead<C> head = head_of(i);
        for (std::int64_t key = 0; key < key_blocks; ++key)
          for (std::int64_t query = 0; query < query_blocks; ++query)
            head.add_block(query * kQueryBlock, key * kKeyBlock, true, true);
      }
    });
    return;
  }
  // Few heads: threads share the keys of a head, and then its queries, which computes the scores twice.
  if (dk.wanted() || dv.wanted())
    parallel_for(stream, sizes.batch * key_blocks, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        for (std::int64_t query = 0; query < query_blocks; ++query)
          head_of(i / key_blocks).add_block(query * kQueryBlock, i % key_blocks * kKeyBlock, false, true);
    });
  if (dq.wanted())
    parallel_for(stream, sizes.batch * query_blocks, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        for (std::int64_t key = 0; key < key_blocks; ++key)
          head_of(i / query_blocks).add_block(i % query_blocks * kQueryBlock, key * kKeyBlock, true, false);
    });
}

}  // namespace

void attention_forward(CpuStream& stream, ConstView q, ConstView k, ConstView v, AttentionRule rule, View y,
                       View log_sum_exp) {
  if (is_half(y.dtype)) {
    FloatCopies copies(stream);
    const View result = copies.buffer(y.shape);
    attention_forward(stream, copies.widen(q), copies.widen(k), copies.widen(v), rule, result, log_sum_exp);
    return cast(stream, result, y);
  }
  check_sizes(AttentionSizes(q.shape, v.shape));
  dispatch(kCpuFullTypes, y.dtype,
           [&](auto zero) { forward<decltype(zero)>(stream, q, k, v, rule, y, log_sum_exp); });
}

void attention_backward(CpuStream& stream, ConstView dy, ConstView q, ConstView k, ConstView v, ConstView y,
                        ConstView log_sum_exp, AttentionRule rule, GradView dq, GradView dk, GradView dv) {
  if (is_half(y.dtype)) {
    FloatCopies copies(stream), others(stream);
    const auto buffer = [&](const GradView& gradient) {
      return gradient.wanted() ? GradView(others.buffer(gradient.shape)) : GradView();
    };
    const GradView wide_dq = buffer(dq), wide_dk = buffer(dk), wide_dv = buffer(dv);
    attention_backward(stream, copies.widen(dy), copies.widen(q), copies.widen(k), copies.widen(v),
                       others.widen(y), log_sum_exp, rule, wide_dq, wide_dk, wide_dv);
    if (dq.wanted()) round_into(stream, wide_dq, dq);
    if (dk.wanted()) round_into(stream, wide_dk, dk);
    if (dv.wanted()) round_into(stream, wide_dv, dv);
    return;
  }
  check_sizes(AttentionSizes(q.shape, v.shape));
  dispatch(kCpuFullTypes, y.dtype, [&](auto zero) {
    backward<decltype(zero)>(stream, dy, q, k, v, y, log_sum_exp, rule, dq, dk, dv);
  });
}

}  // namespace convoy::kernels
