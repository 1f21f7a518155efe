#include "convoy/apps/cluster/doctor/collectives.h"

#include <fmt/ranges.h>

#include <chrono>
#include <numeric>
#include <vector>

#include "convoy/engine/tensor/tensor.h"

namespace convoy::doctor {
namespace {

constexpr int kRepeats = 5;

/// Returns the summand of a rank for element i. It is small enough for exact sums in f32.
float contribution(int rank, std::int64_t i) { return static_cast<float>((rank + 1) * (i % 7 + 1)); }

void gather_ranks(dist::Communicator& comm, const DeviceContext& device, CollectiveFacts& facts) {
  const Tensor local = Tensor::from(std::vector{static_cast<float>(comm.rank())}, {1}, device);
  const Tensor all = Tensor::full({comm.size()}, -1, DType::f32, device);
  device.synchronize();
  comm.all_gather(local.view(), all.view());
  comm.barrier();
  facts.gathered = fmt::format("[{}]", fmt::join(all.to_vector<float>(), " "));
}

/// Returns the number of wrong sums of an all-reduce.
std::int64_t count_wrong_sums(dist::Communicator& comm, const DeviceContext& device, std::int64_t elements) {
  std::vector<float> values(static_cast<std::size_t>(elements)), expected(values.size());
  for (std::int64_t i = 0; i < elements; ++i) {
    values[static_cast<std::size_t>(i)] = contribution(comm.rank(), i);
    for (int rank = 0; rank < comm.size(); ++rank)
      expected[static_cast<std::size_t>(i)] += contribution(rank, i);
  }
  const Tensor data = Tensor::from(values, {elements}, device);
  device.synchronize();
  comm.all_reduce(data.view());
  comm.barrier();
  const std::vector<float> sums = data.to_vector<float>();
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < sums.size(); ++i) wrong += sums[i] != expected[i] ? 1 : 0;
  return wrong;
}

/// Returns the mean time of an all-reduce.
double time_all_reduce(dist::Communicator& comm, const DeviceContext& device, std::int64_t elements) {
  const Tensor data = Tensor::zeros({elements}, DType::f32, device);
  device.synchronize();
  comm.barrier();  // all ranks start at the same time
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kRepeats; ++i) comm.all_reduce(data.view());
  comm.barrier();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / kRepeats;
}

}  // namespace

CollectiveFacts try_collectives(dist::Communicator& comm, const DeviceContext& device,
                                std::int64_t elements) {
  CollectiveFacts facts{.rank = comm.rank(), .name = comm.name()};
  facts.bytes = elements * static_cast<std::int64_t>(sizeof(float));
  try {
    gather_ranks(comm, device, facts);
    facts.wrong = count_wrong_sums(comm, device, elements);
    facts.seconds = time_all_reduce(comm, device, elements);
    comm.finish();
  } catch (const std::exception& error) {
    facts.error = error.what();
    comm.abort(fmt::format("rank {}: {}", comm.rank(), error.what()));
  }
  return facts;
}

double algorithm_bandwidth(const CollectiveFacts& facts) {
  return facts.seconds > 0 ? static_cast<double>(facts.bytes) / facts.seconds : 0;
}

double bus_bandwidth(const CollectiveFacts& facts, int world_size) {
  return algorithm_bandwidth(facts) * 2 * (world_size - 1) / world_size;
}

std::string expected_gather(int world_size) {
  std::vector<int> ranks(static_cast<std::size_t>(world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return fmt::format("[{}]", fmt::join(ranks, " "));
}

}  // namespace convoy::doctor
