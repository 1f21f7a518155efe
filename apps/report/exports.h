// The logs of runs for other programs: a table in CSV, and event files of TensorBoard.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/apps/report/run_record.h"

namespace convoy::report {

/// Returns a table (RFC 4180) with one record per step, eval and result event: the run's name, the event, its
/// time and the fields of all these events. Fields that an event does not have are empty.
std::string to_csv(const std::vector<RunRecord>& runs);

/// The name of the event file. TensorBoard reads files whose name contains "tfevents".
inline constexpr const char* kEventFile = "events.out.tfevents.0.convoy";

/// Returns the bytes of an event file with the numbers of the step, eval and result events: `train/loss`,
/// `train/lr`, `test/accuracy` and so on. The format is that of TFRecord: records with masked CRC-32C, of
/// which each is a protocol buffer of type tensorflow.Event.
std::string to_event_file(const RunRecord& run);

/// Returns the CRC-32C (Castagnoli) of the bytes.
std::uint32_t crc32c(std::string_view bytes);

}  // namespace convoy::report
