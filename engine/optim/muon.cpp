#include "convoy/engine/optim/muon.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/matmul.h"
#include "convoy/kernels/muon_step.h"

namespace convoy::optim {
namespace {

/// Returns the shape of a parameter as a matrix.
Shape matrix_shape(const Variable& parameter) {
  const std::int64_t rows = parameter.shape()[0];
  return {rows, parameter.shape().numel() / rows};
}

double scale_of(MuonScale scale, const Shape& matrix) {
  const auto rows = static_cast<double>(matrix[0]), columns = static_cast<double>(matrix[1]);
  switch (scale) {
    case MuonScale::none: return 1;
    case MuonScale::shape: return std::sqrt(std::max(1.0, rows / columns));
    case MuonScale::adam_rms: return 0.2 * std::sqrt(std::max(rows, columns));
  }
  return 1;
}

std::vector<ParameterGroup> joined(MuonGroups groups) {
  std::vector<ParameterGroup> all = std::move(groups.matrices);
  all.insert(all.end(), groups.others.begin(), groups.others.end());
  return all;
}

/// Matrices of equal shape and type, which are orthogonalized together.
struct Batch {
  Shape matrix;
  DType dtype = DType::f32;  // of the parameters
  std::int64_t count = 0;
  Tensor directions;  // [count, rows, columns]
};

/// The batches of one step.
class Batches {
 public:
  /// Counts a matrix. Returns its batch and its number there.
  std::pair<std::size_t, std::int64_t> add(const Variable& parameter) {
    const Shape matrix = matrix_shape(parameter);
    const auto found = std::ranges::find_if(batches_, [&](const Batch& batch) {
      return batch.matrix == matrix && batch.dtype == parameter.dtype();
    });
    if (found == batches_.end()) {
      batches_.push_back({.matrix = matrix, .dtype = parameter.dtype(), .count = 1, .directions = {}});
      return {batches_.size() - 1, 0};
    }
    return {static_cast<std::size_t>(found - batches_.begin()), found->count++};
  }
  /// Allocates the directions.
  void allocate(const DeviceContext& device) {
    for (Batch& batch : batches_) {
      const DType type =
          on(device.stream(), [&](auto& s) { return kernels::muon_direction_type(s, batch.dtype); });
      batch.directions = Tensor::empty({batch.count, batch.matrix[0], batch.matrix[1]}, type, device);
    }
  }
  const std::vector<Batch>& all() const { return batches_; }

  /// Orthogonalizes all directions: the largest batch on the compute stream, the others on the side stream. The GEMMs of
  /// one batch are too small to fill a GPU, and each waits for the previous one.
  void orthogonalize(int steps) const {
    const Batch& largest =
        *std::ranges::max_element(batches_, {}, [](const Batch& batch) { return batch.directions.numel(); });
    for (const Batch& batch : batches_)
      if (&batch != &largest)
        batch.directions.context().enqueue_on_side_stream(newton_schulz_work(batch.directions, steps));
    newton_schulz(largest.directions, steps);
    largest.directions.context().join_side_stream();
  }

 private:
  std::vector<Batch> batches_;
};

}  // namespace

MuonGroups muon_groups(const std::vector<ParameterGroup>& groups, const MuonGroupOptions& options) {
  for (const double scale : {options.sgd_lr_scale, options.bias_lr_scale})
    check(std::isfinite(scale) && scale > 0, "muon: scale {} of a learning rate of SGD, expected more than 0",
          scale);
  const auto may_be_matrix = [](const nn::NamedParameter& parameter) {
    return (parameter.kind == nn::ParameterKind::filter || parameter.kind == nn::ParameterKind::weight) &&
           parameter.variable.shape().rank() >= 2;
  };
  std::string head;
  if (!options.head)
    for (const ParameterGroup& group : groups)
      for (const nn::NamedParameter& parameter : group.parameters)
        if (may_be_matrix(parameter) && parameter.kind == nn::ParameterKind::weight) head = parameter.name;
  const auto is_matrix = [&](const nn::NamedParameter& parameter) {
    return may_be_matrix(parameter) && parameter.name != head;
  };
  MuonGroups divided;
  for (const ParameterGroup& group : groups) {
    const auto add = [&](std::vector<ParameterGroup>& to, double scale, auto belongs) {
      ParameterGroup part = group;
      std::erase_if(part.parameters, [&](const auto& parameter) { return !belongs(parameter); });
      part.lr_scale *= scale;
      part.weight_decay /= scale;
      if (!part.parameters.empty()) to.push_back(std::move(part));
    };
    const auto is_bias = [](const nn::NamedParameter& p) { return p.variable.shape().rank() < 2; };
    add(divided.matrices, 1, is_matrix);
    add(divided.others, options.sgd_lr_scale, [&](const auto& p) { return !is_matrix(p) && !is_bias(p); });
    add(divided.others, options.sgd_lr_scale * options.bias_lr_scale, is_bias);
  }
  return divided;
}

Muon::Muon(MuonGroups groups, MuonSettings settings)
    : Optimizer(joined(groups)), settings_(settings), matrix_groups_(groups.matrices.size()) {
  check(settings.momentum >= 0 && settings.momentum < 1, "muon: momentum {}, expected at least 0 and below 1",
        settings.momentum);
  check(!settings.nesterov || settings.momentum > 0, "muon: nesterov needs a momentum above 0");
  check(settings.sgd_momentum >= 0 && settings.sgd_momentum < 1,
        "muon: momentum of SGD {}, expected at least 0 and below 1", settings.sgd_momentum);
  check(settings.ns_steps >= 1 && settings.ns_steps < 100,
        "muon: {} Newton-Schulz iterations, expected 1 to 99", settings.ns_steps);
  std::size_t matrices = 0;
  for (const ParameterGroup& group : groups.matrices) {
    check(!settings.normalize || group.weight_decay == 0,
          "muon: weight decay {} of a group of matrices has no effect with normalize; expected 0",
          group.weight_decay);
    for (const nn::NamedParameter& parameter : group.parameters) {
      const Shape& shape = parameter.variable.shape();
      check(shape.rank() >= 2 && shape.numel() > 0,
            "muon: {} has the shape {}, expected a matrix: at least two axes, and at least one element",
            parameter.name, shape.text());
      ++matrices;
    }
  }
  check(matrices > 0, "muon: found no matrix, expected a filter or a weight other than the head");
  momentum_ = add_state("momentum", settings.sgd_momentum == 0 ? matrix_groups_ : groups_.size());
}

void Muon::step_groups(const Indices& indices, const kernels::StepScalars& scalars) {
  step_matrices(indices, scalars);
  step_by_sgd(matrix_groups_, indices, momentum_,
              {.momentum = settings_.sgd_momentum, .nesterov = settings_.sgd_momentum > 0}, scalars);
}

void Muon::step_matrices(const Indices& indices, const kernels::StepScalars& scalars) const {
  Batches batches;
  std::vector<std::pair<std::size_t, std::int64_t>> places;  // of all matrices with new gradients
  for (std::size_t g = 0; g < matrix_groups_; ++g)
    for (const std::size_t i : indices[g]) places.push_back(batches.add(groups_[g].parameters[i].variable));
  if (places.empty()) return;
  batches.allocate(context());

  std::vector<kernels::MuonGroup> groups;
  std::size_t next = 0;
  for (std::size_t g = 0; g < matrix_groups_; ++g) {
    kernels::MuonGroup& group = groups.emplace_back();
    group.options = {.rate = groups_[g].rate,
                     .lr_scale = groups_[g].lr_scale,
                     .momentum = settings_.momentum,
                     .weight_decay = groups_[g].weight_decay,
                     .nesterov = settings_.nesterov,
                     .normalize = settings_.normalize};
    for (const std::size_t i : indices[g]) {
      const nn::NamedParameter& parameter = groups_[g].parameters[i];
      const auto [b, number] = places[next++];
      const Batch& batch = batches.all()[b];
      group.slots.push_back({.parameter = parameter.variable.value().view(),
                             .gradient = parameter.variable.grad().view(),
                             .momentum = state_view(parameter, momentum_[g][i]),
                             .direction = batch.directions.rows(number, number + 1).view(),
                             .low_precision_copy = low_precision_copy_of(parameter),
                             .scale = scale_of(settings_.scale, batch.matrix)});
    }
  }
  const Tensor keep = Tensor::empty({static_cast<std::int64_t>(places.size())}, DType::f64, context());
  on(context().stream(), [&](auto& s) { kernels::muon_direction(s, groups, scalars, keep.view()); });
  batches.orthogonalize(settings_.ns_steps);
  on(context().stream(), [&](auto& s) { kernels::muon_update(s, groups, scalars, keep.view()); });
}

std::function<void(const Stream&)> newton_schulz_work(const Tensor& x, int steps) {
  // The coefficients have a steep slope at 0, which makes small singular values grow fast. The iteration does not
  // converge to 1, but to an interval around it.
  constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
  check(x.shape().rank() == 3, "newton_schulz: found the shape {}, expected [batch, rows, columns]",
        x.shape().text());
  const std::int64_t rows = x.size(1), columns = x.size(2);
  if (x.numel() == 0) return [](const Stream&) {};
  const bool is_tall = rows > columns;
  const std::int64_t side = std::min(rows, columns);
  const Tensor square = Tensor::empty({x.size(0), side, side}, x.dtype(), x.context());  // A
  const Tensor polynomial = Tensor::empty_like(square);                                  // b A + c A^2
  const Tensor other = Tensor::empty_like(x);
  return [=](const Stream& stream) {
    // Each step computes X from one tensor to the other one.
    Tensor from = x, to = other;
    on(stream, [&](auto& s) {
      for (int step = 0; step < steps; ++step) {
        kernels::matmul(s, from.view(), from.view(), GradView(square.view()),
                        {.transpose_a = is_tall, .transpose_b = !is_tall});
        kernels::matmul_add(s, kC, square.view(), square.view(), kB, square.view(), polynomial.view());
        if (is_tall)
          kernels::matmul_add(s, 1, from.view(), polynomial.view(), kA, from.view(), to.view());
        else
          kernels::matmul_add(s, 1, polynomial.view(), from.view(), kA, from.view(), to.view());
        std::swap(from, to);
      }
      if (steps % 2 != 0) kernels::scale(s, from.view(), 1, GradView(x.view()));
    });
  };
}

void newton_schulz(const Tensor& x, int steps) { newton_schulz_work(x, steps)(x.stream()); }

}  // namespace convoy::optim
