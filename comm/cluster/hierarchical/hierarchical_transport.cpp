#include "convoy/comm/cluster/hierarchical/hierarchical_transport.h"

#include <algorithm>
#include <utility>

namespace convoy::dist {
namespace {

// Added to the deadline for waits within a host, so that the error of a rank that waits for another host
// arrives first.
constexpr double kExtraLocalSeconds = 2;

View place_in(std::vector<char>& scratch, std::size_t offset, const Shape& shape, DType dtype) {
  return {scratch.data() + offset, shape, dtype};
}

void make_room(std::vector<char>& scratch, std::size_t bytes) {
  if (scratch.size() < bytes) scratch.resize(bytes);
}

std::size_t bytes_of_sums(std::int64_t count, DType dtype) {
  return static_cast<std::size_t>(count) * size_of(sum_type(dtype));
}

}  // namespace

HierarchicalTransport::HierarchicalTransport(std::unique_ptr<MessageLinks> links, HierarchicalLayout layout,
                                             std::unique_ptr<SharedSegment> segment, std::size_t chunk_bytes)
    : links_(std::move(links)),
      layout_(std::move(layout)),
      segment_(std::move(segment)),
      chunk_bytes_(chunk_bytes) {
  // A rank that waits for another host also detects when a rank of its own host dies or fails.
  links_->set_poll_hook([this] { segment_->poll_while_waiting(); });
}

void HierarchicalTransport::start() { links_->start(); }

template <class F>
void HierarchicalTransport::for_each_other_host(F&& f) const {
  for (int host = 0; host < layout_.hosts(); ++host)
    if (host != layout_.host()) f(host);
}

Deadline HierarchicalTransport::enter(const Call& call) {
  segment_->post(call.collective);
  std::vector<CollectiveSignature> by_rank(static_cast<std::size_t>(size()));
  for_each_other_host([&](int host) {
    for (const int other : layout_.ranks_of(host)) {
      links_->send(other, std::as_bytes(std::span(&call.collective, 1)));
      links_->receive(other, std::as_writable_bytes(std::span(&by_rank[static_cast<std::size_t>(other)], 1)));
    }
  });
  links_->wait(call.deadline);
  segment_->wait(call.deadline);
  const std::vector<CollectiveSignature> of_host = segment_->posted();
  for (const int other : layout_.host_ranks())
    by_rank[static_cast<std::size_t>(other)] =
        of_host[static_cast<std::size_t>(layout_.local_rank_of(other))];
  verify_consistency(by_rank);
  return call.deadline.plus(kExtraLocalSeconds);
}

void HierarchicalTransport::local_barrier(const Deadline& local_deadline) {
  segment_->step();
  segment_->wait(local_deadline);
}

View HierarchicalTransport::slice_in_segment(const ConstView& slice, int local_rank, std::int64_t number,
                                             int leader) const {
  const std::size_t room = slice_bytes(chunk_bytes_);
  return {segment_->chunk(local_rank, number) + static_cast<std::size_t>(leader) * room, slice.shape,
          slice.dtype};
}

View HierarchicalTransport::piece_in_segment(const ConstView& piece, int local_rank, std::int64_t number,
                                             int of) const {
  const std::size_t room = chunk_bytes_ / static_cast<std::size_t>(size());
  return {segment_->chunk(local_rank, number) + static_cast<std::size_t>(of) * room, piece.shape,
          piece.dtype};
}

/// Returns the maximum size of a slice, in whole cache lines.
std::size_t HierarchicalTransport::slice_bytes(std::size_t chunk_bytes) const {
  const auto leaders = static_cast<std::size_t>(layout_.leaders_per_host());
  return ((chunk_bytes + leaders - 1) / leaders + 63) / 64 * 64;
}

View HierarchicalTransport::slice_of(const View& chunk, int leader) const {
  const std::int64_t slice_size = elements_in(slice_bytes(chunk.bytes()), chunk.dtype);
  const std::int64_t begin = std::min(slice_size * leader, chunk.numel());
  return piece_at(chunk, begin, slice_size);
}

View HierarchicalTransport::partial_of(const View& slice, std::int64_t number) {
  if (sum_type(slice.dtype) == slice.dtype) return slice;
  std::vector<char>& scratch = partials_[static_cast<std::size_t>(number % 2)];
  make_room(scratch, bytes_of_sums(slice.numel(), slice.dtype));
  return place_in(scratch, 0, slice.shape, sum_type(slice.dtype));
}

View HierarchicalTransport::incoming(const ConstView& shard, int host) {
  const std::size_t bytes = bytes_of_sums(shard.numel(), shard.dtype);
  make_room(incoming_, bytes * static_cast<std::size_t>(layout_.hosts()));
  return place_in(incoming_, static_cast<std::size_t>(host) * bytes, shard.shape, sum_type(shard.dtype));
}

/// Pipelines three chunks: while the partial sums of one chunk and the complete sums of the previous one are
/// sent, the next chunk is summed within the host. Of the two buffers in shared memory one is filled while
/// the other one is read. No rank fills a buffer for chunk n before all ranks have reached the sums of chunk
/// n - 1, and so have finished with those of n - 2. No other rank reads a node leader's own slice in its own
/// buffer, so the node leader stores the complete sum of that slice there.
void HierarchicalTransport::all_reduce(const Call& call, View data) {
  const Deadline local_deadline = enter(call);
  const std::int64_t chunk_size = elements_in(chunk_bytes_, data.dtype);
  const std::int64_t chunks = (data.numel() + chunk_size - 1) / chunk_size;
  const auto chunk_of = [&](std::int64_t number) { return piece_at(data, number * chunk_size, chunk_size); };
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

void HierarchicalTransport::reduce_within_host(const View& chunk, std::int64_t number,
                                               const Deadline& local_deadline) {
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

void HierarchicalTransport::start_exchange_of_partial_sums(const View& chunk, std::int64_t number) {
  if (!layout_.is_leader()) return;
  const View slice = slice_of(chunk, layout_.local_rank());
  const View partial = partial_of(slice, number);
  for_each_other_host([&](int host) {
    const int peer = layout_.peer_of(rank(), host);
    links_.send(peer, shard_of(partial, host, layout_.hosts()));
    links_.receive(peer, incoming(shard_of(slice, layout_.host(), layout_.hosts()), host), kPartialSum);
  });
}

void HierarchicalTransport::reduce_across_hosts(const View& chunk, std::int64_t number) {
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

void HierarchicalTransport::start_exchange_of_sums(const View& chunk) {
  if (!layout_.is_leader()) return;
  const View slice = slice_of(chunk, layout_.local_rank());
  for_each_other_host([&](int host) {
    const int peer = layout_.peer_of(rank(), host);
    links_.send(peer, shard_of(slice, layout_.host(), layout_.hosts()), checksum_of_sum_);
    links_.receive(peer, shard_of(slice, host, layout_.hosts()), kSum);
  });
}

void HierarchicalTransport::broadcast_within_host(const View& chunk, std::int64_t number,
                                                  const Deadline& local_deadline) {
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

/// On every host, one rank sums the host's contributions to the chunk of a rank of another host, and sends
/// the sum to that rank.
void HierarchicalTransport::reduce_scatter(const Call& call, ConstView in, View out) {
  const Deadline local_deadline = enter(call);
  const std::int64_t piece_size = elements_in(chunk_bytes_ / static_cast<std::size_t>(size()), in.dtype);
  // The ranks whose chunks this rank sums over its host: itself, and ranks of other hosts.
  std::vector<int> sums;
  for (int of = 0; of < size(); ++of)
    if (layout_.peer_of(of, layout_.host()) == rank() &&
        (of == rank() || layout_.host_of(of) != layout_.host()))
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

    const std::size_t bytes = bytes_of_sums(sum.numel(), sum.dtype);
    make_room(scratch, bytes * sums.size());
    ConstView sum_of_this_host;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const View partial = place_in(scratch, i * bytes, sum.shape, sum_type(sum.dtype));
      Checksum of_sum;
      segment_->sum(
          part_for(sums[i]), partial, number, sums[i],
          [&](int local_rank) { return piece_in_segment(sum, local_rank, number, sums[i]); }, &of_sum);
      if (sums[i] == rank()) {
        sum_of_this_host = partial;
      } else {
        links_.send(sums[i], partial, of_sum.value());
      }
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
void HierarchicalTransport::broadcast(const Call& call, View data) {
  const Deadline local_deadline = enter(call);
  const int root = call.collective.root;
  const int source = layout_.host_of(root) == layout_.host() ? root : layout_.peer_of(root, layout_.host());
  const std::int64_t chunk_size = elements_in(chunk_bytes_, data.dtype);
  for (std::int64_t number = 0; number * chunk_size < data.numel(); ++number) {
    const View chunk = piece_at(data, number * chunk_size, chunk_size);
    if (rank() == root)
      for_each_other_host([&](int host) { links_.send(layout_.peer_of(root, host), chunk); });
    if (rank() == source) {
      if (rank() != root) {
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
      segment_->load(kData, ConstView(segment_->chunk(local_source, number), chunk.shape, chunk.dtype), chunk,
                     local_source, number, 0);
    }
    links_.wait(call.deadline);
  }
}

/// Each rank sends its chunk to one rank of every other host, which copies it to shared memory together with
/// its own.
void HierarchicalTransport::all_gather(const Call& call, ConstView in, View out) {
  const Deadline local_deadline = enter(call);
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
    const std::uint64_t checksum = checksum_of(piece);
    for_each_other_host([&](int host) { links_.send(layout_.peer_of(rank(), host), piece, checksum); });
    for (int of = 0; of < size(); ++of)
      if (of != rank() && provider(of) == rank()) links_.receive(of, piece_of(of), kData);
    links_.wait(call.deadline);
    for (int of = 0; of < size(); ++of)
      if (provider(of) == rank())
        segment_->store(piece_of(of), piece_in_segment(piece, layout_.local_rank(), number, of), number, of);
    local_barrier(local_deadline);
    for (int of = 0; of < size(); ++of)
      if (provider(of) != rank())
        segment_->load(kData, piece_in_segment(piece, layout_.local_rank_of(provider(of)), number, of),
                       piece_of(of), layout_.local_rank_of(provider(of)), number, of);
  }
}

std::vector<std::string> HierarchicalTransport::gather_object(const Call& call, const std::string& local) {
  enter(call);
  return gather_texts(*links_, local, call.deadline);
}

std::unique_ptr<Transport> HierarchicalTransport::split(const Call& call, int color) {
  enter(call);
  std::vector<int> members, host_of_member;
  auto part = split_links(*links_, color, call.deadline, members);
  for (const int other : members) host_of_member.push_back(layout_.host_of(other));
  MessageLinks& links = *part;
  return make_hierarchical_transport(
      std::move(part), host_of_member,
      [&](const std::string& text) { return exchange_texts(links, text, call.deadline); }, chunk_bytes_);
}

bool HierarchicalTransport::poll_peers() {
  const bool on_this_host = segment_->poll_between_collectives();
  return links_->poll_peers() || on_this_host;
}

void HierarchicalTransport::finish(const Call& call) {
  enter(call);
  links_->leave(call.deadline);
}

void HierarchicalTransport::abort(const std::string& reason) noexcept {
  segment_->fail(reason);
  links_->abort(reason);
}

}  // namespace convoy::dist
