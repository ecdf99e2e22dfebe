// The schemas of a tool's parameters, which arrive as JSON text.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "winnow/chat.h"

namespace winnow {

// Returns how messages name the parameters of a tool.
std::string subject_of(const ChatTool& tool);

// Returns the schema of the tool's parameters, an object. Throws Error(kInvalidArgument), naming the tool, if they are
// not JSON or not a schema.
nlohmann::ordered_json parsed_parameters(const ChatTool& tool);

// SchemaUse says who reads plain schemas.
enum class SchemaUse {
  kParser,         // a parser of calls; a parameter that may be a text or something else counts as a text
  kQuotingParser,  // a parser of calls in which texts are in quotes, so that such a parameter is not taken for a text
  kShown,          // templates that cannot show other schemas: with descriptions and values
};

// Returns the tools with schemas as libllama-common needs them to make a parser of calls: they say only the names of
// parameters and which of them are texts, since the grammar alone enforces the rest. Throws Error(kInvalidArgument) for
// schemas that cannot be used, and for names and numbers of properties that libllama-common has no bounds for.
std::vector<ChatTool> with_plain_schemas(const std::vector<ChatTool>& tools, SchemaUse use);

}  // namespace winnow
