#include "convoy/comm/cluster/hierarchical/hierarchical_communicator.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "convoy/comm/cluster/hierarchical/hierarchical_layout.h"
#include "convoy/comm/cluster/tcp/tcp_communicator.h"
#include "convoy/comm/core/sparse_graph.h"
#include "convoy/comm/transport/cpu_communicator.h"
#include "convoy/comm/transport/cpu_sum.h"
#include "convoy/comm/transport/mpi/mpi_communicator.h"
#include "convoy/comm/transport/shm/shared_segment.h"
#include "convoy/comm/transport/shm/shm_communicator.h"
#include "convoy/comm/transport/sparse_collectives.h"
#include "convoy/comm/transport/transfer.h"
#include "convoy/comm/transport/transport.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/round_up.h"

namespace convoy::dist {
namespace {

// Added to the deadline for waits within a host, so that the error of a rank that waits for another host
// arrives first.
constexpr double kExtraLocalSeconds = 2;
constexpr std::size_t kMaxSmallData = std::size_t{1} << 20;  // without a sum, in small chunks

/// Returns the place of sums of `data` in the accumulator type: the part `index` of `count` equal ones of the scratch
/// memory, which grows if it is too small for all of them.
View place_in(std::vector<char>& scratch, std::size_t index, std::size_t count, const ConstView& data) {
  const std::size_t bytes = static_cast<std::size_t>(data.numel()) * size_of(sum_type(data.dtype));
  if (scratch.size() < count * bytes) scratch.resize(count * bytes);
  return {scratch.data() + index * bytes, data.shape, sum_type(data.dtype)};
}

/// Returns a HierarchicalTransport of all ranks. Collective call; `exchange` must connect all ranks. Throws
/// PeerError on all ranks if one of them fails.
std::unique_ptr<Transport> make_hierarchical_transport(std::unique_ptr<MessageLinks> links,
                                                       std::span<const int> host_of_rank,
                                                       const TextExchange& exchange, std::size_t chunk_bytes,
                                                       const AllReduceOptions& options);

/// Creates the shared segment of this rank's host. Collective call of all ranks. Every rank calls `exchange`
/// equally often, also on a host where the segment cannot be created. So all ranks receive the error and
/// throw it.
std::unique_ptr<SharedSegment> make_segment(const HierarchicalLayout& layout, const TextExchange& exchange,
                                            std::size_t chunk_bytes) {
  int begun = 0, done = 0;
  const auto exchange_within_host = [&](const std::string& text) {
    ++begun;
    const std::vector<std::string> all = exchange(text);
    ++done;
    std::vector<std::string> texts;
    for (const int other : layout.host_ranks()) texts.push_back(all[static_cast<std::size_t>(other)]);
    return texts;
  };
  std::unique_ptr<SharedSegment> segment;
  std::string failure;
  try {
    segment = std::make_unique<SharedSegment>(
        layout.local_rank(), static_cast<int>(layout.host_ranks().size()), exchange_within_host, chunk_bytes,
        layout.host_ranks(), layout.size());
  } catch (const Error& error) {
    if (done < begun) throw;  // the exchange itself failed
    failure = error.what();
  }
  while (done < SharedSegment::kExchanges) exchange_within_host("");
  for (const std::string& text : exchange(failure))
    if (!text.empty()) throw PeerError(text);
  return segment;
}

/// A Transport with two-stage reductions: first over the ranks of each host, in rank order, then over the
/// hosts, in host order. f16 and bf16 are accumulated in f32 and rounded once, after the second stage. Each
/// host sends only its locally reduced data across the network.
///
/// The all-reduce processes data in chunks. A chunk has one slice per node leader of a host
/// (HierarchicalLayout). A node leader
/// 1. sums its slice over the ranks of its host, in shared memory,
/// 2. exchanges it with its peers on the other hosts by a direct reduce-scatter, in which each peer sums one
///    shard of the slice over all hosts, and a direct all-gather, and
/// 3. writes the complete slice to shared memory for the ranks of its host.
/// With H hosts and S bytes of data, each host sends 2 (H - 1) / H * S bytes. All node leaders of a host send
/// concurrently, over separate connections.
///
/// With more than 8 hosts, or another algorithm than AllReduce::direct, the second step is a collective along a sparse
/// graph, one chunk after the other. Signatures take the same way: between the peers of a column, one of each host, then
/// within hosts. If the numbers of ranks of the hosts differ, all pairs of ranks exchange messages.
class HierarchicalTransport final : public Transport {
 public:
  /// `links` connects all ranks; `segment` connects the ranks of this host. `chunk_bytes` must be the same on
  /// all ranks, at most the segment's chunk size, and a multiple of 64 times the number of ranks. The same holds
  /// for `large_chunk_bytes`, those after the first large collective; 0: the chunks stay as they are.
  HierarchicalTransport(std::unique_ptr<MessageLinks> links, HierarchicalLayout layout,
                        std::unique_ptr<SharedSegment> segment, const AllReduceOptions& options,
                        std::size_t chunk_bytes, std::size_t large_chunk_bytes)
      : links_(std::move(links)),
        layout_(std::move(layout)),
        options_(options),
        is_sparse_(layout_.is_even() && layout_.hosts() > 1 && options.is_sparse(layout_.hosts())),
        column_{links_, {}, layout_.host()},
        segment_(std::move(segment)),
        chunk_bytes_(chunk_bytes),
        large_chunk_bytes_(large_chunk_bytes) {
    for (int host = 0; host < layout_.hosts(); ++host) column_.ranks.push_back(layout_.peer_of(rank(), host));
    // A rank that waits for another host also detects when a rank of its own host dies or fails.
    links_->set_poll_hook([this] { segment_->poll_while_waiting(); });
  }

  std::string name() const override { return "shm+" + links_->name(); }
  int rank() const override { return links_->rank(); }
  int size() const override { return links_->size(); }

  void start() override { links_->start(); }
  /// Pipelines three chunks: while the partial sums of one chunk and the complete sums of the previous one
  /// are sent, the next chunk is summed within the host. Of the two buffers in shared memory one is filled
  /// while the other one is read. No rank fills a buffer for chunk n before all ranks have reached the sums
  /// of chunk n - 1, and so have finished with those of n - 2. No other rank reads a node leader's own slice
  /// in its own buffer, so the node leader stores the complete sum of that slice there.
  void all_reduce(const Call& call, View data) override {
    const Deadline local_deadline = enter(call);
    if (data.bytes() > chunk_bytes_) use_large_chunks(call.deadline);
    const std::int64_t chunk_size = elements_in(chunk_bytes_, data.dtype);
    const std::int64_t chunks = (data.numel() + chunk_size - 1) / chunk_size;
    const auto chunk_of = [&](std::int64_t number) {
      return piece_at(data, number * chunk_size, chunk_size);
    };
    if (is_sparse_) {
      for (std::int64_t number = 0; number < chunks; ++number) {
        const View chunk = chunk_of(number), slice = slice_of(chunk, layout_.local_rank());
        reduce_within_host(chunk, number, local_deadline);
        all_reduce_by(algorithm_for(chunk.bytes()), column_, partial_of(slice, number), slice, call.deadline);
        broadcast_within_host(chunk, number, local_deadline);
      }
      return;
    }
    if (chunks == 0) return;
    for (std::int64_t number = 0; number < chunks + 2; ++number) {
      if (number < chunks) reduce_within_host(chunk_of(number), number, local_deadline);
      links_.wait(call.deadline);
      const std::int64_t previous = number - 1;
      if (previous >= 0 && previous < chunks) reduce_across_hosts(chunk_of(previous), previous);
      if (previous > 0) broadcast_within_host(chunk_of(previous - 1), previous - 1, local_deadline);
      if (number < chunks) start_exchange_of_partial_sums(chunk_of(number), number);
      if (previous >= 0 && previous < chunks) start_exchange_of_sums(chunk_of(previous));
    }
  }

  /// On every host, one rank sums the host's contributions to the chunk of a rank of another host, and sends
  /// the sum to that rank.
  void reduce_scatter(const Call& call, ConstView in, View out) override {
    const Deadline local_deadline = enter(call);
    if (in.bytes() > chunk_bytes_) use_large_chunks(call.deadline);
    const std::int64_t piece_size = elements_in(chunk_bytes_ / static_cast<std::size_t>(size()), in.dtype);
    // The ranks whose chunks this rank sums over its host: itself, and ranks of other hosts.
    std::vector<int> sums;
    for (int host = 0; host < layout_.hosts(); ++host)
      for (const int of : layout_.ranks_of(host))
        if (layout_.peer_of(of, layout_.host()) == rank() && (of == rank() || host != layout_.host()))
          sums.push_back(of);
    std::vector<char>& scratch = partials_.front();
    for (std::int64_t number = 0; number * piece_size < out.numel(); ++number) {
      const std::int64_t begin = number * piece_size;
      const View sum = piece_at(out, begin, piece_size);
      const auto part_for = [&](int of) { return subview(in, out.numel() * of + begin, sum.numel()); };
      for (int of = 0; of < size(); ++of)
        if (std::find(sums.begin(), sums.end(), of) == sums.end())
          segment_->store(part_for(of), piece_in_segment(sum, layout_.local_rank(), number, of), number, of);
      local_barrier(local_deadline);

      ConstView sum_of_this_host;
      for (std::size_t i = 0; i < sums.size(); ++i) {
        const View partial = place_in(scratch, i, sums.size(), sum);
        Checksum of_sum;
        segment_->sum(
            part_for(sums[i]), partial, number, sums[i],
            [&](int local_rank) { return piece_in_segment(sum, local_rank, number, sums[i]); }, &of_sum);
        if (sums[i] == rank()) {
          sum_of_this_host = partial;
        } else if (!is_sparse_) {
          links_.send(sums[i], partial, of_sum.value());
        }
      }
      if (is_sparse_) {
        const View of_column{scratch.data(), {sum.numel() * layout_.hosts()}, sum_type(sum.dtype)};
        reduce_scatter_by(algorithm_for(of_column.bytes()), column_, of_column, call.deadline);
        convert(shard_of(of_column, layout_.host(), layout_.hosts()), sum);
        continue;
      }
      std::vector<SumPart> host_sums;
      for (int host = 0; host < layout_.hosts(); ++host)
        host_sums.push_back({host == layout_.host() ? sum_of_this_host : incoming(sum, host)});
      for_each_other_host(
          [&](int host) { links_.receive(layout_.peer_of(rank(), host), incoming(sum, host), kPartialSum); });
      links_.wait(call.deadline);
      sum_in_order(host_sums, sum);
    }
  }

  /// The root sends the data to one rank of each host, which copies it to shared memory for the ranks of its
  /// host.
  void broadcast(const Call& call, View data) override {
    const Deadline local_deadline = enter(call);
    if (data.bytes() > kMaxSmallData) use_large_chunks(call.deadline);
    const int root = call.collective.root;
    const int source = layout_.host_of(root) == layout_.host() ? root : layout_.peer_of(root, layout_.host());
    const std::int64_t chunk_size = elements_in(chunk_bytes_, data.dtype);
    for (std::int64_t number = 0; number * chunk_size < data.numel(); ++number) {
      const View chunk = piece_at(data, number * chunk_size, chunk_size);
      if (rank() == root && !is_sparse_)
        for_each_other_host([&](int host) { links_.send(layout_.peer_of(root, host), chunk); });
      if (rank() == source) {
        if (is_sparse_) {
          tree_broadcast(column_, chunk, layout_.host_of(root), kData, call.deadline);
        } else if (rank() != root) {
          links_.receive(root, chunk, kData);
          links_.wait(call.deadline);
        }
        // A rank that has reached the previous chunk has read the one before it.
        segment_->wait(local_deadline);
        segment_->store(chunk, View{segment_->chunk(layout_.local_rank(), number), chunk.shape, chunk.dtype},
                        number, 0);
        segment_->step();
      } else {
        segment_->step();
        const int local_source = layout_.local_rank_of(source);
        segment_->wait_for(local_source, local_deadline);
        segment_->load(kData, ConstView(segment_->chunk(local_source, number), chunk.shape, chunk.dtype),
                       chunk, local_source, number, 0);
      }
      links_.wait(call.deadline);
    }
  }

  /// Each rank sends its chunk to one rank of every other host, which copies it to shared memory together
  /// with its own.
  void all_gather(const Call& call, ConstView in, View out) override {
    const Deadline local_deadline = enter(call);
    if (out.bytes() > kMaxSmallData) use_large_chunks(call.deadline);
    copy_view(in, subview(out, in.numel() * rank(), in.numel()));
    const std::int64_t piece_size = elements_in(chunk_bytes_ / static_cast<std::size_t>(size()), in.dtype);
    // Returns the rank of this host that provides the chunk of rank `of`.
    const auto provider = [&](int of) {
      return layout_.host_of(of) == layout_.host() ? of : layout_.peer_of(of, layout_.host());
    };
    for (std::int64_t number = 0; number * piece_size < in.numel(); ++number) {
      const std::int64_t begin = number * piece_size;
      const ConstView piece = piece_at(in, begin, piece_size);
      const auto piece_of = [&](int of) { return subview(out, in.numel() * of + begin, piece.numel()); };
      if (is_sparse_) {
        gather_along_column(piece, call.deadline, piece_of);
      } else {
        const std::uint64_t checksum = checksum_of(piece);
        for_each_other_host([&](int host) { links_.send(layout_.peer_of(rank(), host), piece, checksum); });
        for (int of = 0; of < size(); ++of)
          if (of != rank() && provider(of) == rank()) links_.receive(of, piece_of(of), kData);
        links_.wait(call.deadline);
      }
      for (int of = 0; of < size(); ++of)
        if (provider(of) == rank())
          segment_->store(piece_of(of), piece_in_segment(piece, layout_.local_rank(), number, of), number,
                          of);
      local_barrier(local_deadline);
      for (int of = 0; of < size(); ++of)
        if (provider(of) != rank())
          segment_->load(kData, piece_in_segment(piece, layout_.local_rank_of(provider(of)), number, of),
                         piece_of(of), layout_.local_rank_of(provider(of)), number, of);
    }
  }

  void barrier(const Call& call) override { enter(call); }
  std::vector<std::string> gather_object(const Call& call, const std::string& local) override {
    enter(call);
    return gather_texts(*links_, local, call.deadline);
  }

  std::unique_ptr<Transport> split(const Call& call, int color) override {
    enter(call);
    std::vector<int> members, host_of_member;
    auto part = split_links(*links_, color, call.deadline, members);
    for (const int other : members) host_of_member.push_back(layout_.host_of(other));
    MessageLinks& links = *part;
    return make_hierarchical_transport(
        std::move(part), host_of_member,
        [&](const std::string& text) { return exchange_texts(links, text, call.deadline); },
        large_chunk_bytes_ == 0 ? chunk_bytes_ : 0, options_);
  }

  bool poll_peers() override {
    const bool on_this_host = segment_->poll_between_collectives();
    return links_->poll_peers() || on_this_host;
  }

  void finish(const Call& call) override {
    enter(call);
    links_->leave(call.deadline);
  }

  void abort(const std::string& reason) noexcept override {
    {
      const std::lock_guard lock(mutex_);
      if (!abort_reason_) abort_reason_ = reason;
      segment_->fail(reason);
    }
    links_->abort(reason);
  }

 private:
  /// Replaces the segment before the data of a large collective, unless it is large already. All ranks have
  /// entered the collective, so no rank uses the previous one any more.
  void use_large_chunks(const Deadline& deadline) {
    if (chunk_bytes_ >= large_chunk_bytes_) return;
    auto segment = make_segment(
        layout_, [&](const std::string& text) { return exchange_texts(*links_, text, deadline); },
        large_chunk_bytes_);
    const std::lock_guard lock(mutex_);
    if (abort_reason_) segment->fail(*abort_reason_);
    segment_ = std::move(segment);
    chunk_bytes_ = large_chunk_bytes_;
  }

  /// Compares signatures with all ranks. Returns the deadline for waits within this host. It is
  /// later than the deadline for other hosts. So a rank that waits for another host times out first, and its
  /// error, which names the missing rank, reaches the ranks of its host.
  Deadline enter(const Call& call) {
    const Deadline local_deadline = call.deadline.plus(kExtraLocalSeconds);
    links_->set_round(call.collective.number + 1);
    CollectiveSignature posted = call.collective;
    if (!agree_with_other_hosts(call)) posted.count = -1;
    segment_->post(posted);
    // At the limit, the column of a missing rank tells other hosts of it, also those that have nothing to receive.
    segment_->wait(local_deadline, 0, [&] {
      if (call.deadline.passed()) links_->poll_peers();
    });
    const std::vector<CollectiveSignature> of_host = segment_->posted();
    if (std::ranges::count(of_host, call.collective) != std::ssize(of_host))
      fail_as_inconsistent(*links_, call.collective, call.deadline);
    return local_deadline;
  }

  /// Compares the signature with those of the ranks of its column. If all columns and all hosts agree, all ranks do.
  bool agree_with_other_hosts(const Call& call) {
    if (is_sparse_) return agree_along_tree(column_, call.collective, call.deadline);
    std::vector<CollectiveSignature> theirs(static_cast<std::size_t>(size()), call.collective);
    for_each_other_host([&](int host) {
      for (const int other : layout_.ranks_of(host)) {
        if (layout_.is_even() && other != layout_.peer_of(rank(), host)) continue;
        links_->send(other, std::as_bytes(std::span(&call.collective, 1)));
        links_->receive(other,
                        std::as_writable_bytes(std::span(&theirs[static_cast<std::size_t>(other)], 1)));
      }
    });
    links_->wait(call.deadline);
    return std::ranges::count(theirs, call.collective) == std::ssize(theirs);
  }

  /// Returns the algorithm for a collective of `bytes` along the column.
  AllReduce algorithm_for(std::size_t bytes) const {
    AllReduceOptions options = options_;
    options.gb_per_s /= layout_.leaders_per_host();  // all columns send at the same time
    options.hosts = 1;
    return options.algorithm_for(layout_.hosts(), bytes);
  }

  /// All-gathers `piece` along the column into `place_of(rank)` of each rank.
  template <class PlaceOf>
  void gather_along_column(const ConstView& piece, const Deadline& deadline, PlaceOf&& place_of) {
    const int hosts = layout_.hosts();
    std::vector<char>& scratch = partials_.front();
    scratch.resize(std::max(scratch.size(), piece.bytes() * static_cast<std::size_t>(hosts)));
    const View all{scratch.data(), {piece.numel() * hosts}, piece.dtype};
    copy_view(piece, shard_of(all, layout_.host(), hosts));
    all_gather_by(algorithm_for(all.bytes()), column_, all, deadline);
    for (int host = 0; host < hosts; ++host)
      copy_view(shard_of(all, host, hosts), place_of(layout_.peer_of(rank(), host)));
  }

  /// Blocks until all ranks of this host have called it.
  void local_barrier(const Deadline& local_deadline) {
    segment_->step();
    segment_->wait(local_deadline);
  }

  // The stages of an all-reduce of the chunk with this number.
  void reduce_within_host(const View& chunk, std::int64_t number, const Deadline& local_deadline) {
    for (int leader = 0; leader < layout_.leaders_per_host(); ++leader) {
      if (leader == layout_.local_rank()) continue;
      const View slice = slice_of(chunk, leader);
      segment_->store(slice, slice_in_segment(slice, layout_.local_rank(), number, leader), number, leader);
    }
    local_barrier(local_deadline);
    if (!layout_.is_leader()) return;
    const View slice = slice_of(chunk, layout_.local_rank());
    if (slice.numel() == 0) return;
    const int leader = layout_.local_rank();
    segment_->sum(slice, partial_of(slice, number), number, leader,
                  [&](int local_rank) { return slice_in_segment(slice, local_rank, number, leader); });
  }

  void start_exchange_of_partial_sums(const View& chunk, std::int64_t number) {
    if (!layout_.is_leader()) return;
    const View slice = slice_of(chunk, layout_.local_rank());
    const View partial = partial_of(slice, number);
    for_each_other_host([&](int host) {
      const int peer = layout_.peer_of(rank(), host);
      links_.send(peer, shard_of(partial, host, layout_.hosts()));
      links_.receive(peer, incoming(shard_of(slice, layout_.host(), layout_.hosts()), host), kPartialSum);
    });
  }

  void start_exchange_of_sums(const View& chunk) {
    if (!layout_.is_leader()) return;
    const View slice = slice_of(chunk, layout_.local_rank());
    for_each_other_host([&](int host) {
      const int peer = layout_.peer_of(rank(), host);
      links_.send(peer, shard_of(slice, layout_.host(), layout_.hosts()), checksum_of_sum_);
      links_.receive(peer, shard_of(slice, host, layout_.hosts()), kSum);
    });
  }

  void reduce_across_hosts(const View& chunk, std::int64_t number) {
    if (!layout_.is_leader()) return;
    const View slice = slice_of(chunk, layout_.local_rank());
    const View sum = shard_of(slice, layout_.host(), layout_.hosts());
    if (sum.numel() == 0) return;
    std::vector<SumPart> parts;
    for (int host = 0; host < layout_.hosts(); ++host)
      parts.push_back({host == layout_.host() ? shard_of(partial_of(slice, number), host, layout_.hosts())
                                              : incoming(sum, host)});
    Checksum of_sum;
    sum_in_order(parts, sum, &of_sum);
    checksum_of_sum_ = of_sum.value();
  }

  void broadcast_within_host(const View& chunk, std::int64_t number, const Deadline& local_deadline) {
    if (layout_.is_leader()) {
      const View sum = slice_of(chunk, layout_.local_rank());
      const int leader = layout_.local_rank();
      segment_->store(sum, slice_in_segment(sum, leader, number, leader), number, leader);
    }
    local_barrier(local_deadline);
    for (int leader = 0; leader < layout_.leaders_per_host(); ++leader) {
      if (leader == layout_.local_rank()) continue;
      const View slice = slice_of(chunk, leader);
      segment_->load(kSum, slice_in_segment(slice, leader, number, leader), slice, leader, number, leader);
    }
  }

  /// Returns the maximum size of a slice, in whole cache lines.
  std::size_t slice_bytes(std::size_t chunk_bytes) const {
    const auto leaders = static_cast<std::size_t>(layout_.leaders_per_host());
    return ((chunk_bytes + leaders - 1) / leaders + 63) / 64 * 64;
  }

  /// Returns the slice of `chunk` that the node leaders with local rank `leader` reduce.
  View slice_of(const View& chunk, int leader) const {
    const std::int64_t slice_size = elements_in(slice_bytes(chunk.bytes()), chunk.dtype);
    const std::int64_t begin = std::min(slice_size * leader, chunk.numel());
    return piece_at(chunk, begin, slice_size);
  }

  /// Returns the view for the sum of `slice` over this host. It has the accumulator type: for half precision
  /// it is scratch memory, otherwise `slice` itself.
  View partial_of(const View& slice, std::int64_t number) {
    if (sum_type(slice.dtype) == slice.dtype) return slice;
    return place_in(partials_[static_cast<std::size_t>(number % 2)], 0, 1, slice);
  }

  /// Returns scratch memory for the partial sum of `shard` received from `host`, in the accumulator type.
  View incoming(const ConstView& shard, int host) {
    return place_in(incoming_, static_cast<std::size_t>(host), static_cast<std::size_t>(layout_.hosts()),
                    shard);
  }

  /// Returns the location of node leader `leader`'s slice of chunk `number` in the buffer of `local_rank`.
  View slice_in_segment(const ConstView& slice, int local_rank, std::int64_t number, int leader) const {
    const std::size_t room = slice_bytes(chunk_bytes_);
    return {segment_->chunk(local_rank, number) + static_cast<std::size_t>(leader) * room, slice.shape,
            slice.dtype};
  }

  /// Returns the location of the piece that belongs to rank `of` in the buffer of `local_rank`. The buffer
  /// has room for one piece per rank of the group.
  View piece_in_segment(const ConstView& piece, int local_rank, std::int64_t number, int of) const {
    const std::size_t room = chunk_bytes_ / static_cast<std::size_t>(size());
    return {segment_->chunk(local_rank, number) + static_cast<std::size_t>(of) * room, piece.shape,
            piece.dtype};
  }

  template <class F>
  void for_each_other_host(F&& f) const {
    for (int host = 0; host < layout_.hosts(); ++host)
      if (host != layout_.host()) f(host);
  }

  CheckedLinks links_;
  const HierarchicalLayout layout_;
  const AllReduceOptions options_;
  const bool is_sparse_;  // whether data travel along the column by a sparse graph
  LinkGroup column_;      // the peers of this rank, by host
  std::unique_ptr<SharedSegment> segment_;
  std::size_t chunk_bytes_;
  const std::size_t large_chunk_bytes_;  // 0: chunk_bytes_ does not change
  std::mutex mutex_;                     // guards what follows, and `segment_` while it is replaced
  std::optional<std::string> abort_reason_;
  std::array<std::vector<char>, 2> partials_;  // one is sent while the next one is summed
  std::vector<char> incoming_;
  std::uint64_t checksum_of_sum_ = 0;  // of this rank's shard of the chunk that was summed last
};

std::unique_ptr<Transport> make_hierarchical_transport(std::unique_ptr<MessageLinks> links,
                                                       std::span<const int> host_of_rank,
                                                       const TextExchange& exchange, std::size_t chunk_bytes,
                                                       const AllReduceOptions& options) {
  const HierarchicalLayout layout(host_of_rank, links->rank());
  const std::size_t of_first = std::stoull(exchange(std::to_string(chunk_bytes)).front());
  const auto whole = [&](std::size_t bytes) {
    return round_up(std::max<std::size_t>(bytes, 1), 64 * static_cast<std::size_t>(layout.size()));
  };
  const std::size_t first = whole(of_first == 0 ? layout.small_chunk_bytes() : of_first);
  std::unique_ptr<SharedSegment> segment = make_segment(layout, exchange, first);
  return std::make_unique<HierarchicalTransport>(std::move(links), layout, std::move(segment), options, first,
                                                 of_first == 0 ? whole(layout.default_chunk_bytes()) : 0);
}

}  // namespace

LinkGraph hierarchical_graph(std::vector<int> host_of_rank, const AllReduceOptions& options) {
  return [hosts = std::move(host_of_rank), options](std::span<const int> members, int rank) {
    std::vector<int> host_of_member;
    for (const int member : members) host_of_member.push_back(hosts[static_cast<std::size_t>(member)]);
    const HierarchicalLayout layout(host_of_member, rank);
    if (!layout.is_even()) return AllReduceOptions{.algorithm = AllReduce::direct}.peers(rank, layout.size());
    std::vector<int> peers = sparse_peers(rank, layout.size());  // for texts
    for (const int host : options.peers(layout.host(), layout.hosts()))
      peers.push_back(layout.peer_of(rank, host));
    std::ranges::sort(peers);
    peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
    return peers;
  };
}

std::unique_ptr<Communicator> make_hierarchical_communicator(std::unique_ptr<MessageLinks> links,
                                                             std::span<const int> host_of_rank,
                                                             const TextExchange& exchange,
                                                             const HierarchicalOptions& options) {
  check(static_cast<int>(host_of_rank.size()) == links->size(), "host_of_rank: found {} ranks, expected {}",
        host_of_rank.size(), links->size());
  return std::make_unique<CpuCommunicator>(
      make_hierarchical_transport(std::move(links), host_of_rank, exchange, options.chunk_bytes,
                                  options.comm.all_reduce),
      options.comm);
}

std::unique_ptr<Communicator> make_hierarchical_communicator(Rendezvous& rendezvous,
                                                             const HierarchicalOptions& options) {
  std::vector<int> host_of_rank;
  for (const RankInfo& info : rendezvous.all()) host_of_rank.push_back(info.node);
  const bool through_mpi = rendezvous.info().source == "mpi";
  return make_hierarchical_communicator(
      through_mpi ? make_mpi_links(rendezvous)
                  : make_tcp_links(rendezvous, options.comm,
                                   hierarchical_graph(host_of_rank, options.comm.all_reduce)),
      host_of_rank, [&](const std::string& text) { return rendezvous.all_gather(text); }, options);
}

}  // namespace convoy::dist
