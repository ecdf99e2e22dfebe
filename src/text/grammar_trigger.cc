#include "text/grammar_trigger.h"

#include <algorithm>

#include "winnow/error.h"

namespace winnow {
namespace {

// The patterns describe headers, so only the last bytes are searched for them. (std::regex recurses for every
// character.)
constexpr std::size_t kMostPatternBytes = 1024;

std::size_t begin_of(const std::smatch& match) {
  for (std::size_t i = 1; i < match.size(); ++i) {
    if (match.length(i) > 0) return static_cast<std::size_t>(match.position(i));
  }
  return static_cast<std::size_t>(match.position(0));
}

}  // namespace

GrammarTrigger::GrammarTrigger(const GrammarStart& start) : start_(start) {
  for (const std::string& pattern : start.patterns) {
    try {
      patterns_.emplace_back(pattern);
    } catch (const std::regex_error&) {
      throw Error(ErrorCode::kInvalidArgument,
                  "the pattern '" + pattern + "', which starts a grammar, is not a valid regular expression");
    }
  }
}

bool GrammarTrigger::is_thinking() const {
  if (start_.thinking_begin.empty() || start_.thinking_ends.empty()) return false;
  const std::string all = start_.prefix + text_;
  const std::size_t begin = all.rfind(start_.thinking_begin);
  if (begin == std::string::npos) return false;
  return std::all_of(start_.thinking_ends.begin(), start_.thinking_ends.end(), [&](const std::string& end) {
    return all.find(end, begin + start_.thinking_begin.size()) == std::string::npos;
  });
}

std::optional<std::string> GrammarTrigger::add(std::string_view text) {
  const std::size_t n_before = text_.size();
  text_ += text;
  std::size_t first = std::string::npos;
  for (const std::string& word : start_.words) {
    const std::size_t n_back = std::min(n_before, word.size());
    if (!word.empty()) first = std::min(first, text_.find(word, std::max(n_searched_, n_before - n_back)));
  }
  const std::size_t from = text_.size() - std::min(text_.size(), kMostPatternBytes);
  const std::string tail = text_.substr(from);
  for (std::size_t i = 0; i < patterns_.size(); ++i) {
    // An anchored pattern is about the whole answer so far.
    if (start_.patterns[i].starts_with('^') && from > 0) continue;
    for (std::sregex_iterator match(tail.begin(), tail.end(), patterns_[i]); match != std::sregex_iterator(); ++match) {
      const std::size_t begin = from + begin_of(*match);
      if (begin < n_searched_) continue;  // it is thinking, or the grammar has refused it
      first = std::min(first, begin);
      break;
    }
  }
  if (first == std::string::npos) return std::nullopt;
  if (is_thinking()) {
    n_searched_ = text_.size();
    return std::nullopt;
  }
  n_searched_ = first + 1;  // if the grammar refuses this text, it is not found again
  return text_.substr(first);
}

}  // namespace winnow
