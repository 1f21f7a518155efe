// Orthogonalization of matrices by Newton-Schulz iterations, for Muon.
#pragma once

#include <functional>

#include "convoy/engine/tensor/tensor.h"

namespace convoy::optim {

/// Replaces each matrix X of x [batch, rows, columns] by an approximation of U V^T, where X = U S V^T is its
/// singular value decomposition: the nearest matrix with orthonormal rows or columns. Makes `steps` iterations
///   A = X X^T;  X = a X + (b A + c A^2) X,  (a, b, c) = (3.4445, -4.7750, 2.0315),
/// or of the transposed matrix if there are more rows than columns (Jordan et al., 2024,
/// https://kellerjordan.github.io/posts/muon/). Each singular value s becomes a s + b s^3 + c s^5. Five
/// iterations map those from 0.003 to 1 to values between 0.68 and 1.21. Smaller ones grow by a factor of at
/// most 3.4445 per iteration, and 0 stays 0.
///
/// The singular values must be at most 1, as those of a matrix of Frobenius norm 1. GEMMs are in the type of
/// x: f32 or f64, or bf16 with f32 sums. Enqueues work and does not wait for the device. Throws UsageError
/// unless x has three axes.
void newton_schulz(const Tensor& x, int steps);

/// Allocates what newton_schulz() needs, and returns a function that enqueues its work on a stream, once. The
/// function holds the memory (DeviceContext::enqueue_on_side_stream()).
std::function<void(const Stream&)> newton_schulz_work(const Tensor& x, int steps);

}  // namespace convoy::optim
