// The checks of convoy-doctor on planted faults, and on facts without faults.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "convoy/apps/cluster/doctor/doctor.h"
#include "tests/testing/support/fake_communicator.h"

namespace convoy::testing {
namespace {

using doctor::Examination;
using doctor::Findings;
using doctor::Grade;
using doctor::LinkFacts;
using doctor::RankFacts;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

/// Returns the facts of two hosts with two ranks each and no problems; with `has_gpus`, each rank has a GPU.
Examination healthy_job(bool has_gpus = false) {
  Examination all;
  for (int rank = 0; rank < 4; ++rank) {
    RankFacts facts;
    facts.rank = rank;
    facts.world_size = 4;
    facts.local_rank = rank % 2;
    facts.node = rank / 2;
    facts.host = facts.host_name = rank < 2 ? "alpha" : "beta";
    facts.machine = "boot ID of " + facts.host;
    facts.met_by = "environment";
    facts.source = "RANK and WORLD_SIZE, tcp://10.0.0.1:29500";
    facts.parent = "bash";
    facts.version = "1.0.0";
    facts.program = "0123456789abcdef";
    facts.libraries = {"oneDNN 2.6.3", "Open MPI v4.1.4", "NCCL 2.28.9"};
    facts.variables = {{"RANK", std::to_string(rank)},
                       {"WORLD_SIZE", "4"},
                       {"MASTER_ADDR", "10.0.0.1"},
                       {"CONVOY_SECRET", "set"}};
    facts.clock = 1000 + 0.01 * rank;
    facts.cpu = {.processor = "CPU",
                 .machine_cores = 8,
                 .cores = {0, 1, 2, 3, 4, 5, 6, 7},
                 .memory_bytes = 16 * kGiB,
                 .memory_available = 15 * kGiB};
    facts.limits = {.open_files = 1024, .locked_bytes = 1 << 20, .shm_bytes = 8 * kGiB, .shm_free = 8 * kGiB};
    facts.interface_names = {"lo", "eth0", "docker0"};
    facts.interfaces = {
        {.name = "eth0", .address = rank < 2 ? "10.0.0.1" : "10.0.0.2", .network = "10.0.0.0/24"}};
    if (has_gpus)
      facts.gpu = {.is_built_in = true,
                   .needs = "13.0",
                   .supports = "13.0",
                   .installed = 2,
                   .names = {"H100, sm_90", "H100, sm_90"},
                   .uuids = {"GPU-" + facts.host + "0", "GPU-" + facts.host + "1"},
                   .index = rank % 2,
                   .bytes = 80 * kGiB,
                   .free_bytes = 79 * kGiB};
    all.ranks.push_back(facts);
    all.collectives.push_back({.rank = rank,
                               .host = facts.host,
                               .name = "tcp",
                               .gathered = "[0 1 2 3]",
                               .bytes = 4 << 20,
                               .seconds = 0.004});
  }
  for (int from = 0; from < 2; ++from)
    all.links.push_back({.from = from,
                         .to = 1 - from,
                         .from_host = from == 0 ? "alpha" : "beta",
                         .to_host = from == 0 ? "beta" : "alpha",
                         .interface = "eth0",
                         .address = from == 0 ? "10.0.0.2" : "10.0.0.1",
                         .network = "10.0.0.0/24"});
  return all;
}

/// Expects exactly one finding, whose texts contain `text` and `fix`.
void expect_one(const Examination& all, Grade grade, const std::string& text, const std::string& fix) {
  const Findings findings = check_all(all);
  SCOPED_TRACE(format_findings(findings));
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].grade, grade);
  EXPECT_THAT(findings[0].found, HasSubstr(text));
  EXPECT_THAT(findings[0].fix, HasSubstr(fix));
  EXPECT_FALSE(findings[0].expected.empty());
}

TEST(DoctorChecks, FindNoProblemsInAHealthyJob) {
  EXPECT_THAT(check_all(healthy_job()), IsEmpty());
  EXPECT_THAT(check_all(healthy_job(true)), IsEmpty());
  EXPECT_EQ(doctor::verdict({}), ExitCode::ok);
  EXPECT_THAT(doctor::format_findings({}), HasSubstr("no problems"));
}

/// A job of one host with 4 GPUs of this name, whose all-reduce of 16 MiB takes `seconds`.
Examination job_with_nccl(const std::string& gpu, double seconds) {
  Examination all = healthy_job(true);
  all.links.clear();
  for (RankFacts& rank : all.ranks) {
    rank.node = 0;
    rank.host = all.ranks[0].host;
    rank.machine = all.ranks[0].machine;
    rank.local_rank = rank.rank;
    rank.host_name = all.ranks[0].host_name;
    rank.interfaces = all.ranks[0].interfaces;
    rank.gpu.installed = 4;
    rank.gpu.index = rank.rank;
    rank.gpu.names.assign(4, gpu);
    rank.gpu.uuids = {"GPU-0", "GPU-1", "GPU-2", "GPU-3"};
    all.collectives.push_back({.rank = rank.rank,
                               .host = rank.host,
                               .name = "nccl",
                               .gathered = "[0 1 2 3]",
                               .bytes = 16 << 20,
                               .seconds = seconds});
  }
  return all;
}

// 16 MiB on 4 ranks: 1.5 x 16.8 MB / s of bus bandwidth.
TEST(DoctorChecks, FindLowBusBandwidthForTheTopology) {
  EXPECT_THAT(check_all(job_with_nccl("NVIDIA H200, sm_90", 0.0002)), IsEmpty());  // 126 GB/s
  expect_one(job_with_nccl("NVIDIA H200, sm_90", 0.002), Grade::warning,
             "NCCL's all-reduce has a bus bandwidth of 12.6 GB/s", "nvidia-smi topo -m");
  EXPECT_THAT(check_all(job_with_nccl("NVIDIA H100 PCIe, sm_90", 0.002)), IsEmpty());
  expect_one(job_with_nccl("NVIDIA H100 PCIe, sm_90", 0.01), Grade::warning, "2.5 GB/s",
             "P2P may be disabled");
  EXPECT_THAT(check_all(job_with_nccl("Emulated GPU, sm_90", 1)), IsEmpty()) << "nothing is known of it";
  Examination shared = job_with_nccl("NVIDIA H200, sm_90", 1);
  shared.allow_shared_gpu = true;
  EXPECT_THAT(check_all(shared), IsEmpty());
}

TEST(DoctorChecks, FactsRoundTripThroughJson) {
  const RankFacts facts = healthy_job(true).ranks[3];
  const nlohmann::json json = facts;
  EXPECT_EQ(nlohmann::json(nlohmann::json::parse(json.dump()).get<RankFacts>()), json);
  EXPECT_EQ(json["gpu"]["uuids"][1], "GPU-beta1");
}

TEST(DoctorChecks, FindASingleRankOfALauncherWithSeveral) {
  Examination all = healthy_job();
  all.ranks.resize(1);
  all.links.clear();
  all.collectives.clear();
  all.ranks[0].world_size = 1;
  all.ranks[0].variables = {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_SIZE", "4"}};
  expect_one(all, Grade::error, "OMPI_COMM_WORLD_SIZE is 4", "unset RANK WORLD_SIZE");
  all.ranks[0].variables.clear();
  EXPECT_THAT(check_all(all), IsEmpty());
  all.ranks[0].parent = "hydra_pmi_proxy";
  expect_one(all, Grade::error, "without a rank or a world size", "mpirun of Open MPI v4.1.4");
  EXPECT_EQ(verdict(check_all(all)), ExitCode::peer);
}

TEST(DoctorChecks, FindContradictingWorldSizes) {
  Examination all = healthy_job();
  all.ranks[0].variables["OMPI_COMM_WORLD_SIZE"] = "2";
  expect_one(all, Grade::warning, "the world size is 4", "unset RANK WORLD_SIZE");
}

TEST(DoctorChecks, FindARendezvousWithoutASecret) {
  Examination all = healthy_job();
  all.ranks[0].variables.erase("CONVOY_SECRET");
  expect_one(all, Grade::warning, "at tcp://10.0.0.1:29500 without CONVOY_SECRET",
             "export CONVOY_SECRET=$(openssl rand -hex 16)");
  all.ranks[0].source =
      "SLURM_*, tcp://gpu01:15376 (port 20000, because another program uses 15376); PMI_* too";
  expect_one(all, Grade::warning, "at tcp://gpu01:15376 without", "or use convoy-launch");
  for (const char* source :
       {"RANK and WORLD_SIZE, tcp://127.0.0.1:29500; PMI_* too", "RANK and WORLD_SIZE, tcp://[::1]:29500",
        "RANK and WORLD_SIZE, tcp://localhost:1", "OMPI_COMM_WORLD_*, MPI",
        "RANK and WORLD_SIZE, file:///tmp/a"}) {
    all.ranks[0].source = source;
    EXPECT_THAT(check_all(all), IsEmpty()) << source;
  }
}

TEST(DoctorChecks, DoNotCollectTheSecret) {
  const RankFacts facts = doctor::examine_host({{"CONVOY_SECRET", "0123456789abcdef"}});
  EXPECT_EQ(facts.variables.at("CONVOY_SECRET"), "set");
  EXPECT_THAT(nlohmann::json(facts).dump(), ::testing::Not(HasSubstr("0123456789abcdef")));
}

TEST(DoctorChecks, FindDifferentVersions) {
  Examination all = healthy_job();
  all.ranks[2].version = "0.9.0";
  expect_one(all, Grade::error, "rank 2 on beta runs convoy 0.9.0, rank 0 runs 1.0.0",
             "install convoy 1.0.0 on beta");
  all = healthy_job();
  all.ranks[1].program = "fedcba9876543210";
  expect_one(all, Grade::warning, "rank 1 on alpha runs a different executable", "copy the programs");
  all = healthy_job();
  all.ranks[3].libraries[2] = "NCCL 2.19.3";
  expect_one(all, Grade::error, "rank 3 on beta has NCCL 2.19.3, rank 0 has NCCL 2.28.9",
             "install NCCL 2.28.9 on beta");
  all = healthy_job();
  all.ranks[3].libraries[0] = "oneDNN 3.1.0";
  expect_one(all, Grade::warning, "oneDNN 3.1.0", "install oneDNN 2.6.3");
}

TEST(DoctorChecks, FindEqualHostNamesAndDifferentClocks) {
  Examination all = healthy_job();
  all.ranks[2].host_name = all.ranks[3].host_name = "alpha";
  expect_one(all, Grade::warning, "hosts 0 and 1 are both called alpha", "hostnamectl");
  all = healthy_job();
  all.ranks[2].clock -= 70;
  expect_one(all, Grade::warning, "the clock of beta is 70.0 s behind that of alpha", "set-ntp true on beta");
}

TEST(DoctorChecks, FindTooFewCores) {
  Examination all = healthy_job();
  all.ranks[0].cpu.machine_cores = all.ranks[1].cpu.machine_cores = 1;
  all.ranks[0].cpu.cores = all.ranks[1].cpu.cores = {0};
  expect_one(all, Grade::warning, "2 ranks on alpha, which has 1 cores", "mpirun --host alpha:1");
  all = healthy_job();
  all.ranks[2].cpu.cores = all.ranks[3].cpu.cores = {5};
  expect_one(all, Grade::warning, "ranks 2, 3 on beta may run only on core 5 of 8", "taskset");
  all.ranks[2].met_by = all.ranks[3].met_by = "mpi";
  expect_one(all, Grade::warning, "only on core 5", "mpirun --bind-to none, or --map-by slot:PE=4");
  all = healthy_job();
  all.ranks[0].cpu.quota = all.ranks[1].cpu.quota = 2.5;
  expect_one(all, Grade::warning, "sees 8 cores but has a CPU quota of 2.5 cores", "--threads 1");
}

TEST(DoctorChecks, FindLowLimits) {
  Examination all = healthy_job();
  all.ranks[2].limits.open_files = 91;
  expect_one(all, Grade::warning, "ranks on beta may open 91 files", "ulimit -n 4096");
  all = healthy_job();
  all.ranks[0].limits.has_rdma = true;
  expect_one(all, Grade::warning, "may lock 1.00 MiB", "ulimit -l unlimited");
  all.ranks[0].limits.locked_bytes = std::numeric_limits<std::uint64_t>::max();
  EXPECT_THAT(check_all(all), IsEmpty());
  all.ranks[0].cpu.memory_available = kGiB / 2;
  expect_one(all, Grade::warning, "alpha has 512.00 MiB of 16.00 GiB", "fewer ranks");
}

TEST(DoctorChecks, FindLittleSharedMemoryOnlyIfItIsUsed) {
  Examination all = healthy_job();
  all.ranks[0].limits.shm_free = 1 << 20;
  EXPECT_THAT(check_all(all), IsEmpty()) << "ranks on the CPU without MPI do not use it";
  all.ranks[0].met_by = "mpi";
  expect_one(all, Grade::warning, "/dev/shm of alpha has 1.00 MiB free", "--shm-size");
  all = healthy_job(true);
  all.ranks[2].limits.shm_free = 64 << 20;
  expect_one(all, Grade::warning, "/dev/shm of beta has 64.00 MiB free", "emptyDir");
}

TEST(DoctorChecks, FindSharedAndUnequalGpus) {
  Examination all = healthy_job(true);
  all.ranks[1].gpu.index = 0;
  expect_one(all, Grade::error, "ranks 0, 1 on alpha share 1 GPU", "mpirun --host alpha:1");
  EXPECT_EQ(verdict(check_all(all)), ExitCode::device);
  all.allow_shared_gpu = true;
  EXPECT_THAT(check_all(all), IsEmpty());
  all = healthy_job(true);
  all.ranks[3].gpu.free_bytes = 10 * kGiB;
  expect_one(all, Grade::warning, "GPU 1 has 10.00 GiB of 80.00 GiB", "nvidia-smi");
  all = healthy_job(true);
  all.ranks[3].gpu.names = {"H100, sm_90", "A100, sm_80"};
  expect_one(all, Grade::warning, "GPUs of 2 models: A100, sm_80, H100, sm_90", "same model");
  all = healthy_job(true);
  all.ranks[0].variables["CUDA_VISIBLE_DEVICES"] = "0,x";
  expect_one(all, Grade::warning, "CUDA_VISIBLE_DEVICES has 'x'", "CUDA_VISIBLE_DEVICES=0,1");
}

TEST(DoctorChecks, FindUnusableGpus) {
  const auto hide = [](Examination all, const std::string& reason, int installed) {
    for (RankFacts& rank : all.ranks)
      rank.gpu = {
          .is_built_in = true, .needs = "13.0", .supports = "12.4", .reason = reason, .installed = installed};
    return all;
  };
  EXPECT_THAT(check_all(hide(healthy_job(), "no NVIDIA driver", 0)), IsEmpty()) << "a machine without GPUs";
  Examination all = hide(healthy_job(), "the NVIDIA driver is too old: it supports CUDA 12.4", 2);
  ASSERT_THAT(check_all(all), SizeIs(4)) << "one for each rank";
  EXPECT_THAT(check_all(all)[0].found, HasSubstr("rank 0 on alpha: the NVIDIA driver is too old"));
  EXPECT_THAT(check_all(all)[0].fix, HasSubstr("driver for CUDA 13.0"));
  all.device = "cpu";
  EXPECT_THAT(check_all(all), IsEmpty());
  all = hide(healthy_job(), "no NVIDIA driver", 0);
  all.device = "cuda";
  EXPECT_EQ(verdict(check_all(all)), ExitCode::device);
  for (RankFacts& rank : all.ranks) rank.gpu.supports = "";
  EXPECT_THAT(check_all(all)[0].fix, HasSubstr("install the NVIDIA driver"));

  all = healthy_job(true);
  all.ranks[1].gpu = {.is_built_in = true, .reason = "no GPU is visible", .installed = 2};
  all.ranks[1].variables["CUDA_VISIBLE_DEVICES"] = "-1";
  const Findings mixed = check_all(all);
  ASSERT_THAT(mixed, SizeIs(2));
  EXPECT_THAT(mixed[0].found, HasSubstr("CUDA_VISIBLE_DEVICES has '-1'"));
  EXPECT_THAT(mixed[0].fix, HasSubstr("unset CUDA_VISIBLE_DEVICES"));
  EXPECT_THAT(mixed[1].found, HasSubstr("ranks 0, 2, 3 would compute on GPUs, and rank 1 on the CPU"));

  all = hide(healthy_job(), "this build has no CUDA", 1);
  for (RankFacts& rank : all.ranks) rank.gpu.is_built_in = false;
  EXPECT_EQ(check_all(all)[0].grade, Grade::warning);
  EXPECT_THAT(check_all(all)[0].fix, HasSubstr("--preset cuda"));
}

TEST(DoctorChecks, ParseVisibleDevices) {
  EXPECT_EQ(doctor::visible_devices_problem("0,1", 2), "");
  EXPECT_EQ(doctor::visible_devices_problem("GPU-1f3a,MIG-2b", 2), "");
  EXPECT_THAT(doctor::visible_devices_problem("", 2), HasSubstr("is empty"));
  EXPECT_THAT(doctor::visible_devices_problem("0,2", 2), HasSubstr("has 2, but the GPUs are 0 to 1"));
  EXPECT_THAT(doctor::visible_devices_problem("0, 1", 2), HasSubstr("has ' 1'"));
  EXPECT_THAT(doctor::visible_devices_problem("all", 2), HasSubstr("has 'all'"));
}

TEST(DoctorChecks, FindUnreachableInterfaces) {
  Examination all = healthy_job();
  LinkFacts link = all.links[0];
  link.interface = "docker0";
  link.address = "172.17.0.1";
  link.network = "172.17.0.0/16";
  link.error = "another process replied";
  all.links.push_back(link);
  expect_one(all, Grade::warning, "alpha cannot reach beta through its interface docker0 (172.17.0.1)",
             "NCCL_SOCKET_IFNAME=eth0; mpirun --mca btl_tcp_if_include 10.0.0.0/24");
  all = healthy_job();
  all.links[1].error = "No route to host";
  expect_one(all, Grade::error, "beta cannot reach alpha at any of its addresses", "ping alpha");
}

TEST(DoctorChecks, FindMissingInterfaces) {
  Examination all = healthy_job(true);
  all.ranks[2].variables["NCCL_SOCKET_IFNAME"] = "=eth";
  expect_one(all, Grade::error, "NCCL_SOCKET_IFNAME==eth names no interface of beta",
             "unset NCCL_SOCKET_IFNAME");
  for (const char* good : {"eth", "=eth0", "^docker", "ib,eth"}) {
    all.ranks[2].variables["NCCL_SOCKET_IFNAME"] = good;
    EXPECT_THAT(check_all(all), IsEmpty()) << good;
  }
  all = healthy_job();
  all.ranks[0].variables["CONVOY_INTERFACE"] = "eth";
  expect_one(all, Grade::error, "CONVOY_INTERFACE=eth names no interface of alpha", "unset CONVOY_INTERFACE");
}

TEST(DoctorChecks, FindALoopbackMasterAddress) {
  Examination all = healthy_job();
  all.ranks[2].variables["MASTER_ADDR"] = "localhost";
  expect_one(all, Grade::warning,
             "MASTER_ADDR=localhost on beta is a loopback address, but there are 2 hosts",
             "export MASTER_ADDR");
}

TEST(DoctorChecks, ExplainAFailedRendezvous) {
  RankFacts facts = healthy_job().ranks[0];
  EXPECT_THAT(check_failed_rendezvous(facts), IsEmpty());
  facts.variables["MASTER_ADDR"] = "10.9.9.9";
  ASSERT_THAT(check_failed_rendezvous(facts), SizeIs(1));
  EXPECT_THAT(check_failed_rendezvous(facts)[0].fix, HasSubstr("MASTER_ADDR=10.0.0.1"));
  facts.rank = 1;
  EXPECT_THAT(check_failed_rendezvous(facts), IsEmpty()) << "only rank 0 can check its own address";
  facts.variables["MASTER_ADDR"] = "127.0.0.1";
  ASSERT_THAT(check_failed_rendezvous(facts), SizeIs(1));
  EXPECT_THAT(check_failed_rendezvous(facts)[0].found, HasSubstr("a loopback address"));
}

TEST(DoctorChecks, FindFailedCollectives) {
  Examination all = healthy_job();
  all.collectives[2].gathered = "[0 1 0 3]";
  expect_one(all, Grade::error, "rank 2 on beta gathered [0 1 0 3] with tcp", "another --comm");
  EXPECT_EQ(verdict(check_all(all)), ExitCode::peer);
  all = healthy_job();
  all.collectives[1].wrong = 7;
  all.collectives[1].name = "nccl";
  expect_one(all, Grade::error, "rank 1 on alpha received 7 wrong sums with nccl", "NCCL_P2P_DISABLE=1");
  EXPECT_THAT(doctor::format_exchanges(all),
              HasSubstr("tcp: all-reduce of 4.00 MiB in 4.000 ms: algbw 1.05 GB/s"));
  all = healthy_job();
  for (auto& facts : all.collectives)
    facts.error = "rank 1: shared memory: /proc/7/fd/3: No such file or directory";
  expect_one(all, Grade::error, "ranks 0, 1, 2, 3 could not exchange data", "PID namespace");
}

TEST(DoctorCollectives, AcceptCorrectResults) {
  FakeCommunicator comm;  // one rank: the sums are its own values
  const auto facts = doctor::try_collectives(comm, DeviceContext::create_cpu({.threads = 1}), 1000);
  EXPECT_EQ(facts.error, "");
  EXPECT_EQ(facts.gathered, "[0]");
  EXPECT_EQ(facts.wrong, 0);
  EXPECT_EQ(facts.bytes, 4000);
  EXPECT_GT(facts.seconds, 0);
}

TEST(DoctorCollectives, CountWrongSums) {
  // The other rank contributes the expected values except for one element.
  FakeCommunicator comm(0, 2, [](const FakeCommunicator::Launch& launch, View data) {
    auto* const values = static_cast<float*>(data.data);
    if (launch.collective.op == dist::CollectiveOp::all_gather) values[1] = 1;
    if (launch.collective.op != dist::CollectiveOp::all_reduce) return;
    for (int i = 0; i < 100; ++i) values[i] *= i == 42 ? 2 : 3;
  });
  const auto facts = doctor::try_collectives(comm, DeviceContext::create_cpu({.threads = 1}), 100);
  EXPECT_EQ(facts.gathered, "[0 1]");
  EXPECT_EQ(facts.wrong, 1);
}

TEST(DoctorCollectives, AbortPeersOnFailure) {
  FakeCommunicator comm(0, 2,
                        [](const FakeCommunicator::Launch&, View) { throw PeerError("rank 1 has died"); });
  EXPECT_EQ(doctor::try_collectives(comm, DeviceContext::create_cpu({.threads = 1}), 100).error,
            "rank 1 has died");
  EXPECT_EQ(comm.abort_reason(), "rank 0: rank 1 has died");
}

TEST(DoctorHost, ParsesQuotasAndFormatsCores) {
  EXPECT_EQ(doctor::parse_cpu_quota("250000 100000"), 2.5);
  for (const char* none : {"max 100000", "-1 100000", "", " "})
    EXPECT_EQ(doctor::parse_cpu_quota(none), 0) << none;
  EXPECT_EQ(doctor::format_cores({0, 1, 2, 5, 8, 9}), "0-2,5,8-9");
  EXPECT_EQ(doctor::format_cores({}), "");
}

}  // namespace
}  // namespace convoy::testing
