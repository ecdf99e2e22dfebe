// Names of tools and arguments for libllama-common's parsers of calls. Such a parser names its rules after them, with a
// hyphen in place of other characters than letters and digits, so two names may become the same rule.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "winnow/chat.h"

namespace winnow {

class DistinctNames {
 public:
  // Takes tools with plain schemas. If two names would become the same rule, or a rule of the parser's own, all names
  // of tools and arguments in `tools` are replaced by distinct ones.
  explicit DistinctNames(std::vector<ChatTool>& tools);

  // Both put the original names back: into a parser as libllama-common writes it, and into a text that calls begin
  // with.
  std::string parser_with_own(const std::string& parser) const;
  std::string text_with_own(std::string text) const;

 private:
  std::unordered_map<std::string, std::string> own_;  // original names, by their replacements
};

}  // namespace winnow
