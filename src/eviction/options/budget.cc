// Budgets as text and as an exact number of entries.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <tuple>

#include "base/numbers.h"
#include "winnow/error.h"
#include "winnow/eviction.h"

namespace winnow {
namespace {

struct ByteUnit {
  std::string_view name;
  double bytes;
};

// Longest names first, since each ends in a later one.
constexpr ByteUnit kByteUnits[] = {
    {"GiB", 1073741824.0}, {"MiB", 1048576.0}, {"KiB", 1024.0}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"B", 1.0},
};

constexpr double kMaxTokens = 2147483647.0;
constexpr double kMaxBytes = 0x1p53;

[[noreturn]] void refuse(std::string_view text, const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument, "the budget '" + std::string(text.substr(0, 64)) + "' " + why +
                                               ": give tokens per head (512), a part of the prompt (20%), a part of "
                                               "its bytes in f16 (5%bytes), a size (64MiB) or the loss to allow in "
                                               "nats a token (kl=0.02)");
}

constexpr std::string_view kOfBytes = "%bytes";
constexpr std::string_view kLossPrefix = "kl=";
constexpr double kLeastLoss = 1e-4, kMostLoss = 10;  // nats per token: the cost of rounding alone, and of guessing
constexpr double kMostOfBytes =
    0.3;  // largest part of a prompt's bytes in f16 for a loss: entries of eight bits lose next to nothing

// Returns the shortest percentage that reads back as this fraction.
std::string percent_text(double fraction) {
  for (int digits = 1; digits < 17; ++digits) {
    char buffer[40];
    const auto end =
        std::to_chars(buffer, buffer + sizeof buffer, fraction * 100.0, std::chars_format::general, digits);
    const std::string_view percent(buffer, static_cast<std::size_t>(end.ptr - buffer));
    const std::optional<double> back = parse_double(percent);
    if (back && *back / 100.0 == fraction && percent.find('e') == std::string_view::npos) return std::string(percent);
  }
  char buffer[400];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, fraction * 100.0, std::chars_format::fixed);
  return {buffer, end.ptr};
}

// Parses plain decimal notation only: no sign, exponent, hexadecimal or infinity.
std::optional<double> plain_number(std::string_view text) {
  if (text.find_first_not_of("0123456789.") != std::string_view::npos) return std::nullopt;
  return parse_double(text);
}

}  // namespace

Budget Budget::parse(std::string_view text) {
  if (text.empty()) refuse(text, "is empty");
  if (text.front() == '-') refuse(text, "is negative");
  if (text.starts_with(kLossPrefix)) {
    const std::optional<double> loss = plain_number(text.substr(kLossPrefix.size()));
    if (!loss) refuse(text, "is not a number of nats");
    if (*loss < kLeastLoss) refuse(text, "allows a smaller loss than any cut can keep to");
    if (*loss > kMostLoss) refuse(text, "allows any loss");
    return {.unit = Unit::kLoss, .amount = *loss};
  }
  const bool is_of_bytes = text.ends_with(kOfBytes);
  if (text.back() == '%' || is_of_bytes) {
    const std::optional<double> percent =
        plain_number(text.substr(0, text.size() - (is_of_bytes ? kOfBytes.size() : 1)));
    if (!percent) refuse(text, "is not a percentage");
    if (!(*percent > 0)) refuse(text, "keeps nothing");
    if (*percent > 100) refuse(text, "is more than the whole prompt");
    return {.unit = is_of_bytes ? Unit::kByteFraction : Unit::kFraction, .amount = *percent / 100.0};
  }
  for (const ByteUnit& unit : kByteUnits) {
    if (!text.ends_with(unit.name)) continue;
    const std::optional<double> number = plain_number(text.substr(0, text.size() - unit.name.size()));
    if (!number) refuse(text, "is not a number of " + std::string(unit.name));
    const double bytes = std::floor(*number * unit.bytes);
    if (!(bytes >= 1)) refuse(text, "keeps nothing");
    if (bytes > kMaxBytes) refuse(text, "is too large");
    return {.unit = Unit::kBytes, .amount = bytes};
  }
  const std::optional<double> tokens = plain_number(text);
  if (!tokens) refuse(text, "is not understood");
  if (*tokens == 0) refuse(text, "keeps nothing");
  if (*tokens != std::floor(*tokens)) refuse(text, "is not a whole number of tokens");
  if (*tokens > kMaxTokens) refuse(text, "is too large");
  return {.unit = Unit::kTokens, .amount = *tokens};
}

void Budget::validate() const {
  const auto [least, most, what] = [&]() -> std::tuple<double, double, const char*> {
    switch (unit) {
      case Unit::kTokens:
        return {0, kMaxTokens, "tokens per head"};
      case Unit::kBytes:
        return {0, kMaxBytes, "bytes"};
      case Unit::kLoss:
        return {0, kMostLoss, "nats a token"};
      case Unit::kFraction:
      case Unit::kByteFraction:
        return {0, 1, "of the prompt, as a fraction"};
    }
    return {};
  }();
  if (amount > 0 && amount >= least && amount <= most) return;
  throw Error(ErrorCode::kInvalidArgument, "a budget of " + format_number(amount) + " " + what +
                                               " is out of range: " + "give more than " + format_number(least) +
                                               ", up to " + format_number(most));
}

std::string Budget::text() const {
  switch (unit) {
    case Unit::kTokens:
      return std::to_string(static_cast<std::int64_t>(amount));
    case Unit::kFraction:
      return percent_text(amount) + "%";
    case Unit::kByteFraction:
      return percent_text(amount) + std::string(kOfBytes);
    case Unit::kLoss: {
      char buffer[40];  // 0.0001 has as many digits as any
      const auto end = std::to_chars(buffer, buffer + sizeof buffer, amount, std::chars_format::fixed);
      return std::string(kLossPrefix).append(buffer, end.ptr);
    }
    case Unit::kBytes:
      for (const ByteUnit& byte_unit : kByteUnits) {
        if (byte_unit.name.size() == 2 || std::fmod(std::floor(amount), byte_unit.bytes) != 0) {
          continue;  // prefers KiB to KB
        }
        char buffer[40];
        const auto end =
            std::to_chars(buffer, buffer + sizeof buffer, static_cast<std::int64_t>(amount / byte_unit.bytes));
        return std::string(buffer, end.ptr) + std::string(byte_unit.name);
      }
  }
  return {};
}

Budget Budget::most() const {
  if (unit != Unit::kLoss) return *this;
  return {.unit = Unit::kByteFraction, .amount = kMostOfBytes};
}

std::int64_t Budget::total_entries(std::int64_t n_tokens, std::int64_t n_heads, const EntryBytes& entry) const {
  if (unit == Unit::kLoss) return most().total_entries(n_tokens, n_heads, entry);
  const auto all = static_cast<double>(n_tokens * n_heads);
  const double extra = static_cast<double>(n_heads) * entry.head_extra;
  double total = all;
  switch (unit) {
    case Unit::kTokens:
      total = amount * static_cast<double>(n_heads);
      break;
    case Unit::kFraction:
      // Halves are rounded up, even if the product with the decimal fraction is below the half by a rounding error.
      total = std::floor(amount * all + 0.5 + 1e-9);
      break;
    case Unit::kBytes:
      total = std::floor((amount - extra) / entry.stored);
      break;
    case Unit::kByteFraction:
      // A fraction that gives a whole number of entries must not fall below it, as above.
      total = std::floor((amount * all * entry.f16_rows - extra) / entry.stored + 1e-9);
      break;
    case Unit::kLoss:
      break;
  }
  return static_cast<std::int64_t>(std::clamp(total, 0.0, all));
}

}  // namespace winnow
