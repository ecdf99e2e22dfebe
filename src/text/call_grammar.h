// What calls of tools look like, as a grammar: the form is the template's, the arguments follow their schemas.
#pragma once

#include <string>
#include <vector>

#include "winnow/chat.h"

namespace winnow {

struct CallForm {
  bool is_forced = false;      // the answer is calls; otherwise the grammar begins where a call does
  bool is_parallel = false;    // several of them
  bool may_think = false;      // before them
  std::string thinking_begin;  // what thoughts begin with; empty: there are none
};

struct CallGrammar {
  std::string text;                   // GBNF
  std::vector<std::string> begins;    // what calls may begin with, as far as it is certain, for each tool
  std::vector<std::string> warnings;  // what of the schemas arguments are not held to
};

// Schemas as libllama-common needs them to make a parser of calls: names of parameters, and which of them are texts.
// What the arguments are held to is in the grammar alone. `is_shown`: with their descriptions and values, for templates
// that cannot show other schemas. Throws Error(kInvalidArgument) for schemas that cannot be used.
std::vector<ChatTool> with_plain_schemas(const std::vector<ChatTool>& tools, bool is_shown);

// `parser`: as common_chat_params has it, made with these plain schemas. Throws Error(kInvalidArgument) for schemas
// that cannot be used, and names the tool.
CallGrammar call_grammar(const std::string& parser, const std::vector<ChatTool>& tools, const CallForm& form);

}  // namespace winnow
