#include "eviction/json_file.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "winnow/error.h"

namespace winnow {

void refuse_file(const std::string& path, const std::string& why) {
  throw Error(ErrorCode::kBadFile, "'" + path + "' " + why);
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(ErrorCode::kIo, "cannot open '" + path + "': check the path");
  std::ostringstream text;
  try {
    text << file.rdbuf();
  } catch (const std::ios_base::failure&) {
    text.setstate(std::ios::failbit);
  }
  // An empty file sets failbit as well, but is no failure to read.
  if (file.bad() || (text.fail() && file.peek() != std::ifstream::traits_type::eof())) {
    throw Error(ErrorCode::kIo, "cannot read '" + path + "': is it a directory?");
  }
  return text.str();
}

void write_file(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".tmp";
  std::ofstream file(temporary, std::ios::binary);
  file << text;
  file.close();
  if (!file || std::rename(temporary.c_str(), path.c_str()) != 0) {
    const std::string why = std::strerror(errno);
    std::remove(temporary.c_str());
    throw Error(ErrorCode::kIo, "cannot write '" + path + "' (" + why + "): check the folder and the free space");
  }
}

nlohmann::json read_json(const std::string& path) {
  const std::string text = read_file(path);
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception&) {
    refuse_file(path, "is not a JSON file");
  }
}

double number_of(const std::string& path, const nlohmann::json& value) {
  if (!value.is_number() || !std::isfinite(value.get<double>())) {
    refuse_file(path, "holds something that is not a number");
  }
  return value.get<double>();
}

}  // namespace winnow
