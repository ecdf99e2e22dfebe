// The names of the files of a model that is published in several: name-00001-of-00003.gguf and so on.
#pragma once

#include <optional>
#include <string>

namespace winnow {

// A path of that form.
struct SplitName {
  std::string stem;       // the path, with the folder, before "-00001-of-"
  int number = 0, count;  // number counts from 1 and may be anything that five digits can say

  // Returns the path of the part with that number.
  std::string path_of(int number_of_part) const;
};

// Returns the components of a path, or nullopt if it has another form.
std::optional<SplitName> split_name(const std::string& path);

// Returns a model file's name without folder, ending and number of the part, for a model that has no other name.
std::string model_name_of(const std::string& path);

}  // namespace winnow
