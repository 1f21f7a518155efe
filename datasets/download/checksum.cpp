#include <openssl/evp.h>

#include <array>
#include <fstream>
#include <memory>

#include "convoy/datasets/download/download.h"
#include "convoy/kernels/base/check.h"

namespace convoy::data {

std::string md5_of_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail<DataError>("{}: cannot be read", path.string());

  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  if (!context || EVP_DigestInit_ex(context.get(), EVP_md5(), nullptr) != 1)
    fail<DataError>("{}: the checksum cannot be computed, because OpenSSL has no MD5 (FIPS mode?)",
                    path.string());
  std::vector<char> buffer(std::size_t{1} << 20);
  while (file.read(buffer.data(), static_cast<std::streamsize>(buffer.size())), file.gcount() > 0)
    EVP_DigestUpdate(context.get(), buffer.data(), static_cast<std::size_t>(file.gcount()));
  if (file.bad()) fail<DataError>("{}: reading failed before the end of the file", path.string());

  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int length = 0;
  EVP_DigestFinal_ex(context.get(), digest.data(), &length);
  std::string text;
  for (unsigned int i = 0; i < length; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

}  // namespace convoy::data
