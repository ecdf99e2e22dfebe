// The trigger of a lazy grammar, which holds only from some place in the answer on (GrammarStart).
#pragma once

#include <cstddef>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "winnow/sampling.h"

namespace winnow {

// A search for that place in one answer.
class GrammarTrigger {
 public:
  // Throws Error(kInvalidArgument) for patterns that cannot be read.
  explicit GrammarTrigger(const GrammarStart& start);

  // Takes the next piece of the answer. Returns the answer from the place on from which the grammar holds, or nullopt
  // while there is none. If the grammar refuses that text, the search goes on with the next call.
  std::optional<std::string> add(std::string_view text);

 private:
  bool is_thinking() const;

  GrammarStart start_;
  std::vector<std::regex> patterns_;
  std::string text_;            // the answer so far
  std::size_t n_searched_ = 0;  // bytes of `text_` that have been searched
};

}  // namespace winnow
