// Grammars of tool calls: the form of a call is the chat template's, its arguments follow the tools' schemas.
#pragma once

#include <string>
#include <vector>

#include "winnow/chat.h"

namespace winnow {

// The place of calls in an answer.
struct CallForm {
  bool is_forced = false;      // true: the answer consists of calls; false: the grammar begins where a call begins
  bool is_parallel = false;    // an answer may have several calls
  bool may_think = false;      // thinking may come before them
  std::string thinking_begin;  // the text with which thinking begins; empty: the model does not think
};

// The grammar of an answer with calls.
struct CallGrammar {
  std::string text;                   // GBNF
  std::vector<std::string> begins;    // patterns (ECMAScript) of the tools' calls up to the ends of the tools' names
  std::vector<std::string> warnings;  // sentences on parts of the schemas that the grammar cannot enforce
};

// Returns the grammar of calls for a `parser` of common_chat_params that was made with plain schemas of the tools
// (tool_schemas.h). Throws Error(kInvalidArgument), naming the tool, for schemas that cannot be used.
CallGrammar call_grammar(const std::string& parser, const std::vector<ChatTool>& tools, const CallForm& form);

}  // namespace winnow
