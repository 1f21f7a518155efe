// Creates and destroys a thousand communicators of each kind: nothing may grow.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "convoy/comm/cluster/hierarchical/hierarchical_communicator.h"
#include "convoy/comm/cluster/tcp/tcp_communicator.h"
#include "convoy/comm/transport/shm/shm_communicator.h"
#include "convoy/kernels/base/error.h"
#include "tests/comm/device_values.h"
#include "tests/comm/process_size.h"
#include "tests/comm/rendezvous_ranks.h"

namespace convoy::testing {
namespace {

constexpr int kCommunicators = 1000;  // half of them are parts of others

using Make = std::function<std::unique_ptr<dist::Communicator>(dist::Rendezvous&)>;

void expect_no_growth_with(const Make& make) {
  run_rendezvous_ranks(3, "tcp://127.0.0.1:" + std::to_string(free_port()),
                       [&](dist::Rendezvous& rendezvous) {
                         rendezvous.all_gather("");
                         expect_no_growth(kCommunicators / 2, [&] {
                           const auto comm = make(rendezvous);
                           const auto part = comm->split(comm->rank() % 2);
                           DeviceValues<float> data(*comm, std::vector<float>(1000, 1.0F));
                           comm->all_reduce(data.view());
                           EXPECT_EQ(data.read(*comm)[999], 3.0F);
                           part->barrier();
                           part->finish();
                           comm->finish();
                         });
                       });
}

TEST(Communicators, OfSharedMemoryLeaveNothing) {
  expect_no_growth_with([](dist::Rendezvous& rendezvous) {
    return dist::make_shm_communicator(rendezvous.info().rank, rendezvous.info().world_size,
                                       [&](const std::string& text) { return rendezvous.all_gather(text); },
                                       {});
  });
}

TEST(Communicators, OfTcpLeaveNothing) {
  expect_no_growth_with([](dist::Rendezvous& rendezvous) { return dist::make_tcp_communicator(rendezvous); });
}

TEST(Communicators, OfSeveralHostsLeaveNothing) {
  expect_no_growth_with([](dist::Rendezvous& rendezvous) {
    const std::vector<int> hosts = {0, 0, 1};
    return dist::make_hierarchical_communicator(
        dist::make_tcp_links(rendezvous, {}), hosts,
        [&](const std::string& text) { return rendezvous.all_gather(text); });
  });
}

/// Communicators that are destroyed after a failure, without finish().
TEST(Communicators, ThatFailLeaveNothing) {
  expect_no_growth_with([](dist::Rendezvous& rendezvous) {
    for (const bool through_tcp : {false, true}) {
      const auto failing =
          through_tcp ? dist::make_tcp_communicator(rendezvous)
                      : dist::make_shm_communicator(
                            rendezvous.info().rank, rendezvous.info().world_size,
                            [&](const std::string& text) { return rendezvous.all_gather(text); }, {});
      if (failing->rank() == 0)
        failing->abort("a failure");
      else
        EXPECT_THROW(failing->barrier(), PeerError);
    }
    return dist::make_tcp_communicator(rendezvous);
  });
}

}  // namespace
}  // namespace convoy::testing
