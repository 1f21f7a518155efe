#include "convoy/comm/cluster/store/store_rendezvous.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <numeric>
#include <sstream>
#include <utility>

#include "convoy/comm/bootstrap/environment.h"
#include "convoy/comm/bootstrap/host.h"
#include "convoy/comm/cluster/net/network_interfaces.h"
#include "convoy/comm/cluster/net/secret.h"
#include "convoy/comm/cluster/store/meeting_file.h"
#include "convoy/comm/cluster/store/tcp_store.h"
#include "convoy/comm/core/collective.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

constexpr double kNoticeSeconds = 0.5;  // for a notice to reach a rank 0, which may be stopped, or to come

/// The description that each rank publishes when it joins.
struct JoinMessage {
  HostId host;
  /// Both ends of the connection to rank 0.
  std::string address, address_of_rank_0;
};

std::string to_string(const JoinMessage& message) {
  return fmt::format("{}\n{}\n{}", message.address, message.address_of_rank_0, to_string(message.host));
}

JoinMessage parse_join_message(const std::string& text) {
  std::istringstream lines(text);
  JoinMessage message;
  std::getline(lines, message.address);
  std::getline(lines, message.address_of_rank_0);
  message.host = parse_host({std::istreambuf_iterator<char>(lines), {}});
  return message;
}

/// Sets the address of each host. On the host of rank 0 the connection to rank 0 may use the loopback
/// address, which is useless to other hosts. So the address of that host is taken from a rank of another
/// host, if there is one.
void add_addresses(std::span<const JoinMessage> joined, std::vector<RankInfo>& infos) {
  std::string first_host_address = joined.front().address;
  for (std::size_t rank = 0; rank < joined.size(); ++rank)
    if (infos[rank].node != 0) first_host_address = joined[rank].address_of_rank_0;
  for (std::size_t rank = 0; rank < joined.size(); ++rank)
    infos[rank].address = infos[rank].node == 0 ? first_host_address : joined[rank].address;
}

class StoreRendezvous final : public Rendezvous {
 public:
  StoreRendezvous(std::unique_ptr<TcpStore> store, std::unique_ptr<MeetingFile> file,
                  const RendezvousPlan& plan, const RendezvousOptions& options, const Deadline& deadline)
      : Rendezvous(plan.note),
        store_(std::move(store)),
        file_(std::move(file)),
        plan_(plan),
        timeout_(options.timeout_seconds) {
    const JoinMessage local{this_host(), store_->local_address(), store_->address_of_rank_0()};
    const std::vector<std::string> texts = exchange("rank", to_string(local), deadline);
    std::vector<JoinMessage> joined;
    std::vector<HostId> hosts;
    for (const std::string& text : texts) {
      joined.push_back(parse_join_message(text));
      hosts.push_back(joined.back().host);
    }
    std::vector<RankInfo> all = make_rank_infos(hosts, plan.source);
    add_addresses(joined, all);
    set_positions(plan.launch.rank, std::move(all));
  }

  ~StoreRendezvous() override {
    if (std::uncaught_exceptions() != exceptions_)
      fail(fmt::format("rank {} exited before finishing", plan_.launch.rank));
  }

  /// Notifies the ranks that wait for this one. The first reason counts.
  void fail(const std::string& reason) noexcept {
    if (std::exchange(has_failed_, true)) return;
    try {
      store_->set(kFailureKey, reason, kNoticeSeconds);
    } catch (const std::exception&) {  // the other ranks then time out
    }
  }

  std::vector<std::string> all_gather(const std::string& local) override {
    return exchange(fmt::format("gather {}", exchanges_++), local, Deadline(timeout_));
  }

 private:
  std::vector<std::string> exchange(const std::string& what, const std::string& local,
                                    const Deadline& deadline) {
    while (true) {
      if (std::optional<std::vector<std::string>> all = store_->gather(what, local, deadline, kNoticeSeconds))
        return std::move(*all);
      // At the limit, a rank that is missing because it waits for another one is about to tell so.
      const double notice = deadline.passed() ? kNoticeSeconds : 0;
      if (const auto reason = store_->get(kFailureKey, Deadline(notice))) throw PeerError(*reason);
      if (notice > 0) fail_exchange(what, deadline);
    }
  }

  [[noreturn]] void fail_exchange(const std::string& what, const Deadline& deadline) {
    const std::vector<int> missing = store_->missing(what);
    std::vector<int> all(static_cast<std::size_t>(plan_.launch.world_size)), joined;
    std::iota(all.begin(), all.end(), 0);
    std::ranges::set_difference(all, missing, std::back_inserter(joined));
    const std::optional<std::string> refused = store_->get(kRefusedKey, Deadline(0));
    const std::string reason =
        fmt::format("{}: after {} s {} {} joined, {} {} missing",
                    plan_.path.empty() ? store_->name() : "file://" + plan_.path, deadline.seconds(),
                    format_ranks(joined), joined.size() == 1 ? "has" : "have", format_ranks(missing),
                    missing.size() == 1 ? "is" : "are") +
        (refused ? "; is CONVOY_SECRET the same on all ranks? Handshakes without it: " + *refused : "");
    store_->set(kFailureKey, reason);
    throw PeerError(reason);
  }

  std::unique_ptr<TcpStore> store_;
  std::unique_ptr<MeetingFile> file_;  // of rank 0; destroyed before `store_`, whose server waits for ranks
  const RendezvousPlan plan_;
  const double timeout_;
  const int exceptions_ = std::uncaught_exceptions();
  std::uint64_t exchanges_ = 0;
  bool has_failed_ = false;
};

}  // namespace

std::unique_ptr<Rendezvous> rendezvous_by_store(const RendezvousPlan& plan,
                                                const RendezvousOptions& options) {
  const Deadline deadline(options.timeout_seconds);
  const StoreMember member{
      .rank = plan.launch.rank, .world_size = plan.launch.world_size, .job = plan.launch.job};
  std::unique_ptr<TcpStore> store;
  std::unique_ptr<MeetingFile> file;
  RendezvousPlan used = plan;
  if (plan.method != RendezvousPlan::Method::file) {
    store = std::make_unique<TcpStore>(plan.endpoint, member, deadline, plan.launch.other_ports);
    if (const int port = store->endpoint().port; port != plan.endpoint.port)
      used.note += fmt::format(" (port {}, because another program uses {})", port, plan.endpoint.port);
  } else if (member.rank > 0) {
    store = std::make_unique<TcpStore>(
        "file://" + plan.path, [&] { return MeetingFile::read(plan.path, member); }, member, deadline);
  } else {
    const std::optional<std::string> chosen = address_of_chosen_interface();
    StorePlace place{.secret = random_token()};
    store = std::make_unique<TcpStore>(Endpoint{chosen.value_or(""), 0}, member, deadline, std::vector<int>{},
                                       place.secret);
    place.endpoints.push_back(store->endpoint());
    if (!chosen)
      for (const std::string& address : addresses_of_this_host())
        place.endpoints.push_back({address, store->endpoint().port});
    file = std::make_unique<MeetingFile>(plan.path, member, place);
  }
  return std::make_unique<StoreRendezvous>(std::move(store), std::move(file), used, options, deadline);
}

void tell_failure(Rendezvous& rendezvous, const std::string& reason) noexcept {
  if (auto* const own = dynamic_cast<StoreRendezvous*>(&rendezvous)) own->fail(reason);
}

}  // namespace convoy::dist
