#include "comm/hierarchical_transport.h"

#include <algorithm>
#include <utility>

#include "comm/cpu_sum.h"
#include "comm/view_parts.h"

namespace convoy {
namespace {

constexpr double kTelling = 2;  // seconds, for the reason of a neighbour that has given up

std::int64_t elements(std::size_t bytes, DType dtype) {
  return static_cast<std::int64_t>(bytes / size_of(dtype));
}

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
                                             std::unique_ptr<ShmWindow> window, std::size_t chunk_bytes)
    : links_(std::move(links)),
      layout_(std::move(layout)),
      window_(std::move(window)),
      chunk_bytes_(chunk_bytes) {
  // Who waits for another host also learns when a neighbour dies or gives up.
  links_->watch([this] { window_->look(); });
}

void HierarchicalTransport::start() { links_->start(); }

template <class F>
void HierarchicalTransport::for_each_other_host(F&& f) const {
  for (int host = 0; host < layout_.hosts(); ++host)
    if (host != layout_.host()) f(host);
}

void HierarchicalTransport::send(int to, const ConstView& view) {
  if (view.bytes() > 0) links_->send(to, {view.as<std::byte>(), view.bytes()});
}

void HierarchicalTransport::receive(int from, const View& view) {
  if (view.bytes() > 0) links_->receive(from, {view.as<std::byte>(), view.bytes()});
}

Deadline HierarchicalTransport::enter(const Call& call) {
  window_->posted(layout_.local(), entered_) = call.collective;
  window_->step();
  std::vector<Collective> by_rank(static_cast<std::size_t>(size()));
  for_each_other_host([&](int host) {
    for (const int other : layout_.ranks_of(host)) {
      links_->send(other, std::as_bytes(std::span(&call.collective, 1)));
      links_->receive(other, std::as_writable_bytes(std::span(&by_rank[static_cast<std::size_t>(other)], 1)));
    }
  });
  links_->wait(call.deadline);
  window_->wait(call.deadline);
  for (const int neighbour : layout_.neighbours())
    by_rank[static_cast<std::size_t>(neighbour)] = window_->posted(layout_.local_of(neighbour), entered_);
  check_same(by_rank);
  ++entered_;
  return Deadline(call.deadline.seconds() + kTelling);
}

void HierarchicalTransport::meet_inside(const Deadline& inside) {
  window_->step();
  window_->wait(inside);
}

View HierarchicalTransport::slice_in_window(const ConstView& slice, int local, std::int64_t number,
                                            int carrier) const {
  const std::size_t room = slice_bytes(chunk_bytes_);
  return {window_->chunk(local, number) + static_cast<std::size_t>(carrier) * room, slice.shape, slice.dtype};
}

View HierarchicalTransport::piece_in_window(const ConstView& piece, int local, std::int64_t number,
                                            int of) const {
  const std::size_t room = chunk_bytes_ / static_cast<std::size_t>(size());
  return {window_->chunk(local, number) + static_cast<std::size_t>(of) * room, piece.shape, piece.dtype};
}

/// In whole cache lines.
std::size_t HierarchicalTransport::slice_bytes(std::size_t chunk_bytes) const {
  const auto carriers = static_cast<std::size_t>(layout_.carriers());
  return ((chunk_bytes + carriers - 1) / carriers + 63) / 64 * 64;
}

View HierarchicalTransport::slice_of(const View& chunk, int carrier) const {
  const std::int64_t most = elements(slice_bytes(chunk.bytes()), chunk.dtype);
  const std::int64_t begin = std::min(most * carrier, chunk.numel());
  return part_of(chunk, begin, std::min(most, chunk.numel() - begin));
}

template <class AnyView>
AnyView HierarchicalTransport::share_of(const AnyView& slice, int host) const {
  const std::int64_t begin = slice.numel() * host / layout_.hosts();
  return part_of(slice, begin, slice.numel() * (host + 1) / layout_.hosts() - begin);
}

View HierarchicalTransport::partial_of(const View& slice, std::int64_t number) {
  if (sum_type(slice.dtype) == slice.dtype) return slice;
  std::vector<char>& scratch = partials_[static_cast<std::size_t>(number % 2)];
  make_room(scratch, bytes_of_sums(slice.numel(), slice.dtype));
  return place_in(scratch, 0, slice.shape, sum_type(slice.dtype));
}

View HierarchicalTransport::incoming(const ConstView& share, int host) {
  const std::size_t bytes = bytes_of_sums(share.numel(), share.dtype);
  make_room(incoming_, bytes * static_cast<std::size_t>(layout_.hosts()));
  return place_in(incoming_, static_cast<std::size_t>(host) * bytes, share.shape, sum_type(share.dtype));
}

/// Three chunks are under way: while the hosts' sums of one travel, and the complete sums of the one before,
/// the next is summed inside. Of the window's two buffers one is filled while the other is read: nobody fills
/// one for chunk n before all have come to the sums of n - 1, and so are done with those of n - 2. A
/// carrier's own slice in its buffer is read by nobody; there it puts the complete sum of that slice.
void HierarchicalTransport::all_reduce(const Call& call, View data) {
  const Deadline inside = enter(call);
  const std::int64_t most = elements(chunk_bytes_, data.dtype);
  const std::int64_t chunks = (data.numel() + most - 1) / most;
  const auto chunk_of = [&](std::int64_t number) {
    return part_of(data, number * most, std::min(most, data.numel() - number * most));
  };
  if (chunks == 0) return;
  for (std::int64_t number = 0; number < chunks + 2; ++number) {
    if (number < chunks) reduce_inside(call, chunk_of(number), number, inside);
    links_->wait(call.deadline);
    const std::int64_t last = number - 1;
    if (last >= 0 && last < chunks) reduce_between(call, chunk_of(last), last);
    if (last > 0) spread_inside(chunk_of(last - 1), last - 1, inside);
    if (number < chunks) begin_to_exchange_partials(chunk_of(number), number);
    if (last >= 0 && last < chunks) begin_to_exchange_sums(chunk_of(last));
  }
}

void HierarchicalTransport::reduce_inside(const Call& call, const View& chunk, std::int64_t number,
                                          const Deadline& inside) {
  for (int carrier = 0; carrier < layout_.carriers(); ++carrier) {
    if (carrier == layout_.local()) continue;
    const View slice = slice_of(chunk, carrier);
    copy_view(slice, slice_in_window(slice, layout_.local(), number, carrier));
  }
  meet_inside(inside);
  if (!layout_.carries()) return;
  const View slice = slice_of(chunk, layout_.local());
  if (slice.numel() == 0) return;
  std::vector<ConstView> parts;
  for (const int neighbour : layout_.neighbours()) {
    const int local = layout_.local_of(neighbour);
    parts.push_back(local == layout_.local() ? slice
                                             : slice_in_window(slice, local, number, layout_.local()));
  }
  sum_in_order(call.stream, parts, partial_of(slice, number));
}

void HierarchicalTransport::begin_to_exchange_partials(const View& chunk, std::int64_t number) {
  if (!layout_.carries()) return;
  const View slice = slice_of(chunk, layout_.local());
  const View partial = partial_of(slice, number);
  for_each_other_host([&](int host) {
    const int counterpart = layout_.proxy_of(rank(), host);
    send(counterpart, share_of(partial, host));
    receive(counterpart, incoming(share_of(slice, layout_.host()), host));
  });
}

void HierarchicalTransport::reduce_between(const Call& call, const View& chunk, std::int64_t number) {
  if (!layout_.carries()) return;
  const View slice = slice_of(chunk, layout_.local());
  const View sum = share_of(slice, layout_.host());
  if (sum.numel() == 0) return;
  std::vector<ConstView> parts;
  for (int host = 0; host < layout_.hosts(); ++host)
    parts.push_back(host == layout_.host() ? share_of(partial_of(slice, number), host) : incoming(sum, host));
  sum_in_order(call.stream, parts, sum);
}

void HierarchicalTransport::begin_to_exchange_sums(const View& chunk) {
  if (!layout_.carries()) return;
  const View slice = slice_of(chunk, layout_.local());
  for_each_other_host([&](int host) {
    const int counterpart = layout_.proxy_of(rank(), host);
    send(counterpart, share_of(slice, layout_.host()));
    receive(counterpart, share_of(slice, host));
  });
}

void HierarchicalTransport::spread_inside(const View& chunk, std::int64_t number, const Deadline& inside) {
  if (layout_.carries()) {
    const View sum = slice_of(chunk, layout_.local());
    copy_view(sum, slice_in_window(sum, layout_.local(), number, layout_.local()));
  }
  meet_inside(inside);
  for (int carrier = 0; carrier < layout_.carriers(); ++carrier) {
    if (carrier == layout_.local()) continue;
    const View slice = slice_of(chunk, carrier);
    copy_view(slice_in_window(slice, carrier, number, carrier), slice);
  }
}

/// Each part is for one rank: of every other host one rank sums what that host has for it, and sends it.
void HierarchicalTransport::reduce_scatter(const Call& call, ConstView in, View out) {
  const Deadline inside = enter(call);
  const std::int64_t most = elements(chunk_bytes_ / static_cast<std::size_t>(size()), in.dtype);
  std::vector<int> sums;  // whose parts this rank sums: its own, and of other hosts
  for (int of = 0; of < size(); ++of)
    if (layout_.proxy_of(of, layout_.host()) == rank() &&
        (of == rank() || layout_.host_of(of) != layout_.host()))
      sums.push_back(of);
  std::vector<char>& scratch = partials_.front();
  for (std::int64_t number = 0; number * most < out.numel(); ++number) {
    const View sum = part_of(out, number * most, std::min(most, out.numel() - number * most));
    const auto part_for = [&](int of) { return part_of(in, out.numel() * of + number * most, sum.numel()); };
    for (int of = 0; of < size(); ++of)
      copy_view(part_for(of), piece_in_window(sum, layout_.local(), number, of));
    meet_inside(inside);

    const std::size_t bytes = bytes_of_sums(sum.numel(), sum.dtype);
    make_room(scratch, bytes * sums.size());
    ConstView of_my_host;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      std::vector<ConstView> parts;
      for (const int neighbour : layout_.neighbours())
        parts.push_back(piece_in_window(sum, layout_.local_of(neighbour), number, sums[i]));
      const View partial = place_in(scratch, i * bytes, sum.shape, sum_type(sum.dtype));
      sum_in_order(call.stream, parts, partial);
      if (sums[i] == rank()) {
        of_my_host = partial;
      } else {
        send(sums[i], partial);
      }
    }
    std::vector<ConstView> of_hosts;
    for (int host = 0; host < layout_.hosts(); ++host)
      of_hosts.push_back(host == layout_.host() ? of_my_host : incoming(sum, host));
    for_each_other_host([&](int host) { receive(layout_.proxy_of(rank(), host), incoming(sum, host)); });
    links_->wait(call.deadline);
    sum_in_order(call.stream, of_hosts, sum);
  }
}

/// From the root to one rank of each host, which gives it to its neighbours.
void HierarchicalTransport::broadcast(const Call& call, View data) {
  const Deadline inside = enter(call);
  const int root = call.collective.root;
  const int source = layout_.host_of(root) == layout_.host() ? root : layout_.proxy_of(root, layout_.host());
  const std::int64_t most = elements(chunk_bytes_, data.dtype);
  for (std::int64_t number = 0; number * most < data.numel(); ++number) {
    const View chunk = part_of(data, number * most, std::min(most, data.numel() - number * most));
    if (rank() == root) for_each_other_host([&](int host) { send(layout_.proxy_of(root, host), chunk); });
    if (rank() == source) {
      if (rank() != root) {
        receive(root, chunk);
        links_->wait(call.deadline);
      }
      window_->wait(inside);  // a rank that has come to the last chunk has read the one before
      copy_view(chunk, View{window_->chunk(layout_.local(), number), chunk.shape, chunk.dtype});
      window_->step();
    } else {
      window_->step();
      window_->wait_for(layout_.local_of(source), inside);
      copy_view(ConstView(window_->chunk(layout_.local_of(source), number), chunk.shape, chunk.dtype), chunk);
    }
    links_->wait(call.deadline);
  }
}

/// Each part goes to one rank of every other host, which shows it to its neighbours beside its own.
void HierarchicalTransport::all_gather(const Call& call, ConstView in, View out) {
  const Deadline inside = enter(call);
  copy_view(in, part_of(out, in.numel() * rank(), in.numel()));
  const std::int64_t most = elements(chunk_bytes_ / static_cast<std::size_t>(size()), in.dtype);
  // Of this host, where the part of each rank is to be seen.
  const auto shows = [&](int of) {
    return layout_.host_of(of) == layout_.host() ? of : layout_.proxy_of(of, layout_.host());
  };
  for (std::int64_t number = 0; number * most < in.numel(); ++number) {
    const ConstView piece = part_of(in, number * most, std::min(most, in.numel() - number * most));
    const auto piece_of = [&](int of) {
      return part_of(out, in.numel() * of + number * most, piece.numel());
    };
    for_each_other_host([&](int host) { send(layout_.proxy_of(rank(), host), piece); });
    for (int of = 0; of < size(); ++of)
      if (of != rank() && shows(of) == rank()) receive(of, piece_of(of));
    links_->wait(call.deadline);
    for (int of = 0; of < size(); ++of)
      if (shows(of) == rank()) copy_view(piece_of(of), piece_in_window(piece, layout_.local(), number, of));
    meet_inside(inside);
    for (int of = 0; of < size(); ++of)
      if (shows(of) != rank())
        copy_view(piece_in_window(piece, layout_.local_of(shows(of)), number, of), piece_of(of));
  }
}

std::vector<std::string> HierarchicalTransport::gather(const Call& call, const std::string& mine) {
  enter(call);
  return gather_texts(*links_, mine, call.deadline);
}

std::unique_ptr<Transport> HierarchicalTransport::split(const Call& call, int color) {
  enter(call);
  const std::string prefix = std::to_string(color) + " ";
  const std::vector<std::string> all =
      exchange_texts(*links_, prefix + links_->new_group_name(), call.deadline);
  std::vector<int> members, host_of_member;
  for (int other = 0; other < size(); ++other) {
    if (!all[static_cast<std::size_t>(other)].starts_with(prefix)) continue;
    members.push_back(other);
    host_of_member.push_back(layout_.host_of(other));
  }
  const std::string& of_first = all[static_cast<std::size_t>(members.front())];
  auto part = links_->make_group(members, of_first.substr(prefix.size()), call.deadline);
  MessageLinks& links = *part;
  return make_hierarchical_transport(
      std::move(part), host_of_member,
      [&](const std::string& mine) { return exchange_texts(links, mine, call.deadline); }, chunk_bytes_);
}

void HierarchicalTransport::finish(const Call& call) {
  enter(call);
  links_->leave(call.deadline);
}

void HierarchicalTransport::abort(const std::string& reason) noexcept {
  window_->fail(reason);
  links_->abort(reason);
}

}  // namespace convoy
