// Whitening of image patches, for the first layer of the networks in speedrun.cpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "convoy/engine/nn/module.h"

namespace convoy::models {

/// The eigenvalues of a symmetric matrix in descending order, and unit eigenvectors in the same order. The
/// component of an eigenvector with the largest magnitude is positive.
struct SymmetricEigen {
  std::vector<double> values;   // [n]
  std::vector<double> vectors;  // [n, n], one per row
};

/// Computes the eigenvalues and eigenvectors of the symmetric `matrix` [n, n] by Jacobi rotations (Golub
/// and Van Loan, "Matrix Computations", section 8.5). Meant for small matrices: each of about ten sweeps
/// takes O(n^3) operations.
SymmetricEigen symmetric_eigen(std::vector<double> matrix, std::size_t n);

/// Returns the second moments [4C, 4C] of all 2x2 patches of images [N, H, W, C]: the mean of p p^T, where
/// the elements of a patch p have the order [2, 2, C]. Rounds the images to f32 and sums in f64. The
/// result does not depend on the number of threads. Throws UsageError for images of another rank, without
/// a patch, or with values that are not finite.
std::vector<double> patch_moments(const Tensor& images);

/// A 2x2 convolution of [N, H, W, C] to [N, H - 1, W - 1, 8C] whose filters whiten the patches of its input.
/// The filters are not trained: they are the buffer "weight". The bias is trained.
class WhiteningConv2d final : public nn::Module {
 public:
  /// Makes the layer. Its filters and its bias are initialized as those of Conv2d, or the bias with zeros if
  /// `zero_bias`. Throws UsageError unless `channels` is positive.
  WhiteningConv2d(int channels, bool zero_bias);
  std::string describe() const override;
  /// Sets the filters from the patches of images [N, H, W, C]. With the eigenvectors e_i and the
  /// eigenvalues l_i of patch_moments(), filter i is e_i / sqrt(l_i + 5e-4), and filter 4C + i is its
  /// negative, so that an activation passes both signs. Throws UsageError like patch_moments(), and for
  /// another C.
  void whiten(const Tensor& images);

 private:
  Variable forward(const Variable& x, const nn::ForwardContext& context) override;
  int channels_;
  std::shared_ptr<Tensor> weight_;  // [8C, 2, 2, C]
  Variable bias_;
};

}  // namespace convoy::models
