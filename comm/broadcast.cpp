#include "comm/broadcast.h"

#include <vector>

#include "kernels/runtime/stream_event.h"

namespace convoy {

void broadcast_tensors(Communicator& comm, std::span<const Tensor> tensors) {
  if (tensors.empty()) return;
  const Stream compute = tensors.front().stream();
  StreamEvent ready(compute), done(compute);
  ready.record(compute);
  ready.wait(comm.stream());
  for (const Tensor& tensor : tensors) comm.broadcast(tensor.view(), 0);
  done.record(comm.stream());
  done.wait(compute);
}

std::string broadcast_text(Communicator& comm, const std::string& mine) {
  const Device& device = comm.device();
  const Tensor size =
      Tensor::from(std::vector<std::int32_t>{static_cast<std::int32_t>(mine.size())}, {1}, device);
  broadcast_tensors(comm, {{size}});
  comm.check_errors();
  const std::int32_t count = size.to_vector<std::int32_t>().front();
  comm.check_errors();  // once more: on a GPU the line above was the first to wait
  if (count == 0) return {};

  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count));
  if (comm.rank() == 0) bytes.assign(mine.begin(), mine.end());
  const Tensor text = Tensor::from(bytes, {count}, device);
  broadcast_tensors(comm, {{text}});
  bytes = text.to_vector<std::uint8_t>();
  comm.check_errors();
  return {bytes.begin(), bytes.end()};
}

void broadcast_model(Communicator& comm, Module& model) {
  std::vector<Tensor> state;
  for (const NamedParameter& parameter : model.parameters()) state.push_back(parameter.variable.value());
  for (const NamedBuffer& buffer : model.buffers()) state.push_back(buffer.tensor);
  broadcast_tensors(comm, state);
  model.refresh_half_copies();
}

}  // namespace convoy
