// Names of tools and arguments for libllama-common's parsers of calls. It names their rules after them, with a hyphen
// for whatever is no letter or digit, and takes two names for one where nothing else tells them apart.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "winnow/chat.h"

namespace winnow {

class DistinctNames {
 public:
  // Of tools with plain schemas. Where two names would be one rule, or one of the parser's own, all of them are
  // replaced.
  explicit DistinctNames(std::vector<ChatTool>& tools);

  // A parser as libllama-common writes it, and what calls begin with, with the names as they were.
  std::string parser_with_own(const std::string& parser) const;
  std::string text_with_own(std::string text) const;

 private:
  std::unordered_map<std::string, std::string> own_;  // by what stands for them
};

}  // namespace winnow
