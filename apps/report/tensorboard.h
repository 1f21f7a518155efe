// The log of a run as an event file of TensorBoard.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "convoy/apps/report/run_record.h"

namespace convoy::report {

/// The name of the event file. TensorBoard reads files whose name contains "tfevents".
inline constexpr const char* kEventFile = "events.out.tfevents.0.convoy";

/// Returns the bytes of an event file with the numbers of the step, eval and result events: `train/loss`,
/// `train/lr`, `test/accuracy` and so on. The format is that of TFRecord: records with masked CRC-32C, of
/// which each is a protocol buffer of type tensorflow.Event.
std::string to_event_file(const RunRecord& run);

/// Returns the CRC-32C (Castagnoli) of the bytes.
std::uint32_t crc32c(std::string_view bytes);

}  // namespace convoy::report
