#include "gguf/split_name.h"

#include <cstdio>
#include <filesystem>
#include <string_view>

namespace winnow {
namespace {

constexpr std::size_t kDigits = 5;

// Removes the five digits at the end of the text and returns their number, or -1 if the text does not end so.
int take_number(std::string_view& text) {
  if (text.size() < kDigits) return -1;
  const std::string_view digits = text.substr(text.size() - kDigits);
  int number = 0;
  for (const char digit : digits) {
    if (digit < '0' || digit > '9') return -1;
    number = 10 * number + (digit - '0');
  }
  text.remove_suffix(kDigits);
  return number;
}

bool take_ending(std::string_view& text, std::string_view ending) {
  if (!text.ends_with(ending)) return false;
  text.remove_suffix(ending.size());
  return true;
}

}  // namespace

std::string SplitName::path_of(int number_of_part) const {
  char ending[32];
  std::snprintf(ending, sizeof(ending), "-%05d-of-%05d.gguf", number_of_part, count);
  return stem + ending;
}

std::optional<SplitName> split_name(const std::string& path) {
  std::string_view rest = path;
  if (!take_ending(rest, ".gguf")) return std::nullopt;
  const int count = take_number(rest);
  if (count < 0 || !take_ending(rest, "-of-")) return std::nullopt;
  const int number = take_number(rest);
  if (number < 0 || !take_ending(rest, "-")) return std::nullopt;
  return SplitName{.stem = std::string(rest), .number = number, .count = count};
}

std::string model_name_of(const std::string& path) {
  const std::optional<SplitName> split = split_name(path);
  if (!split) return std::filesystem::path(path).stem().string();
  // The stem may contain dots: Model-1.5B.
  return std::filesystem::path(split->stem).filename().string();
}

}  // namespace winnow
