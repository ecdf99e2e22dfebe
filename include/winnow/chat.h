// Chats: messages, tools that a model may call, and what its template makes of them.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "winnow/api.h"
#include "winnow/sampling.h"

namespace WINNOW_API winnow {

struct ChatTool {
  std::string name, description;
  std::string parameters;  // JSON Schema of the arguments; empty: none
};

enum class ToolChoice {
  kAuto,      // the model calls tools or answers
  kNone,      // it answers
  kRequired,  // it calls
};

struct ChatOptions {
  bool add_answer = true;       // the header of an answer to come; where the last message goes on: no other header
  bool continues_last = false;  // the last message is an assistant's, and the answer goes on with it
  std::vector<ChatTool> tools;
  ToolChoice tool_choice = ToolChoice::kAuto;
  std::optional<bool> parallel_tool_calls;       // several calls in an answer; none: where the template has them
  bool enable_thinking = true;                   // where the template can do without
  bool separates_thinking = true;                // ChatReader tells it apart from the answer
  std::map<std::string, std::string> arguments;  // of the template: by name, in JSON
};

// How an answer is to be read; made by Model::apply_chat_template.
struct ChatFormat;

struct ChatPrompt {
  std::string text;
  // Of calls, for the sampler, with where it begins to hold; empty: none.
  std::string grammar;
  GrammarStart grammar_start;
  std::vector<std::string> stops;            // that end an answer besides the end tokens
  std::vector<std::string> shown_tokens;     // special tokens whose text ChatReader has to see
  std::shared_ptr<const ChatFormat> format;  // null: an answer is plain text
  std::vector<std::string> warnings;         // what of the tools' schemas calls are not held to
};

// What came to an answer.
struct ChatDelta {
  std::string reasoning, content;
  int tool_call = -1;     // the call that the rest belongs to; -1: none
  std::string id, name;   // with the first delta of a call
  std::string arguments;  // JSON, in pieces
};

// Reads an answer while it is written. Not thread-safe.
class ChatReader {
 public:
  // `format`: a prompt's; null: all is content.
  explicit ChatReader(std::shared_ptr<const ChatFormat> format);
  ~ChatReader();
  ChatReader(ChatReader&&) noexcept;
  ChatReader& operator=(ChatReader&&) noexcept;

  // `text`: of whole characters. What does not fit the format is content.
  std::vector<ChatDelta> add(std::string_view text);
  // Nothing follows. is_whole: the model ended it; else it was cut off somewhere.
  std::vector<ChatDelta> finish(bool is_whole);
  // As far as it is read.
  const ChatMessage& message() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace winnow
