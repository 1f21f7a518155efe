#include "convoy/comm/parallel/broadcast.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "convoy/comm/core/view_parts.h"
#include "convoy/kernels/runtime/event.h"

namespace convoy::dist {
namespace {

constexpr std::size_t kPackedBytes = std::size_t{4} << 20;  // of tensors that are sent together
constexpr std::size_t kFirstBytes = 256;  // of the first collective of a text: its length, and what fits

/// Calls `collectives` such that what it launches runs after all work enqueued on `compute` so far and before
/// all later work. `ready` and `done` are events of the device.
template <class F>
void in_order(Communicator& comm, const Stream& compute, Event& ready, Event& done, const F& collectives) {
  ready.record(compute);
  ready.wait(comm.stream());
  collectives();
  done.record(comm.stream());
  done.wait(compute);
}

template <class F>
void in_order(Communicator& comm, const Stream& compute, const F& collectives) {
  Event ready(compute), done(compute);
  in_order(comm, compute, ready, done, collectives);
}

}  // namespace

void broadcast_tensors(Communicator& comm, std::span<const Tensor> tensors) {
  for (std::size_t begin = 0, end; begin < tensors.size(); begin = end) {
    const Tensor& first = tensors[begin];
    std::int64_t count = first.numel();
    for (end = begin + 1; end < tensors.size() && tensors[end].dtype() == first.dtype() &&
                          count + tensors[end].numel() <= elements_in(kPackedBytes, first.dtype());)
      count += tensors[end++].numel();
    const Tensor packed =
        end == begin + 1 ? first.reshape({count}) : Tensor::empty({count}, first.dtype(), first.context());
    const auto for_each_part = [&](auto&& copy) {
      std::int64_t at = 0;
      for (std::size_t i = begin; i < end && end > begin + 1; at += tensors[i++].numel())
        copy(tensors[i], packed.slice(at, tensors[i].shape()));
    };
    for_each_part([](const Tensor& tensor, const Tensor& part) { part.copy_from(tensor); });
    in_order(comm, first.stream(), [&] { comm.broadcast(packed.view(), 0); });
    for_each_part([](const Tensor& tensor, const Tensor& part) { tensor.copy_from(part); });
  }
}

void all_reduce_in_order(Communicator& comm, const Tensor& tensor) {
  in_order(comm, tensor.stream(), [&] { comm.all_reduce(tensor.view()); });
}

void all_reduce_and_wait(Communicator& comm, View data) {
  comm.all_reduce(data);
  comm.synchronize();
}

void all_gather_and_wait(Communicator& comm, ConstView local, View gathered) {
  comm.all_gather(local, gathered);
  comm.synchronize();
}

std::string broadcast_text(Communicator& comm, const std::string& local) {
  const auto send = [&](std::string& bytes) {
    const Tensor sent = Tensor::from(std::vector<std::uint8_t>(bytes.begin(), bytes.end()),
                                     {static_cast<std::int64_t>(bytes.size())}, comm.context());
    broadcast_tensors(comm, {{sent}});
    comm.check_errors();
    const std::vector<std::uint8_t> got = sent.to_vector<std::uint8_t>();
    comm.check_errors();  // again: on a GPU, the line above is the first that waits
    bytes.assign(got.begin(), got.end());
  };
  std::uint64_t size = local.size();
  std::string first(kFirstBytes, '\0'), text = local;
  std::memcpy(first.data(), &size, sizeof size);
  first.replace(sizeof size, std::min(size, kFirstBytes - sizeof size), local, 0, kFirstBytes - sizeof size);
  send(first);
  std::memcpy(&size, first.data(), sizeof size);
  if (size <= kFirstBytes - sizeof size) return first.substr(sizeof size, size);
  text.resize(size);
  send(text);
  return text;
}

std::vector<std::string> all_gather_texts(Communicator& comm, const std::string& local) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  const auto size = static_cast<std::int32_t>(local.size());
  std::vector<std::int32_t> sizes(ranks);
  all_gather_and_wait(comm, {&size, {1}, DType::i32}, {sizes.data(), {comm.size()}, DType::i32});
  // Every rank sends as many bytes as the longest text has.
  const std::int64_t longest = *std::max_element(sizes.begin(), sizes.end());
  std::string padded = local, all(ranks * static_cast<std::size_t>(longest), '\0');
  padded.resize(static_cast<std::size_t>(longest));
  all_gather_and_wait(comm, {padded.data(), {longest}, DType::u8},
                      {all.data(), {comm.size() * longest}, DType::u8});
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < ranks; ++rank)
    texts.push_back(
        all.substr(rank * static_cast<std::size_t>(longest), static_cast<std::size_t>(sizes[rank])));
  return texts;
}

void broadcast_model(Communicator& comm, nn::Module& model) {
  std::vector<Tensor> parameters;
  for (const nn::NamedParameter& parameter : model.parameters()) {
    parameter.variable.wait_ready();
    parameters.push_back(parameter.variable.value());
  }
  broadcast_tensors(comm, parameters);
  broadcast_buffers(comm, model);
  model.refresh_low_precision_copies();
}

void broadcast_buffers(Communicator& comm, const nn::Module& model) {
  std::vector<Tensor> buffers;
  for (const nn::NamedBuffer& buffer : model.buffers()) buffers.push_back(buffer.tensor);
  broadcast_tensors(comm, buffers);
}

CommunicatorGroup::CommunicatorGroup(Communicator& comm)
    : comm_(comm), ready_(comm.context().stream()), done_(comm.context().stream()) {}

void CommunicatorGroup::all_gather(const Tensor& local, const Tensor& gathered) {
  in_order(comm_, local.stream(), ready_, done_,
           [&] { comm_.all_gather(local.view(), gathered.reshape({gathered.numel()}).view()); });
  comm_.check_errors();
}

void CommunicatorGroup::all_reduce(const Tensor& values) {
  in_order(comm_, values.stream(), ready_, done_, [&] { comm_.all_reduce(values.view()); });
  comm_.check_errors();
}

}  // namespace convoy::dist
