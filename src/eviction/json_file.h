// JSON files that a user names: read whole, with errors that say what is wrong.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace winnow {

// Error(kBadFile): "'path' why".
[[noreturn]] void refuse_file(const std::string& path, const std::string& why);

// Throws Error(kIo) for a file that cannot be read.
std::string read_file(const std::string& path);

// Throws Error(kIo), or Error(kBadFile) for what is not JSON.
nlohmann::json read_json(const std::string& path);

// Writes under a temporary name and renames: a file is either whole or as it was. Throws Error(kIo).
void write_file(const std::string& path, const std::string& text);

// Throws Error(kBadFile) for anything but a finite number.
double number_of(const std::string& path, const nlohmann::json& value);

}  // namespace winnow
