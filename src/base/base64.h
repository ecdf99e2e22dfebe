// Bytes as text: base64 of RFC 4648, with padding.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace winnow {

std::string base64(std::span<const std::uint8_t> bytes);

}  // namespace winnow
