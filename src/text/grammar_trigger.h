// Where a grammar begins to hold in an answer that is free at first.
#pragma once

#include <cstddef>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "winnow/sampling.h"

namespace winnow {

class GrammarTrigger {
 public:
  // Throws Error(kInvalidArgument) for patterns that cannot be read.
  explicit GrammarTrigger(const GrammarStart& start);

  // Takes more of the answer. The text from which the grammar holds, once it is there.
  std::optional<std::string> add(std::string_view text);

 private:
  bool is_thinking() const;

  GrammarStart start_;
  std::vector<std::regex> patterns_;
  std::string text_;            // the answer's
  std::size_t n_searched_ = 0;  // bytes of it in which no word begins
};

}  // namespace winnow
