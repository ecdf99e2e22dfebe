// The state of a chat: one session, fed turn by turn through the model's chat template.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "cli/interrupt.h"
#include "cli/run_report.h"
#include "winnow/generate.h"
#include "winnow/session.h"

namespace winnow::cli {

struct ConversationOptions {
  SessionOptions session;
  SamplingOptions sampling;
  int max_tokens = -1;
  std::string system;
  std::string document;  // precedes the first message, and is compressed without it
  // Conversations of fewer tokens are kept whole; by default those of fewer than 256 if the session's budget is a part
  // of the conversation.
  std::optional<std::int32_t> min_kv_tokens;
  double load_s = 0;  // time in which the model was loaded, for the report
};

class Conversation {
 public:
  Conversation(std::shared_ptr<Engine> engine, ConversationOptions options);

  // Feeds the document, if there is one and it has not been fed. Returns false if interrupted; the document is then fed
  // before the next message.
  bool read_document(const Interrupt& interrupt);

  // Feeds a message and streams the answer to the standard output. Returns kStopped if nobody reads that any more.
  // Throws Error(kInvalidArgument) for a message that is not UTF-8.
  FinishReason say(const std::string& message, const Interrupt& interrupt);

  // Resets the conversation to the state before the first message.
  void clear();
  void save(const std::string& path) const { session_.save(path); }
  // Loads a saved conversation. After an error the conversation is as before. Returns the context, the method and the
  // budget of the saved one if they are not those of the options, else "".
  std::string load(const std::string& path);

  std::int32_t n_tokens() const { return session_.n_tokens(); }
  RunReport report() const;

 private:
  // Feeds tokens to the session. Returns false if interrupted; the conversation is then as before.
  bool feed(std::span<const Token> tokens, const Interrupt& interrupt);
  // Returns the number of tokens below which the session is kept whole.
  std::size_t n_least() const;
  Sampler next_sampler();
  // Throws Error(kContextFull) if n_tokens more do not fit.
  void check_room(std::size_t n_tokens) const;

  std::shared_ptr<Engine> engine_;
  ConversationOptions options_;
  Session session_;
  bool is_uncut_ = true;                     // the session has only been appended to, so that a cut reads it again
  std::string session_file_;                 // file that the session was loaded from, or ""
  std::optional<std::string> document_end_;  // template after the first message, once the document is fed
  std::uint32_t n_answers_ = 0;
  std::vector<Token> generated_;
  double ttft_s_ = 0;
};

}  // namespace winnow::cli
