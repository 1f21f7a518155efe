#include "convoy/datasets/loader/device_feed.h"

#include <utility>

#include "convoy/kernels/base/error.h"

namespace convoy::data {

DeviceFeed::DeviceFeed(const DeviceContext& device, std::size_t max_behind)
    : device_(device), max_behind_(max_behind), uploader_(device) {}

void DeviceFeed::send(Batch batch) {
  release_sources();
  sent_.push_back({.source = std::move(batch), .batch = {}, .upload = {}});
  try {
    begin(sent_.back());
  } catch (const DeviceError&) {  // receive() tries again, and throws if there is still no memory
  }
}

Batch DeviceFeed::receive() {
  InFlightBatch& first = sent_.front();
  if (!first.upload) begin(first);
  first.upload->wait_on_compute_stream();
  Batch batch = std::exchange(first.batch, {});
  behind_.push_back(std::move(first));
  sent_.pop_front();
  return batch;
}

void DeviceFeed::clear() {
  while (!sent_.empty()) {
    // The next user of the memory works on the compute stream, which must wait for the upload.
    if (sent_.front().upload)
      receive();
    else
      sent_.pop_front();
  }
}

void DeviceFeed::begin(InFlightBatch& batch_in_flight) {
  Batch batch = batch_in_flight.source;
  std::vector<Uploader::Copy> copies;
  for (Tensor* tensor : {&batch.images, &batch.labels, &batch.ids, &batch.partner_labels}) {
    if (!tensor->defined()) continue;
    const ConstView from = tensor->view();
    *tensor = Tensor::empty(tensor->shape(), tensor->dtype(), device_);
    copies.push_back({.from = from, .to = tensor->view()});
  }
  batch_in_flight.upload = uploader_.start(copies);
  batch_in_flight.batch = std::move(batch);
}

void DeviceFeed::release_sources() {
  while (!behind_.empty() && (behind_.front().upload->done() || behind_.size() >= max_behind_)) {
    behind_.front().upload->wait();
    behind_.pop_front();
  }
}

}  // namespace convoy::data
