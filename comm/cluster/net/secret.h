// The secret of a job, with which its ranks recognize each other.
#pragma once

#include <string>

namespace convoy::dist {

/// The environment variable that holds the secret.
constexpr const char* kSecretVariable = "CONVOY_SECRET";

/// Returns the value of CONVOY_SECRET, which is the same on all ranks of a job; an empty string if it is
/// unset. Throws UsageError if it has less than 16 characters: it could be guessed.
std::string job_secret();

/// Returns a random string of 128 bits, which is unique across processes and calls and cannot be guessed.
std::string random_token();

/// Returns the HMAC-SHA256 of `text` in hexadecimal (RFC 2104): only who knows `key` can compute it. `key`
/// may be empty.
std::string hmac(const std::string& key, const std::string& text);

/// Returns whether two strings are equal, in a time that does not depend on where they differ.
bool is_equal_secret(const std::string& a, const std::string& b);

}  // namespace convoy::dist
