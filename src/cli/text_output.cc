#include "cli/text_output.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "winnow/error.h"

namespace winnow::cli {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Range {
  unsigned char low, high;
};

// The bytes that may follow a leading byte first: without overlong forms, surrogates and numbers above U+10FFFF.
Range second_byte_range(unsigned char lead) {
  switch (lead) {
    case 0xE0:
      return {0xA0, 0xBF};
    case 0xED:
      return {0x80, 0x9F};
    case 0xF0:
      return {0x90, 0xBF};
    case 0xF4:
      return {0x80, 0x8F};
    default:
      return {0x80, 0xBF};
  }
}

std::size_t sequence_length(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return 2;
  if (lead >= 0xE0 && lead <= 0xEF) return 3;
  if (lead >= 0xF0 && lead <= 0xF4) return 4;
  return 0;  // never leads
}

}  // namespace

bool write_all(int descriptor, std::string_view bytes, const std::string& name) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EPIPE) {
      return false;
    } else if (errno != EINTR) {
      throw Error(ErrorCode::kIo, "writing to " + name + " failed: " + std::strerror(errno));
    }
  }
  return true;
}

std::string CharacterAssembler::put(std::string_view bytes) {
  waiting_ += bytes;
  std::string text;
  std::size_t i = 0;
  while (i < waiting_.size()) {
    const auto lead = static_cast<unsigned char>(waiting_[i]);
    const std::size_t length = sequence_length(lead);
    if (length == 0) {
      text += kReplacement;
      ++i;
      continue;
    }
    const std::size_t have = std::min(length, waiting_.size() - i);
    std::size_t valid = 1;
    for (; valid < have; ++valid) {
      const auto byte = static_cast<unsigned char>(waiting_[i + valid]);
      const Range range = valid == 1 ? second_byte_range(lead) : Range{0x80, 0xBF};
      if (byte < range.low || byte > range.high) break;
    }
    if (valid < have) {
      text += kReplacement;
      i += valid;
      continue;
    }
    if (have < length) break;
    text.append(waiting_, i, length);
    i += length;
  }
  waiting_.erase(0, i);
  return text;
}

std::string CharacterAssembler::finish() {
  const bool incomplete = !waiting_.empty();
  waiting_.clear();
  return incomplete ? std::string(kReplacement) : "";
}

}  // namespace winnow::cli
