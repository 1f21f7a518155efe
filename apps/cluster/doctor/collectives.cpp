// Test collectives with known results.
#include <fmt/ranges.h>

#include <chrono>
#include <map>
#include <ranges>
#include <utility>
#include <vector>

#include "convoy/apps/cluster/doctor/doctor.h"
#include "convoy/comm/core/collective.h"
#include "convoy/engine/tensor/tensor.h"
#include "convoy/kernels/base/check.h"

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

/// Returns the advice for a collective that failed.
std::string fix_for_failure(const CollectiveFacts& facts) {
  if (facts.error.find("PID namespace") != std::string::npos || facts.error.find("/fd/") != std::string::npos)
    return "ranks of one host share memory through /proc: start them as the same user in one PID namespace "
           "(docker run --pid=host; Kubernetes: shareProcessNamespace: true), or use --comm mpi or tcp";
  if (facts.name == "nccl")
    return "run NCCL_DEBUG=INFO convoy-doctor to see what NCCL tried, or use --device cpu";
  return "fix the other problems first; then try --comm-timeout 120 or another --comm";
}

/// Returns the advice for a collective with wrong results.
std::string fix_for_wrong_result(const CollectiveFacts& facts) {
  if (facts.name == "nccl")
    return "set NCCL_P2P_DISABLE=1; if that helps, disable ACS (PCIe access control) in the firmware";
  return "do not train with this backend: try another --comm, and test the memory and network of that host";
}

/// Compares NCCL's bandwidth within one host with what the GPUs' links allow, by the names of their boards.
void check_bus_bandwidth(const Examination& examination, const CollectiveFacts& nccl, Findings& findings) {
  constexpr std::pair<const char*, double> kMinimum[] = {{"PCIe", 6e9},   {"SXM", 60e9},   {"HBM3", 100e9},
                                                         {"H200", 100e9}, {"B200", 100e9}, {"B300", 100e9}};
  const GpuRankFacts& gpu = examination.ranks.front().gpu;
  if (gpu.index < 0 || examination.allow_shared_gpu || by_host(examination.ranks).size() > 1) return;
  const std::string& name = gpu.names[static_cast<std::size_t>(gpu.index)];
  const double found = bus_bandwidth(nccl, static_cast<int>(examination.ranks.size()));
  for (const auto& [part, minimum] : kMinimum)
    if (name.find(part) != std::string::npos && found < minimum)
      findings.push_back(
          {.found = fmt::format("NCCL's all-reduce has a bus bandwidth of {:.1f} GB/s", found / 1e9),
           .expected = fmt::format("at least {:.0f} GB/s between {}", minimum / 1e9, name),
           .fix = "look for NVLS, P2P and SHM in the output of NCCL_DEBUG=INFO convoy-doctor, and at "
                  "nvidia-smi topo -m; P2P may be disabled in the firmware (ACS, IOMMU)"});
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
  return fmt::format("[{}]", fmt::join(std::views::iota(0, world_size), " "));
}

Findings check_collectives(const Examination& examination) {
  Findings findings;
  std::map<std::string, std::pair<std::vector<int>, const CollectiveFacts*>> errors;  // by text
  const std::string expected = expected_gather(static_cast<int>(examination.ranks.size()));
  for (const CollectiveFacts& facts : examination.collectives) {
    if (!facts.error.empty()) {
      auto& [ranks, example] = errors[fmt::format("{}: {}", facts.name, facts.error)];
      ranks.push_back(facts.rank);
      example = &facts;
      continue;
    }
    const auto add = [&](const std::string& what, std::string expectation) {
      findings.push_back(
          {.grade = Grade::error,
           .found = fmt::format("rank {} on {} {} with {}", facts.rank, facts.host, what, facts.name),
           .expected = std::move(expectation),
           .fix = fix_for_wrong_result(facts)});
    };
    if (facts.gathered != expected) add("gathered " + facts.gathered, expected);
    if (facts.rank == 0 && facts.name == "nccl" && facts.seconds > 0)
      check_bus_bandwidth(examination, facts, findings);
    if (facts.wrong > 0)
      add(fmt::format("received {} wrong sums", facts.wrong),
          fmt::format("{} correct sums", facts.bytes / 4));
  }
  for (const auto& [text, who] : errors)
    findings.push_back(
        {.grade = Grade::error,
         .found = fmt::format("{} could not exchange data with {}", dist::format_ranks(who.first), text),
         .expected = "a successful all-gather and all-reduce",
         .fix = fix_for_failure(*who.second)});
  return findings;
}

}  // namespace convoy::doctor
