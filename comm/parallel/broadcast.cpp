#include "convoy/comm/parallel/broadcast.h"

#include <algorithm>
#include <vector>

#include "convoy/kernels/runtime/event.h"

namespace convoy::dist {
namespace {

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
  if (tensors.empty()) return;
  in_order(comm, tensors.front().stream(), [&] {
    for (const Tensor& tensor : tensors) comm.broadcast(tensor.view(), 0);
  });
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
  const DeviceContext& device = comm.context();
  const Tensor size =
      Tensor::from(std::vector<std::int32_t>{static_cast<std::int32_t>(local.size())}, {1}, device);
  broadcast_tensors(comm, {{size}});
  comm.check_errors();
  const std::int32_t count = size.to_vector<std::int32_t>().front();
  comm.check_errors();  // again: on a GPU, the line above is the first that waits
  if (count == 0) return {};

  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count));
  if (comm.rank() == 0) bytes.assign(local.begin(), local.end());
  const Tensor text = Tensor::from(bytes, {count}, device);
  broadcast_tensors(comm, {{text}});
  bytes = text.to_vector<std::uint8_t>();
  comm.check_errors();
  return {bytes.begin(), bytes.end()};
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
