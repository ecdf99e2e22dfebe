// The parsers of one chat's answers, by libllama-common. Private to chat_template.cc, which makes them, and to
// chat_reader.cc.
#pragma once

#include <chat.h>

#include <optional>
#include <string>
#include <string_view>

namespace winnow {

struct ChatFormat {
  common_chat_parser_params parameters;
  // Set if thinking stays in the text, where the first parser may not find calls after it: a parser that separates
  // thinking.
  std::optional<common_chat_parser_params> apart;
  std::string thinking_begin, thinking_end;
};

// Returns whether more brackets are open than the parser can take, which recurses for each. A client may have written
// the beginning of an answer.
bool is_too_deep(std::string_view text);

}  // namespace winnow
