// Data-parallel training on one page: minimal_cifar10.cpp on any number of ranks.
//   mpirun -n 2 minimal_cifar10_ranks [directory of CIFAR-10] [optimizer steps]
// Each rank is a process with a shard of every batch and a copy of the model, made from the same seed. The
// ranks sum their gradients before each step, so the copies stay equal. Without a launcher there is one rank.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>

#include "comm/bootstrap/rendezvous.h"
#include "comm/nccl/nccl_communicator.h"
#include "comm/parallel/broadcast.h"
#include "comm/parallel/gradient_synchronizer.h"
#include "comm/transport/hierarchical/hierarchical_communicator.h"
#include "comm/transport/self_communicator.h"
#include "datasets/formats/readers.h"
#include "datasets/loader/loader.h"
#include "engine/autograd/backward.h"
#include "engine/ops/ops.h"
#include "engine/optim/optimizer.h"
#include "engine/optim/schedule.h"
#include "models/models.h"

using namespace convoy;

namespace {
constexpr double kPeakRate = 0.2, kMomentum = 0.9, kWeightDecay = 5e-4, kLabelSmoothing = 0.1;

/// Returns this rank's own GPU if the host has enough of them, else the CPU with an equal share of its cores.
DeviceContext choose_device(const RankInfo& rank) {
  if (cuda_availability().count >= rank.local_world_size) return Device::cuda(rank.local_rank);
  return DeviceContext::create_cpu({.threads = std::max(1, available_cores() / rank.local_world_size)});
}

/// Connects the ranks: CPUs through shared memory and, between hosts, MPI or Gloo; GPUs through NCCL.
std::unique_ptr<Communicator> connect(Rendezvous& rendezvous, const DeviceContext& device) {
  const bool is_alone = rendezvous.info().world_size == 1;
  auto cpu = is_alone ? make_self_communicator() : make_hierarchical_communicator(rendezvous);
  return device.kind() == DeviceKind::cpu ? std::move(cpu) : make_nccl_communicator(std::move(cpu), device);
}

/// Returns the fraction of test images that are classified correctly. Every rank evaluates its shard of them.
double test_accuracy(const Model& model, Communicator& comm, const ImageSet& test, LoaderOptions options) {
  const NoGrad no_grad;
  broadcast_buffers(comm, model.root());  // each rank's running statistics come from its own samples
  options.shuffle = false;
  options.transform = options.transform.evaluation();
  DataLoader loader(test, options);
  double correct = 0;
  for (const Batch& batch : loader.epoch(0)) {
    if (batch.labels.size(0) == 0) continue;  // the last batch may have fewer samples than there are ranks
    const CrossEntropy result = cross_entropy(model(batch.images), batch.labels);
    for (const std::int32_t is_correct : result.correct.to_vector<std::int32_t>()) correct += is_correct;
  }
  const Tensor total = Tensor::full({1}, correct, DType::f32, *options.device);
  all_reduce_in_order(comm, total);
  return total.item() / static_cast<double>(test.size());
}

void train(const std::filesystem::path& directory, std::int64_t steps) {
  const std::unique_ptr<Rendezvous> rendezvous = Rendezvous::init();
  const RankInfo& rank = rendezvous->info();
  const bool prints = rank.rank == 0;
  const DeviceContext device = choose_device(rank);
  const std::unique_ptr<Communicator> comm = connect(*rendezvous, device);
  const bool has_files = std::filesystem::exists(directory);
  if (!has_files && prints) fmt::print("{} not found: training on generated images\n", directory.string());
  const DataSet data = has_files ? read_cifar10(directory) : generate_shapes();
  LoaderOptions options{.rank = rank.rank, .world_size = rank.world_size, .device = device};
  options.global_batch = 128;  // samples of all ranks together
  options.transform = make_transform("crop=4,flip", channel_statistics(data.train));
  DataLoader loader(data.train, options);
  if (steps == 0) steps = 5 * loader.steps_per_epoch();

  const Model model = models::resnet20({.input = data.image_shape(), .device = device});
  if (prints)
    fmt::print("{} parameters, world size {}, {}\n", model.parameter_count(), comm->size(), device.name());
  Sgd optimizer(decay_groups(model.parameters(), kWeightDecay), {.momentum = kMomentum, .nesterov = true});
  GradientSynchronizer gradients(model.parameters(), *comm);
  const Schedule rate = cosine({.peak = kPeakRate, .steps = steps, .warmup = steps / 5});

  for (std::int64_t step = 0, epoch = 0; step < steps; ++epoch) {
    for (const Batch& batch : loader.epoch(epoch)) {
      if (step == steps) break;
      Tensor shard_loss = Tensor::zeros({1}, DType::f32, device);
      if (batch.labels.size(0) > 0) {
        const Variable logits = model(batch.images, {.training = true});
        // The divisor is the sample count of all ranks: summed over the ranks, this is the mean loss.
        const Variable loss = cross_entropy_sum(logits, batch.labels, kLabelSmoothing) /
                              static_cast<double>(batch.global_count);
        backward(loss);  // starts the all-reduce of each bucket of gradients as soon as it is complete
        shard_loss = loss.value();
      }
      gradients.finish();  // makes the compute stream wait for the summed gradients
      optimizer.step(rate(step++));
      if (step > 1 && step % 50 != 0) continue;
      all_reduce_in_order(*comm, shard_loss);
      if (prints) fmt::print("step {}/{}  loss {:.4f}\n", step, steps, shard_loss.item());
    }
    const double accuracy = test_accuracy(model, *comm, data.test, options);
    if (prints) fmt::print("epoch {}: test accuracy {:.2f}%\n", epoch + 1, 100 * accuracy);
  }
  comm->finish();
}
}  // namespace

int main(int argc, char** argv) {
  try {
    train(argc > 1 ? argv[1] : "data/cifar10", argc > 2 ? std::atoll(argv[2]) : 0);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "minimal_cifar10_ranks: error: {}\n", error.what());
    return 1;
  }
}
