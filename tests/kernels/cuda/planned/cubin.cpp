#include "tests/kernels/cuda/planned/cubin.h"

#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>

#include "convoy/kernels/base/check.h"

namespace convoy::testing {
namespace {

// Attributes of .nv.info, as `cuobjdump -elf` names them.
constexpr std::uint8_t kRegisterCount = 0x2f, kFrameSize = 0x11;
constexpr std::uint8_t kSizedValue = 0x04;  // a format: a 16-bit size, then as many bytes

template <class T>
T read(std::string_view bytes, std::size_t at) {
  if (at > bytes.size() || bytes.size() - at < sizeof(T))
    fail<DataError>("image of a GPU: found {} bytes, expected {} at offset {}", bytes.size(), sizeof(T), at);
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

std::string_view string_at(std::string_view table, std::size_t at) {
  table.remove_prefix(std::min(at, table.size()));
  return table.substr(0, table.find('\0'));
}

struct Image {
  std::string_view bytes;
  std::vector<Elf64_Shdr> sections;

  explicit Image(std::string_view file) : bytes(file) {
    const auto header = read<Elf64_Ehdr>(bytes, 0);
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
      fail<DataError>("image of a GPU: found no ELF file, expected one");
    for (std::size_t i = 0; i < header.e_shnum; ++i)
      sections.push_back(read<Elf64_Shdr>(bytes, header.e_shoff + i * sizeof(Elf64_Shdr)));
    names_ = contents(sections.at(header.e_shstrndx));
  }
  std::string_view contents(const Elf64_Shdr& section) const {
    return bytes.substr(section.sh_offset, section.sh_size);
  }
  /// Returns the first section of this name.
  const Elf64_Shdr& section(std::string_view name) const {
    for (const Elf64_Shdr& one : sections)
      if (string_at(names_, one.sh_name) == name) return one;
    fail<DataError>("image of a GPU: found no section {}", name);
  }
  std::string symbol_name(std::uint32_t index) const {
    const Elf64_Shdr& table = section(".symtab");
    const auto symbol = read<Elf64_Sym>(contents(table), index * sizeof(Elf64_Sym));
    return std::string(string_at(contents(sections.at(table.sh_link)), symbol.st_name));
  }

 private:
  std::string_view names_;
};

}  // namespace

std::vector<KernelResources> kernels_of_image(std::string_view file) {
  const Image image(file);
  const std::string_view info = image.contents(image.section(".nv.info"));
  std::map<std::uint32_t, KernelResources> kernels;  // by index of the symbol
  for (std::size_t at = 0; at < info.size();) {
    const auto format = read<std::uint8_t>(info, at);
    const auto attribute = read<std::uint8_t>(info, at + 1);
    const auto size = format == kSizedValue ? read<std::uint16_t>(info, at + 2) : std::uint16_t{0};
    if (format == kSizedValue && (attribute == kRegisterCount || attribute == kFrameSize)) {
      KernelResources& kernel = kernels[read<std::uint32_t>(info, at + 4)];
      (attribute == kRegisterCount ? kernel.registers : kernel.local_bytes) =
          read<std::int32_t>(info, at + 8);
    }
    at += 4 + std::size_t{size};
  }
  std::vector<KernelResources> found;
  for (auto& [symbol, kernel] : kernels) {
    kernel.name = image.symbol_name(symbol);
    found.push_back(std::move(kernel));
  }
  return found;
}

}  // namespace convoy::testing
