// Readers of the JSON files that a user names, with errors that say what is wrong.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/input_file.h"

namespace winnow {

// Throws Error(kBadFile): "'path' why".
[[noreturn]] void refuse_file(const std::string& path, const std::string& why);

// Parses a JSON text. Returns nullopt if it is not JSON, or is nested deeper than any file that is read here: each
// level takes far more memory than the byte that opens it.
std::optional<nlohmann::json> parse_flat_json(std::string_view text);

// Throws Error(kBadFile) if parse_flat_json returns nullopt.
nlohmann::json parse_json(const std::string& path, std::string_view text);

// Reads and parses a file. Throws Error(kIo), and Error(kBadFile) if the file has more bytes than the kind may have or
// parse_json refuses it.
nlohmann::json read_json(const std::string& path, const InputKind& kind);

// Returns the number. Throws Error(kBadFile) unless `value` is a finite number.
double number_of(const std::string& path, const nlohmann::json& value);

}  // namespace winnow
