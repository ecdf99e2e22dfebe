// The metadata of one architecture in a file, read with bounds on every number.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gguf/gguf_file.h"
#include "winnow/error.h"

namespace winnow {

inline constexpr double kSmallestConstant = 1e-9, kLargestConstant = 1e12;  // bounds of a model's constants

// A reader of metadata. Keys are given without the architecture's name. Every function throws an Error naming the key
// for a value of another type or out of its bounds (GgufFile::refuse_value), and, unless it takes or returns a
// fallback, Error(kBadFile) for one that is absent.
class Metadata {
 public:
  Metadata(const GgufFile& file, std::string_view architecture)
      : file_(file), prefix_(std::string(architecture) + ".") {}

  const GgufFile& file() const { return file_; }
  bool has(const std::string& key) const;
  float number(const std::string& key, double min, double max) const;
  float number_or(const std::string& key, double otherwise, double min, double max) const;
  int integer(const std::string& key, int min, int max) const;
  int integer_or(const std::string& key, int otherwise, int min, int max) const;
  bool truth_or(const std::string& key, bool otherwise) const;
  std::string text_or(const std::string& key, const std::string& otherwise) const;
  // Returns a whole number for every layer, [n_layer]. The file has an array with one for each, or one number for all.
  std::vector<int> of_layers(const std::string& key, int n_layer, int min, int max,
                             std::optional<std::vector<int>> otherwise = std::nullopt) const;
  std::optional<std::vector<std::int64_t>> find_integers(const std::string& key) const;

  // Throws an Error with the file's name before the sentence.
  [[noreturn]] void refuse(ErrorCode code, const std::string& sentence) const;

 private:
  float checked(const std::string& key, double value, double min, double max) const;

  const GgufFile& file_;
  std::string prefix_;
};

}  // namespace winnow
