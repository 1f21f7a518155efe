// Muon: momentum whose matrices are orthogonalized, for filters and weights; SGD for all other parameters.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "convoy/engine/optim/optimizer.h"
#include "convoy/engine/tensor/tensor.h"

namespace convoy::optim {

/// Parameter groups of Muon. Weight decay is decoupled for matrices, and part of the gradient for others.
struct MuonGroups {
  std::vector<ParameterGroup> matrices;  // orthogonalized; parameters with at least two axes
  std::vector<ParameterGroup> others;    // SGD
};

/// Options of muon_groups().
struct MuonGroupOptions {
  bool head = false;         // whether the head of the network is a matrix
  double sgd_lr_scale = 1;   // factor of lr_scale of the other parameters; above 0
  double bias_lr_scale = 1;  // factor of sgd_lr_scale for parameters with one axis: biases and norms; above 0
};

/// Divides each group into matrices, which are filters and weights with at least two axes, and other
/// parameters. The last such weight of all groups is taken for the head of the network, and is not a matrix
/// unless `head` is set. Divides the weight decay of other parameters by the same factors, so that a rate
/// times a decay is the same for all. Empty groups are left out. Throws UsageError for invalid options.
///
/// Embeddings are weights too. To step them by SGD, move them to MuonGroups::others.
MuonGroups muon_groups(const std::vector<ParameterGroup>& groups, const MuonGroupOptions& options = {});

/// The factor of an orthogonalized matrix of a given number of rows and columns in the update.
enum class MuonScale : std::uint8_t {
  none,      // 1
  shape,     // sqrt(max(1, rows / columns)), the default of torch.optim.Muon
  adam_rms,  // 0.2 sqrt(max(rows, columns)): updates as large as AdamW's (Liu et al., arXiv:2502.16982)
};

/// Settings of Muon.
struct MuonSettings {
  double momentum = 0.95;              // of matrices, from 0 to less than 1
  bool nesterov = true;                // Nesterov's momentum for matrices; needs a momentum above 0
  int ns_steps = 5;                    // Newton-Schulz iterations, from 1 to 99
  MuonScale scale = MuonScale::shape;  // factor of the update
  /// Rescales each matrix to the Frobenius norm sqrt(rows) before its update. For filters in front of a batch
  /// norm, whose outputs do not depend on the norm. The groups of matrices must not decay.
  bool normalize = false;
  double sgd_momentum = 0.9;  // Nesterov's momentum of other parameters, from 0 to less than 1
};

/// Muon (Jordan et al., 2024, https://kellerjordan.github.io/posts/muon/), as torch.optim.Muon. A parameter
/// [rows, …] is a matrix [rows, columns]; the order of the columns does not matter. With the gradient g,
///   m = momentum m + g;  u = nesterov ? g + momentum m : m;
///   w = (1 - lr weight_decay) w - lr scale O(u),
/// where O divides u by its Frobenius norm and makes Newton-Schulz iterations (newton_schulz()): in f64 or f32 on the
/// CPU, and in bf16 with f32 sums on a GPU, except for f64 parameters. Matrices of equal shape are one batch.
///
/// The update of an element depends on its whole matrix, so the optimizer cannot be sharded (ZeRO).
class Muon final : public Optimizer {
 public:
  /// Throws UsageError for invalid settings, if a matrix has less than two axes or no element, if there is no
  /// matrix, and like the constructor of Optimizer.
  explicit Muon(MuonGroups groups, MuonSettings settings = {});
  std::string name() const override { return "muon"; }
  bool is_elementwise() const override { return false; }

 private:
  void step_groups(const Indices& indices, const kernels::StepScalars& scalars) override;
  /// Enqueues the step of matrices with new gradients. Does not count it.
  void step_matrices(const Indices& indices, const kernels::StepScalars& scalars) const;

  MuonSettings settings_;
  std::size_t matrix_groups_;                  // the first groups are those of matrices
  std::vector<std::vector<Tensor>> momentum_;  // by group and parameter; of matrices only if sgd_momentum = 0
};

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
