#include "comm/store_rendezvous.h"

#include <algorithm>
#include <exception>

#include "comm/file_store.h"
#include "comm/host.h"
#include "comm/rank_text.h"
#include "comm/tcp_store.h"
#include "kernels/runtime/check.h"

namespace convoy {
namespace {

constexpr const char* kFailure = "failure";  // the first rank's reason to give up
constexpr double kLook = 0.25;               // seconds between looks whether somebody has

/// What a rank says of itself when it comes.
struct Arrival {
  HostId host;
  std::string address, address_of_rank_0;  // as its connection to rank 0 shows; "" without one
};

std::string text_of(const Arrival& arrival) {
  return fmt::format("{}\n{}\n{}", arrival.address, arrival.address_of_rank_0, text_of(arrival.host));
}

Arrival parse_arrival(const std::string& text) {
  const std::size_t first = text.find('\n');
  const std::size_t second = first == std::string::npos ? first : text.find('\n', first + 1);
  if (second == std::string::npos) fail<PeerError>("'{}' describes no rank", text);
  return {.host = parse_host(text.substr(second + 1)),
          .address = text.substr(0, first),
          .address_of_rank_0 = text.substr(first + 1, second - first - 1)};
}

/// On rank 0's host the way to rank 0 may be a loop, which leads nowhere from elsewhere. Whoever comes from
/// another host knows an address that does not.
void add_addresses(std::span<const Arrival> arrivals, std::vector<RankInfo>& infos) {
  std::string of_first_host = arrivals.front().address;
  for (std::size_t rank = 0; rank < arrivals.size(); ++rank)
    if (infos[rank].node != 0) of_first_host = arrivals[rank].address_of_rank_0;
  for (std::size_t rank = 0; rank < arrivals.size(); ++rank)
    infos[rank].address = infos[rank].node == 0 ? of_first_host : arrivals[rank].address;
}

class StoreRendezvous final : public Rendezvous {
 public:
  StoreRendezvous(std::unique_ptr<Store> store, const MeetingPlan& plan, const Arrival& mine,
                  const RendezvousOptions& options, const Deadline& deadline)
      : store_(std::move(store)), plan_(plan), timeout_(options.timeout_seconds) {
    const std::vector<std::string> came = exchange("rank", text_of(mine), deadline);
    std::vector<Arrival> arrivals;
    std::vector<HostId> hosts;
    for (const std::string& text : came) {
      arrivals.push_back(parse_arrival(text));
      hosts.push_back(arrivals.back().host);
    }
    all_ = infos_of(hosts, plan.source);
    add_addresses(arrivals, all_);
  }

  ~StoreRendezvous() override {
    if (std::uncaught_exceptions() == exceptions_) return;
    // The others wait for something that does not come: let them know now.
    try {
      store_->set(kFailure, fmt::format("rank {} left before the end", plan_.rank));
    } catch (const std::exception&) {  // who cannot be told finds out at the deadline
    }
  }

  const RankInfo& info() const override { return all_[static_cast<std::size_t>(plan_.rank)]; }
  const std::vector<RankInfo>& all() const override { return all_; }
  Store* store() override { return store_.get(); }
  std::string note() const override { return plan_.note; }

  std::vector<std::string> all_gather(const std::string& mine) override {
    return exchange(fmt::format("gather {}", exchanges_++), mine, Deadline(timeout_));
  }
  void barrier() override { all_gather(""); }

 private:
  std::vector<std::string> exchange(const std::string& what, const std::string& mine,
                                    const Deadline& deadline) {
    const auto key_of = [&](int rank) { return fmt::format("{}/{}", what, rank); };
    store_->set(key_of(plan_.rank), mine);
    std::vector<std::string> all;
    for (int rank = 0; rank < plan_.world; ++rank) {
      std::optional<std::string> text = wait_for(key_of(rank), deadline);
      if (!text) give_up(key_of, deadline);
      all.push_back(std::move(*text));
    }
    return all;
  }

  std::optional<std::string> wait_for(const std::string& key, const Deadline& deadline) {
    while (true) {
      const double left = std::chrono::duration<double>(deadline.left()).count();
      if (std::optional<std::string> text = store_->get(key, Deadline(std::min(left, kLook)))) return text;
      if (const std::optional<std::string> reason = store_->get(kFailure, Deadline(0)))
        throw PeerError(*reason);
      if (deadline.passed()) return std::nullopt;
    }
  }

  template <class F>
  [[noreturn]] void give_up(const F& key_of, const Deadline& deadline) {
    std::vector<int> came, missing;
    for (int rank = 0; rank < plan_.world; ++rank)
      (store_->get(key_of(rank), Deadline(0)) ? came : missing).push_back(rank);
    const std::string reason = fmt::format(
        "{}: after {} s {} {} come, {} {} missing", store_->name(), deadline.seconds(), text_of_ranks(came),
        came.size() == 1 ? "has" : "have", text_of_ranks(missing), missing.size() == 1 ? "is" : "are");
    store_->set(kFailure, reason);
    throw PeerError(reason);
  }

  std::unique_ptr<Store> store_;
  const MeetingPlan plan_;
  const double timeout_;
  const int exceptions_ = std::uncaught_exceptions();
  std::uint64_t exchanges_ = 0;
  std::vector<RankInfo> all_;
};

}  // namespace

std::unique_ptr<Rendezvous> meet_by_tcp(const MeetingPlan& plan, const RendezvousOptions& options) {
  const Deadline deadline(options.timeout_seconds);
  auto store = std::make_unique<TcpStore>(
      plan.endpoint, StoreMember{.rank = plan.rank, .world = plan.world, .job = plan.job}, deadline);
  const Arrival mine{this_host(), store->local_address(), store->address_of_rank_0()};
  return std::make_unique<StoreRendezvous>(std::move(store), plan, mine, options, deadline);
}

std::unique_ptr<Rendezvous> meet_by_file(const MeetingPlan& plan, const RendezvousOptions& options) {
  const Deadline deadline(options.timeout_seconds);
  auto store = std::make_unique<FileStore>(
      plan.path, StoreMember{.rank = plan.rank, .world = plan.world, .job = plan.job}, deadline);
  return std::make_unique<StoreRendezvous>(std::move(store), plan, Arrival{.host = this_host()}, options,
                                           deadline);
}

}  // namespace convoy
