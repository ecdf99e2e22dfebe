// How the files of a model are named that is published in several: name-00001-of-00003.gguf and so on.
#pragma once

#include <optional>
#include <string>

namespace winnow {

struct SplitName {
  std::string stem;       // with the folder, up to "-00001-of-"
  int number = 0, count;  // number counts from 1 and may be anything that five digits can say

  std::string path_of(int number_of_part) const;
};

// Nothing for a path that is not named so.
std::optional<SplitName> split_name(const std::string& path);

// A model's file without its folder, its ending and which part it is: what a model is called that has no other name.
std::string model_name_of(const std::string& path);

}  // namespace winnow
