// Formats numbers for people.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace winnow::cli {

std::string count_text(std::int64_t count);          // "9,120"
std::string bytes_text(std::size_t bytes);           // "12.3 MiB"
std::string mebibytes_text(std::size_t bytes);       // "12.3", for columns headed MiB
std::string fixed_text(double value, int decimals);  // "61.25"
std::string short_count_text(double count);          // "135M", "1.1B"

}  // namespace winnow::cli
