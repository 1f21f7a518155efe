#include "convoy/comm/cluster/net/secret.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <fmt/ranges.h>
#include <cstdlib>
#include <random>

#include "convoy/kernels/base/check.h"

namespace convoy::dist {

std::string job_secret() {
  constexpr std::size_t kMinSecretCharacters = 16;
  const char* const value = std::getenv(kSecretVariable);
  if (value == nullptr || *value == '\0') return "";
  const std::string secret = value;
  check(secret.size() >= kMinSecretCharacters,
        "{}: found {} characters, expected at least {}; make one with: openssl rand -hex 16", kSecretVariable,
        secret.size(), kMinSecretCharacters);
  return secret;
}

std::string random_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

std::string hmac(const std::string& key, const std::string& text) {
  unsigned char code[EVP_MAX_MD_SIZE];
  unsigned bytes = 0;
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), code, &bytes) == nullptr)
    fail<UsageError>("OpenSSL cannot compute an HMAC-SHA256");
  return fmt::format("{:02x}", fmt::join(code, code + bytes, ""));
}

bool is_equal_secret(const std::string& a, const std::string& b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace convoy::dist
