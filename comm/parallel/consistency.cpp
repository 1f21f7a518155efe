#include "convoy/comm/parallel/consistency.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "convoy/comm/core/collective.h"
#include "convoy/comm/parallel/broadcast.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/reduce.h"

namespace convoy::dist {
namespace {

constexpr std::size_t kMaxPrinted = 3;  // differences listed in one message

/// Returns one line per entry: its name, a tab, its value.
std::string format_consistency_entries(const std::vector<ConsistencyEntry>& entries) {
  std::string text;
  for (const ConsistencyEntry& entry : entries) {
    check((entry.name + entry.value).find_first_of("\t\n") == std::string::npos,
          "consistency entry {}: found a tab or newline in its name or value, expected none", entry.name);
    text += entry.name + '\t' + entry.value + '\n';
  }
  return text;
}

std::vector<ConsistencyEntry> parse_consistency_entries(const std::string& text) {
  std::vector<ConsistencyEntry> entries;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t tab = line.find('\t');
    entries.push_back({line.substr(0, tab), line.substr(tab + 1)});
  }
  return entries;
}

/// Returns one text per difference, in rank 0's order: "lr 0.2, rank 0 has 0.1".
std::vector<std::string> differences(const std::vector<ConsistencyEntry>& expected,
                                     const std::vector<ConsistencyEntry>& found) {
  std::map<std::string_view, std::string_view> by_name;
  for (const ConsistencyEntry& entry : found) by_name[entry.name] = entry.value;
  std::vector<std::string> all;
  for (const ConsistencyEntry& entry : expected) {
    const auto match = by_name.find(entry.name);
    if (match == by_name.end()) {
      all.push_back(fmt::format("no {}, rank 0 has {}", entry.name, entry.value));
      continue;
    }
    if (match->second != entry.value)
      all.push_back(fmt::format("{} {}, rank 0 has {}", entry.name, match->second, entry.value));
    by_name.erase(match);
  }
  for (const auto& [name, value] : by_name) all.push_back(fmt::format("{} {}, rank 0 has none", name, value));
  return all;
}

/// Returns a description of the differences between ranks, or "" if there are none.
std::string describe_differences(const std::vector<std::string>& by_rank) {
  const std::vector<ConsistencyEntry> expected = parse_consistency_entries(by_rank.front());
  std::vector<int> ranks;
  std::string first;
  for (std::size_t rank = 1; rank < by_rank.size(); ++rank) {
    if (by_rank[rank] == by_rank.front()) continue;
    ranks.push_back(static_cast<int>(rank));
    if (ranks.size() > 1) continue;
    std::vector<std::string> all = differences(expected, parse_consistency_entries(by_rank[rank]));
    if (all.empty()) all.emplace_back("the same entries in another order");
    const std::size_t more = all.size() - std::min(all.size(), kMaxPrinted);
    all.resize(all.size() - more);
    first = fmt::format("rank {} has {}", rank, fmt::join(all, "; "));
    if (more > 0) first += fmt::format("; and {} more", more);
  }
  if (ranks.empty()) return "";
  return ranks.size() == 1 ? first : fmt::format("{} ({} differ from rank 0)", first, format_ranks(ranks));
}

/// Returns on every rank what rank 0's `judge` returns for the texts of all ranks.
template <class Judge>
std::string judge_together(Communicator& comm, const std::string& local, Judge&& judge) {
  const std::vector<std::string> by_rank = comm.gather_object(local);
  return broadcast_text(comm, comm.rank() == 0 ? judge(by_rank) : "");
}

constexpr std::size_t kChecksumDigits = 16;

/// Returns the checksum of each tensor, in kChecksumDigits digits. Waits for the device once.
std::string checksums_of(const std::vector<Tensor>& tensors) {
  const auto count = static_cast<std::int64_t>(tensors.size());
  const Tensor values = Tensor::empty({2 * count}, DType::i32, tensors.front().context());
  for (std::int64_t i = 0; i < count; ++i)
    on(values.stream(), [&](auto& s) {
      kernels::checksum(s, tensors[static_cast<std::size_t>(i)].view(), values.slice(2 * i, {2}).view());
    });
  const std::vector<std::int32_t> words = values.to_vector<std::int32_t>();
  std::string text;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    text += fmt::format("{:08x}{:08x}", static_cast<std::uint32_t>(words[2 * i + 1]),
                        static_cast<std::uint32_t>(words[2 * i]));
  return text;
}

/// Returns "rank 2 has the checksum …, the other ranks have …", or all ranks with their checksums.
std::string describe_groups(const std::map<std::string, std::vector<int>>& ranks_with, std::size_t ranks) {
  const auto is_majority = [&](const auto& group) { return 2 * group.second.size() > ranks; };
  const auto majority = std::find_if(ranks_with.begin(), ranks_with.end(), is_majority);
  std::string text;
  for (const auto& [checksum, group] : ranks_with)
    if (majority == ranks_with.end() || checksum != majority->first)
      text += fmt::format("{}{} {} the checksum {}", text.empty() ? "" : ", ", format_ranks(group),
                          group.size() == 1 ? "has" : "have", checksum);
  return majority == ranks_with.end() ? text
                                      : fmt::format("{}, the other ranks have {}", text, majority->first);
}

/// Compares a checksum of each tensor between ranks. Throws CorruptionError with the name of the first one
/// that differs.
template <class FormatName>
void compare_bits(Communicator& comm, const std::vector<Tensor>& tensors, std::string_view when,
                  FormatName&& format_name) {
  const auto judge = [&](const std::vector<std::string>& by_rank) -> std::string {
    for (std::size_t number = 0; number < tensors.size(); ++number) {
      std::map<std::string, std::vector<int>> ranks_with;
      for (std::size_t rank = 0; rank < by_rank.size(); ++rank)
        ranks_with[by_rank[rank].substr(number * kChecksumDigits, kChecksumDigits)].push_back(
            static_cast<int>(rank));
      if (ranks_with.size() > 1)
        return fmt::format("{} differs {}: {}", format_name(number), when,
                           describe_groups(ranks_with, by_rank.size()));
    }
    return "";
  };
  const std::string difference = judge_together(comm, checksums_of(tensors), judge);
  if (!difference.empty()) fail<CorruptionError>("{}", difference);
}

}  // namespace

std::vector<ConsistencyEntry> consistency_entries_of(const nn::Module& model) {
  std::vector<ConsistencyEntry> entries;
  const auto add = [&](const std::string& name, const Tensor& tensor) {
    entries.push_back({name, fmt::format("{} {}", to_string(tensor.dtype()), tensor.shape().text())});
  };
  for (const nn::NamedParameter& parameter : model.parameters())
    add(parameter.name, parameter.variable.value());
  for (const nn::NamedBuffer& buffer : model.buffers()) add(buffer.name, buffer.tensor);
  return entries;
}

void verify_consistency_entries(Communicator& comm, const std::vector<ConsistencyEntry>& local) {
  const std::string difference =
      judge_together(comm, format_consistency_entries(local), describe_differences);
  check(difference.empty(), "ranks do not agree: {}", difference);
}

void verify_equal(Communicator& comm, const std::vector<Tensor>& tensors, std::string_view what,
                  std::string_view when) {
  compare_bits(comm, tensors, when, [&](std::size_t number) { return fmt::format("{} {}", what, number); });
}

void check_replicas(Communicator& comm, const std::vector<nn::NamedParameter>& parameters,
                    std::string_view when) {
  std::vector<Tensor> values;
  for (const nn::NamedParameter& parameter : parameters) {
    parameter.variable.wait_ready();
    values.push_back(parameter.variable.value());
  }
  compare_bits(comm, values, when,
               [&](std::size_t number) { return fmt::format("parameter {}", parameters[number].name); });
}

}  // namespace convoy::dist
