// Chats: the messages and tools that a model's chat template renders as a prompt, and the reader of the model's answer.
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

// A tool (function) that the model may call.
struct ChatTool {
  std::string name, description;
  std::string parameters;  // JSON Schema of the arguments; empty: none
};

// Decides between calling tools and answering in text.
enum class ToolChoice {
  kAuto,      // the model calls tools or answers, as it chooses
  kNone,      // the model answers in text and calls no tool
  kRequired,  // the model calls at least one tool
};

// Settings of Model::apply_chat_template.
struct ChatOptions {
  bool add_answer = true;       // ends the prompt with the header of an assistant's answer
  bool continues_last = false;  // the last message is an assistant's, and the answer continues it without a new header
  std::vector<ChatTool> tools;
  ToolChoice tool_choice = ToolChoice::kAuto;
  std::optional<bool> parallel_tool_calls;       // allows several calls in one answer; not set: if the template does
  bool enable_thinking = true;                   // false: asks templates that can do so to leave thinking out
  bool separates_thinking = true;                // ChatReader returns thinking as `reasoning`, apart from the content
  std::map<std::string, std::string> arguments;  // further variables for the template, by name, as JSON
};

// The format in which a model answers, as ChatReader needs it; made by Model::apply_chat_template.
struct ChatFormat;

// A chat rendered as a prompt, with all that is needed to sample and read the answer.
struct ChatPrompt {
  std::string text;
  // GBNF that tool calls must follow, and the place in the answer from which it holds (SamplingOptions); empty: none.
  std::string grammar;
  GrammarStart grammar_start;
  std::vector<std::string> stops;            // texts that end an answer, besides the end tokens
  std::vector<std::string> shown_tokens;     // special tokens whose text ChatReader has to see
  std::shared_ptr<const ChatFormat> format;  // the answer's format, for ChatReader; null: an answer is plain text
  std::vector<std::string> warnings;         // sentences on parts of the tools' schemas that the grammar cannot enforce
};

// The news of an answer since the delta before: text to append to each of its fields.
struct ChatDelta {
  std::string reasoning, content;
  int tool_call = -1;     // index of the tool call that id, name and arguments belong to; -1: none
  std::string id, name;   // set in the first delta of a call
  std::string arguments;  // the next piece of the call's arguments (JSON)
};

// Parses an answer while it is generated. Not thread-safe.
class ChatReader {
 public:
  // Takes the format of the prompt that is answered (ChatPrompt::format); null: all text is content.
  explicit ChatReader(std::shared_ptr<const ChatFormat> format);
  ~ChatReader();
  ChatReader(ChatReader&&) noexcept;
  ChatReader& operator=(ChatReader&&) noexcept;

  // Reads the next piece of the answer, whole UTF-8 characters, and returns the deltas that it gives. Text that does
  // not fit the format is content.
  std::vector<ChatDelta> add(std::string_view text);
  // Ends the answer, also one that was cut off, and returns the last deltas.
  std::vector<ChatDelta> finish();
  [[deprecated("finish()")]] std::vector<ChatDelta> finish(bool /*is_whole*/) { return finish(); }
  // Returns the answer as far as it has been read, without the beginning that the client gave (continues_last).
  const ChatMessage& message() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace winnow
