#include "datasets/device_feed.h"

#include <utility>

#include "kernels/runtime/error.h"

namespace convoy {

DeviceFeed::DeviceFeed(const Device& device, std::size_t most_behind)
    : device_(device), most_behind_(most_behind), uploader_(device) {}

void DeviceFeed::send(Batch batch) {
  take_back_sources();
  sent_.push_back({.source = std::move(batch), .batch = {}, .upload = {}});
  try {
    begin(sent_.back());
  } catch (const DeviceError&) {  // receive() fails likewise, unless memory has come free by then
  }
}

Batch DeviceFeed::receive() {
  Parcel& first = sent_.front();
  if (!first.upload) begin(first);
  first.upload->join();
  Batch batch = std::exchange(first.batch, {});
  behind_.push_back(std::move(first));
  sent_.pop_front();
  return batch;
}

void DeviceFeed::clear() {
  while (!sent_.empty()) {
    // Whoever gets the memory next works on the compute stream.
    if (sent_.front().upload)
      receive();
    else
      sent_.pop_front();
  }
}

void DeviceFeed::begin(Parcel& parcel) {
  Batch batch = parcel.source;
  std::vector<Uploader::Copy> copies;
  for (Tensor* tensor : {&batch.images, &batch.labels, &batch.ids}) {
    const ConstView from = tensor->view();
    *tensor = Tensor::empty(tensor->shape(), tensor->dtype(), device_);
    copies.push_back({.from = from, .to = tensor->view()});
  }
  parcel.upload = uploader_.start(copies);
  parcel.batch = std::move(batch);
}

void DeviceFeed::take_back_sources() {
  while (!behind_.empty() && (behind_.front().upload->done() || behind_.size() >= most_behind_)) {
    behind_.front().upload->wait();
    behind_.pop_front();
  }
}

}  // namespace convoy
