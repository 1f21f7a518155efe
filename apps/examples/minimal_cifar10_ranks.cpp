// Data-parallel training on one page: minimal_cifar10.cpp on any number of ranks.
//   mpirun -n 2 minimal_cifar10_ranks [directory of CIFAR-10] [optimizer steps]
// Each rank is a process with a shard of every batch and a copy of the model, made from the same seed. The
// ranks sum their gradients before each step, so the copies stay equal. Without a launcher there is one rank.
#include <convoy/convoy.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <string_view>

using namespace convoy;

namespace {
constexpr double kPeakRate = 0.2, kMomentum = 0.9, kWeightDecay = 5e-4, kLabelSmoothing = 0.1;

/// Returns this rank's own GPU if the host has enough of them, else the CPU with an equal share of its cores.
DeviceContext choose_device(const dist::RankInfo& rank) {
  if (cuda_availability().count >= rank.local_world_size) return Device::cuda(rank.local_rank);
  return DeviceContext::create_cpu({.threads = std::max(1, available_cores() / rank.local_world_size)});
}

/// Connects the ranks: CPUs through shared memory and, between hosts, MPI or TCP; GPUs through NCCL.
std::unique_ptr<dist::Communicator> connect(dist::Rendezvous& rendezvous, const DeviceContext& device) {
  const bool is_alone = rendezvous.info().world_size == 1;
  auto cpu = is_alone ? dist::make_self_communicator() : dist::make_hierarchical_communicator(rendezvous);
  return device.kind() == DeviceKind::cpu ? std::move(cpu)
                                          : dist::make_nccl_communicator(std::move(cpu), device);
}

/// Returns the fraction of test images that are classified correctly. Every rank evaluates its shard of them.
double test_accuracy(const models::Model& model, dist::Communicator& comm, const data::ImageSet& test,
                     data::LoaderOptions options) {
  const NoGrad no_grad;
  dist::broadcast_buffers(comm, model.root());  // each rank's running statistics come from its own samples
  options.shuffle = false;
  options.transform = options.transform.evaluation();
  data::DataLoader loader(test, options);
  double correct = 0;
  for (const data::Batch& batch : loader.epoch(0)) {
    if (batch.labels.size(0) == 0) continue;  // the last batch may have fewer samples than there are ranks
    const CrossEntropy result = cross_entropy(model(batch.images), batch.labels);
    for (const std::int32_t is_correct : result.correct.to_vector<std::int32_t>()) correct += is_correct;
  }
  const Tensor total = Tensor::full({1}, correct, DType::f32, *options.device);
  dist::all_reduce_in_order(comm, total);
  return total.item() / static_cast<double>(test.size());
}

void train(const std::filesystem::path& directory, std::int64_t steps) {
  const std::unique_ptr<dist::Rendezvous> rendezvous =
      dist::Rendezvous::init({.by_store = dist::rendezvous_by_store});
  const dist::RankInfo& rank = rendezvous->info();
  const bool prints = rank.rank == 0;
  const DeviceContext device = choose_device(rank);
  const std::unique_ptr<dist::Communicator> comm = connect(*rendezvous, device);
  const bool has_files = std::filesystem::exists(directory);
  if (!has_files && prints) fmt::print("{} not found: training on generated images\n", directory.string());
  const data::DataSet data = has_files ? data::read_cifar10(directory) : data::generate_shapes();
  data::LoaderOptions options{.rank = rank.rank, .world_size = rank.world_size, .device = device};
  options.global_batch = 128;  // samples of all ranks together
  options.transform = data::make_transform("crop=4,flip", data::channel_statistics(data.train));
  data::DataLoader loader(data.train, options);
  if (steps == 0) steps = 5 * loader.steps_per_epoch();

  const models::Model model = models::resnet20({.input = data.image_shape(), .device = device});
  if (prints)
    fmt::print("{} parameters, world size {}, {}\n", model.parameter_count(), comm->size(), device.name());
  optim::Sgd optimizer(optim::decay_groups(model.parameters(), kWeightDecay),
                       {.momentum = kMomentum, .nesterov = true});
  dist::GradientSynchronizer gradients(model.parameters(), *comm);
  const optim::Schedule rate = optim::cosine({.peak = kPeakRate, .steps = steps, .warmup = steps / 5});

  for (std::int64_t step = 0, epoch = 0; step < steps; ++epoch) {
    for (const data::Batch& batch : loader.epoch(epoch)) {
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
      dist::all_reduce_in_order(*comm, shard_loss);
      if (prints) fmt::print("step {}/{}  loss {:.4f}\n", step, steps, shard_loss.item());
    }
    const double accuracy = test_accuracy(model, *comm, data.test, options);
    if (prints) fmt::print("epoch {}: test accuracy {:.2f}%\n", epoch + 1, 100 * accuracy);
  }
  comm->finish();
}
}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && argv[1][0] == '-') {
    fmt::print("usage: minimal_cifar10_ranks [directory, default data/cifar10] [steps, default 5 epochs]\n");
    return std::string_view(argv[1]) == "--help" ? 0 : 2;
  }
  try {
    train(argc > 1 ? argv[1] : "data/cifar10", argc > 2 ? std::atoll(argv[2]) : 0);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "minimal_cifar10_ranks: error: {}\n", error.what());
    return 1;
  }
}
