// Trains LeNet on generated images, on all ranks of mpirun or alone: one include, all libraries.
#include <convoy/convoy.h>

#include <cstdio>

using namespace convoy;

int main() {
  const auto rendezvous = dist::Rendezvous::init({.by_store = dist::rendezvous_by_store});
  const dist::RankInfo& rank = rendezvous->info();
  const auto comm = rank.world_size == 1 ? dist::make_self_communicator()
                                         : dist::make_hierarchical_communicator(*rendezvous);
  const DeviceContext device = Device::cpu();
  const data::DataSet data = data::generate_shapes({.train = 256, .test = 64});
  data::DataLoader loader(data.train,
                          {.global_batch = 32,
                           .rank = rank.rank,
                           .world_size = rank.world_size,
                           .transform = data::make_transform("none", data::channel_statistics(data.train)),
                           .device = device});
  const models::Model model = models::lenet({.input = data.image_shape(), .device = device});
  optim::Sgd optimizer(model.parameters(), {.momentum = 0.9});
  dist::GradientSynchronizer gradients(model.parameters(), *comm);

  double first = 0, last = 0;  // sums over the first and the last epoch
  constexpr int kEpochs = 20;
  for (int epoch = 0; epoch < kEpochs; ++epoch)
    for (const data::Batch& batch : loader.epoch(epoch)) {
      const Variable loss = cross_entropy_sum(model(batch.images, {.training = true}), batch.labels) /
                            static_cast<double>(batch.global_count);
      backward(loss);
      gradients.finish();
      optimizer.step(0.05);
      const Tensor sum = loss.value().clone();  // over the ranks: the mean of the global batch
      dist::all_reduce_in_order(*comm, sum);
      if (epoch == 0) first += sum.item();
      if (epoch == kEpochs - 1) last += sum.item();
    }
  if (rank.rank == 0)
    std::printf("Convoy %s, %d ranks: the loss fell to %.0f %%\n", kVersion, rank.world_size,
                100 * last / first);
  comm->finish();
  return last < 0.9 * first ? 0 : 1;
}
