// Tests of the identification of hosts and of the positions of ranks on them.
#include "convoy/comm/bootstrap/host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/kernels/base/error.h"

namespace convoy::testing {
namespace {

using ::testing::ElementsAre;

TEST(Hosts, DetermineLocalRanks) {
  const dist::HostId a{"a", "boot1", "net:[1]"}, b{"b", "boot2", "net:[1]"};
  const dist::HostId by_rank[] = {b, a, b, a, b};
  const std::vector<dist::RankInfo> infos = dist::make_rank_infos(by_rank, "tcp");
  const auto all = [&](auto member) {
    std::vector<int> values;
    for (const dist::RankInfo& info : infos) values.push_back(info.*member);
    return values;
  };
  EXPECT_THAT(all(&dist::RankInfo::rank), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(all(&dist::RankInfo::node), ElementsAre(0, 1, 0, 1, 0));
  EXPECT_THAT(all(&dist::RankInfo::local_rank), ElementsAre(0, 0, 1, 1, 2));
  EXPECT_THAT(all(&dist::RankInfo::local_world_size), ElementsAre(3, 2, 3, 2, 3));
  EXPECT_THAT(all(&dist::RankInfo::nodes), ElementsAre(2, 2, 2, 2, 2));
  EXPECT_THAT(all(&dist::RankInfo::world_size), ElementsAre(5, 5, 5, 5, 5));
  EXPECT_EQ(infos[1].host, "a");
  EXPECT_EQ(infos[1].source, "tcp");
}

TEST(Hosts, WithEqualNamesAreDistinguished) {
  const dist::HostId host{"localhost", "boot1", "net:[1]", "pid:[1]"};
  dist::HostId container = host, machine = host, pod = host;
  container.network = "net:[2]";
  machine.boot = "boot2";
  pod.processes = "pid:[2]";  // with the host's network
  const dist::HostId by_rank[] = {host, container, machine, host, pod};
  const std::vector<dist::RankInfo> infos = dist::make_rank_infos(by_rank, "tcp");
  EXPECT_EQ(infos[0].nodes, 4);
  EXPECT_EQ(infos[3].local_rank, 1);
  EXPECT_EQ(infos[1].local_rank, 0);
  EXPECT_EQ(infos[1].host, "localhost (node 1)");
  EXPECT_EQ(infos[2].host, "localhost (node 2)");
  EXPECT_EQ(infos[4].host, "localhost (node 3)");
}

TEST(Hosts, RoundTripThroughText) {
  const dist::HostId host = dist::this_host();
  EXPECT_FALSE(host.name.empty());
  EXPECT_FALSE(host.boot.empty());
  EXPECT_THAT(host.network, ::testing::StartsWith("net:["));
  EXPECT_THAT(host.processes, ::testing::StartsWith("pid:["));
  EXPECT_EQ(dist::parse_host(to_string(host)), host);
  EXPECT_THROW(dist::parse_host("a\nb"), PeerError);
}

}  // namespace
}  // namespace convoy::testing
