#include "cli/number_text.h"

#include <cstdio>
#include <iterator>

namespace winnow::cli {

std::string count_text(std::int64_t count) {
  std::string digits = std::to_string(count);
  const std::size_t first = count < 0 ? 1 : 0;
  for (std::size_t i = digits.size(); i > first + 3;) {
    i -= 3;
    digits.insert(i, 1, ',');
  }
  return digits;
}

std::string fixed_text(double value, int decimals) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.*f", decimals, value);
  return buffer;
}

std::string bytes_text(std::size_t bytes) {
  if (bytes < 1024) return std::to_string(bytes) + " B";
  const char* const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  while (value >= 1023.95 && unit + 1 < std::size(units)) {
    value /= 1024;
    ++unit;
  }
  return fixed_text(value, 1) + " " + units[unit];
}

std::string mebibytes_text(std::size_t bytes) { return fixed_text(static_cast<double>(bytes) / (1 << 20), 1); }

std::string short_count_text(double count) {
  if (count >= 1e9) return fixed_text(count / 1e9, 1) + "B";
  if (count >= 1e6) return fixed_text(count / 1e6, 0) + "M";
  return fixed_text(count / 1e3, 0) + "K";
}

}  // namespace winnow::cli
